// Selection of one row with vectors: guess a threshold, certify it with an exact count or mass,
// refine.
//
//   guess     a threshold from 64 vectors of the row, as if its body were Gaussian (Qrita's sigma
//             truncation, with outliers on both sides trimmed away first)
//   certify   top-k: enough candidates were found. top-p: the rest of the row, summed by a table
//             exp with a proven error, cannot move the boundary
//   refine    top-k: bisection by exact counts. top-p: the exact mass of the rest, then more
//             candidates. What no path here covers goes to the list (select_list-inl.h)
//
// Candidates are stored in memory for a whole row, so no guess can overflow anything.
#include <algorithm>
#include <cmath>

#include "select/select_table.h"
#include "semantics/select_row.h"

#if defined(SLUICE_SELECT_SELECT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_SELECT_ROW_INL_H_
#undef SLUICE_SELECT_SELECT_ROW_INL_H_
#else
#define SLUICE_SELECT_SELECT_ROW_INL_H_
#endif

#include "select/candidates-inl.h"
#include "select/guess-inl.h"
#include "select/select_list-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The memory of one row's selection, carved from a worker's workspace.
struct RowMemory {
  CandidateList list;
  float* weights;
  GroupMask* masks;
  semantics::Token* tokens;

  static size_t Bytes(int64_t vocab) {
    const size_t padded = static_cast<size_t>(vocab) + 2 * kMaxLanes;
    return padded * (3 * sizeof(float) + sizeof(semantics::Token)) + padded / kMaxLanes +
           2 * sizeof(uint64_t);
  }
  static RowMemory In(std::byte* memory, int64_t vocab) {
    const size_t padded = static_cast<size_t>(vocab) + 2 * kMaxLanes;
    RowMemory row;
    row.tokens = reinterpret_cast<semantics::Token*>(memory);
    row.list.x = reinterpret_cast<float*>(row.tokens + padded);
    row.list.ids = reinterpret_cast<int32_t*>(row.list.x + padded);
    row.list.size = 0;
    row.weights = reinterpret_cast<float*>(row.list.ids + padded);
    row.masks = reinterpret_cast<GroupMask*>(row.weights + padded);
    return row;
  }

  static constexpr size_t kMaxLanes = 16;
};

// A set that is known by its candidates: `list` holds exactly the kept tokens, all at or above
// cut.lower.
inline SelectedSet Materialized(const CandidateList& list, const Cut& cut, float max) {
  SelectedSet selected;
  selected.cut = cut;
  selected.max = max;
  selected.kept = {list.x, list.ids, list.size};
  return selected;
}

inline SelectedSet WithStatus(RowStatus status) {
  SelectedSet selected;
  selected.cut = semantics::CutOfStatus(status);
  return selected;
}

// Keeps of the candidates equal to `value` the first `kept` by id. `ties` are all of them.
inline void TrimTies(CandidateList& list, float value, int64_t ties, int64_t kept,
                     semantics::Token* scratch) {
  if (kept == ties) return;
  int64_t n = 0;
  for (int64_t i = 0; i < list.size; ++i) {
    if (list.x[i] == value) scratch[n++] = {0.0f, list.ids[i]};
  }
  std::nth_element(scratch, scratch + kept, scratch + n, semantics::Before);
  const int32_t first_dropped = scratch[kept].id;
  n = 0;
  for (int64_t i = 0; i < list.size; ++i) {
    const bool is_kept = list.x[i] != value || list.ids[i] < first_dropped;
    list.x[n] = list.x[i];
    list.ids[n] = list.ids[i];
    n += is_kept ? 1 : 0;
  }
  list.size = n;
  list.Pad();
}

// Reduces the candidates to those from `lower` on, of whose ties `ties_kept` are kept.
inline SelectedSet CutAt(RowMemory& memory, float lower, int64_t ties, int64_t ties_kept,
                         float max) {
  KeepAtLeast(memory.list, lower);
  TrimTies(memory.list, lower, ties, ties_kept, memory.tokens);
  Cut cut;
  cut.lower = lower + 0.0f;
  cut.ties_kept = static_cast<int32_t>(ties_kept);
  cut.count = static_cast<int32_t>(memory.list.size);
  return Materialized(memory.list, cut, max);
}

// The boundary of top-p among the candidates, which hold at least the target mass.
struct MassBoundary {
  float lower;
  int64_t ties;
  int64_t ties_kept;
  uint64_t mass;  // of what is kept
};

inline MassBoundary FindMassBoundary(const RowMemory& memory, float max, float scale,
                                     uint64_t target, Ties rule) {
  const CandidateList& list = memory.list;
  MassBoundary found;
  found.lower = LargestValue(MinOf(list), MaxOf(list), [&](float value) HWY_ATTR {
    return MassAtLeast(list, memory.weights, value) >= target;
  });
  found.ties = CountEqual(list, found.lower);
  const uint64_t weight = semantics::Weight(found.lower, max, scale);
  const uint64_t through = MassAtLeast(list, memory.weights, found.lower);
  const uint64_t above = through - static_cast<uint64_t>(found.ties) * weight;
  found.ties_kept = found.ties;
  if (rule == Ties::kLowestId && weight > 0) {
    found.ties_kept = semantics::TopPTiesKept(above, weight, found.ties, target);
  }
  found.mass = above + static_cast<uint64_t>(found.ties_kept) * weight;
  return found;
}

// All finite elements, or those from a threshold on, when the guess was wrong: the largest
// threshold within a factor of what is needed, by exact counts.
template <class Read>
float RefineThreshold(const semantics::Row& row, float too_high, int64_t k) {
  if (CountAtLeast<Read>(row, kLowestFinite) <= k) return kLowestFinite;
  uint32_t low = semantics::OrderKey(kLowestFinite);
  uint32_t high = semantics::OrderKey(too_high);
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const int64_t count = CountAtLeast<Read>(row, semantics::ValueOfKey(middle));
    if (count >= k) {
      low = middle;
      if (count <= 2 * k + 1024) break;
    } else {
      high = middle;
    }
  }
  return semantics::ValueOfKey(low);
}

// Any status that the candidates or the pass give away; kOk when there is none.
inline RowStatus StatusOf(const semantics::Row& row, float checksum, float max) {
  if (checksum != checksum || max == semantics::Infinity()) return semantics::ScanRow(row).status;
  return RowStatus::kOk;
}

template <class Read>
SelectedSet SelectGreedy(const semantics::Row& row) {
  const MaxFinding found = MaxPass<Read>(row);
  RowStatus status = StatusOf(row, found.checksum, found.max);
  if (status == RowStatus::kOk && found.max == -semantics::Infinity()) {
    status = RowStatus::kEmptySupport;
  }
  if (status != RowStatus::kOk) return WithStatus(status);
  SelectedSet selected;
  selected.max = found.max;
  selected.cut.lower = found.max + 0.0f;
  selected.cut.ties_kept = 1;
  selected.cut.count = 1;
  selected.first_id = static_cast<int32_t>(FindFrom<Read>(row, found.chunk, found.max));
  return selected;
}

// Top-k, and top-p on its survivors: everything after the one pass happens among k tokens.
template <class Read>
SelectedSet SelectTopK(const semantics::Row& row, const SelectParams& params, RowMemory& memory) {
  const int64_t k = params.top_k;
  CandidateList& list = memory.list;
  const float aim = 1.4f * static_cast<float>(k) + 80.0f;
  float threshold = GuessThreshold<Read>(row, aim);
  const float checksum = ThresholdPass<Read>(row, threshold, memory.masks);
  Collect<Read>(row, threshold, memory.masks, list);
  const RowStatus status = StatusOf(row, checksum, MaxOf(list));
  if (status != RowStatus::kOk) return WithStatus(status);
  if (list.size < k && threshold != kLowestFinite) {
    threshold = RefineThreshold<Read>(row, threshold, k);
    ThresholdPass<Read>(row, threshold, memory.masks);
    Collect<Read>(row, threshold, memory.masks, list);
  }
  if (list.size == 0) return WithStatus(RowStatus::kEmptySupport);

  const float max = MaxOf(list);
  const float low = MinOf(list);
  const float lower = list.size <= k ? low : LargestValue(low, max, [&](float value) HWY_ATTR {
    return CountAtLeast(list, value) >= k;
  });
  KeepAtLeast(list, lower);
  const int64_t ties = CountEqual(list, lower);
  const int64_t excess = std::max<int64_t>(0, list.size - k);
  const int64_t ties_kept = params.profile.ties == Ties::kAll ? ties : ties - excess;
  SelectedSet selected = CutAt(memory, lower, ties, ties_kept, max);
  if (params.top_p == 1.0f) return selected;

  const float scale = semantics::ScalesOf(params).filter;
  Weigh(list, max, scale, memory.weights);
  const uint64_t target =
      semantics::TargetMass(params.top_p, MassAtLeast(list, memory.weights, kLowestFinite));
  const MassBoundary boundary = FindMassBoundary(memory, max, scale, target, params.profile.ties);
  return CutAt(memory, boundary.lower, boundary.ties, boundary.ties_kept, max);
}

// Top-p when its boundary lies below `limit`, among tokens that hold `share` of the mass there. Too
// many tokens to collect: guess a band around the boundary, certify it with the exact mass above
// it, and search the band alone. Only the Cut comes of it.
template <class Read>
SelectedSet SelectWideNucleus(const semantics::Row& row, const SelectParams& params,
                              RowMemory& memory, float max, float limit, uint64_t target,
                              double share) {
  const float scale = semantics::ScalesOf(params).filter;
  RowSample sample;
  TakeSample<Read>(row, sample);
  float low = kLowestFinite;
  float high = limit;
  if (sample.size > 0) {  // a sampled share is off by some 10 %
    if (share > 0.12) high = SampledMassQuantile(sample, limit, max, scale, share - 0.12);
    if (share < 0.88) low = SampledMassQuantile(sample, limit, max, scale, share + 0.12);
  }
  uint64_t above = 0;
  for (;;) {
    above = MassAboveBand<Read>(row, low, high, max, scale, memory.list);
    if (above >= target) {  // the boundary lies above the band
      low = high;
      high = limit;
      continue;
    }
    Weigh(memory.list, max, scale, memory.weights);
    if (above + MassAtLeast(memory.list, memory.weights, kLowestFinite) >= target) break;
    high = low;  // it lies below
    low = kLowestFinite;
  }
  const MassBoundary boundary =
      FindMassBoundary(memory, max, scale, target - above, params.profile.ties);
  SelectedSet selected;
  selected.max = max;
  selected.cut.lower = boundary.lower + 0.0f;
  selected.cut.ties_kept = static_cast<int32_t>(boundary.ties_kept);
  selected.cut.count = static_cast<int32_t>(CountAtLeast<Read>(row, boundary.lower) -
                                            boundary.ties + boundary.ties_kept);
  return selected;
}

// Top-p over the whole row.
template <class Read>
SelectedSet SelectTopP(const semantics::Row& row, const SelectParams& params, RowMemory& memory) {
  constexpr float kAim = 384.0f;
  CandidateList& list = memory.list;
  const float scale = semantics::ScalesOf(params).filter;
  const Ties rule = params.profile.ties;
  float threshold = GuessThreshold<Read>(row, kAim);
  if (std::abs(threshold * scale) > kLargestOffset) threshold = kLowestFinite;
  const PassSums sums = ApproximateTailPass<Read>(row, threshold, scale, memory.masks);
  Collect<Read>(row, threshold, memory.masks, list);
  float max = MaxOf(list);
  const RowStatus status = StatusOf(row, sums.checksum, max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (list.size == 0 && threshold != kLowestFinite) {  // the body's outliers are all below it
    threshold = kLowestFinite;
    ThresholdPass<Read>(row, threshold, memory.masks);
    Collect<Read>(row, threshold, memory.masks, list);
    max = MaxOf(list);
  } else if (list.size > 0 && threshold != kLowestFinite) {
    // Elements behind the last whole group are not in the sum: their mass is added exactly.
    const int64_t grouped =
        row.size / static_cast<int64_t>(GroupElements()) * static_cast<int64_t>(GroupElements());
    int64_t in_sum = list.size;
    uint64_t ungrouped = 0;
    for (int64_t i = grouped; i < row.size; ++i) {
      const float x = row[i];
      if (x >= threshold) {
        --in_sum;
      } else {
        ungrouped += semantics::Weight(x, max, scale);
      }
    }
    Weigh(list, max, scale, memory.weights);
    const uint64_t mass = MassAtLeast(list, memory.weights, kLowestFinite);
    // What a candidate adds to the sum is 1, or below it by the rounding of the offset when it lies
    // at the threshold.
    const double unit =
        0x1p40 * std::exp2(static_cast<double>(semantics::LogWeight(threshold, max, scale)));
    const TailError error = ApproximationError(row.size);
    const double sum = static_cast<double>(sums.tail);
    const double rest = std::max(0.0, sum - static_cast<double>(in_sum));
    const double doubt =
        error.power * rest + error.candidate * static_cast<double>(in_sum) + error.sum * sum;
    // Each weight is rounded down by less than one unit.
    const double least =
        std::max(0.0, (rest - doubt) * unit - static_cast<double>(row.size)) * (1.0 - 1e-9);
    const double most = (rest + doubt) * unit * (1.0 + 1e-9) + 1.0;
    const uint64_t known = mass + ungrouped;
    const uint64_t low_target =
        semantics::TargetMass(params.top_p, known + static_cast<uint64_t>(least));
    const uint64_t high_target =
        semantics::TargetMass(params.top_p, known + static_cast<uint64_t>(most));
    if (mass >= high_target) {
      const MassBoundary boundary = FindMassBoundary(memory, max, scale, low_target, rule);
      if (boundary.mass >= high_target) {
        return CutAt(memory, boundary.lower, boundary.ties, boundary.ties_kept, max);
      }
    }
  }
  if (list.size == 0) return WithStatus(RowStatus::kEmptySupport);

  // The interval does not decide, or the nucleus is wider than the candidates: take the exact mass.
  Weigh(list, max, scale, memory.weights);
  const uint64_t mass = MassAtLeast(list, memory.weights, kLowestFinite);
  const uint64_t rest = MassBelow<Read>(row, threshold, max, scale);
  const uint64_t target = semantics::TargetMass(params.top_p, mass + rest);
  if (mass < target) {
    return SelectWideNucleus<Read>(row, params, memory, max, threshold, target,
                                   static_cast<double>(target - mass) / static_cast<double>(rest));
  }
  const MassBoundary boundary = FindMassBoundary(memory, max, scale, target, rule);
  return CutAt(memory, boundary.lower, boundary.ties, boundary.ties_kept, max);
}

// No filter: every finite token, known by its Cut alone.
template <class Read>
SelectedSet SelectAll(const semantics::Row& row) {
  const MaxFinding found = MaxPass<Read>(row);
  const RowStatus status = StatusOf(row, found.checksum, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  const int64_t finite = CountAtLeast<Read>(row, kLowestFinite);
  if (finite == 0) return WithStatus(RowStatus::kEmptySupport);
  const F32 d;
  auto min = hn::Set(d, semantics::Infinity());
  size_t i = 0;
  const size_t size = static_cast<size_t>(row.size);
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    const auto x = Read::At(row.data, i);
    min = hn::Min(min, hn::IfThenElse(hn::Ge(x, hn::Set(d, kLowestFinite)), x, min));
  }
  float lowest = hn::GetLane(hn::MinOfLanes(d, min));
  for (; i < size; ++i) {
    const float x = row[static_cast<int64_t>(i)];
    if (x >= kLowestFinite && x < lowest) lowest = x;
  }
  SelectedSet selected;
  selected.max = found.max;
  selected.cut.lower = lowest + 0.0f;
  const float above = semantics::ValueOfKey(semantics::OrderKey(lowest) + 1);
  selected.cut.ties_kept = static_cast<int32_t>(finite - CountAtLeast<Read>(row, above));
  selected.cut.count = static_cast<int32_t>(finite);
  return selected;
}

// What selects where the certified ways below do not.
constexpr SelectAlgorithm kForTheRest = SelectAlgorithm::kPivot;

template <class Read>
SelectedSet SelectRow(const RowRequest& request, std::byte* workspace) {
  const semantics::Row& row = request.row;
  const SelectParams& params = request.params;
  RowMemory memory = RowMemory::In(workspace, row.size);
  if (!semantics::AreValid(params, request.limits) || !semantics::IsValid(request.key)) {
    return WithStatus(RowStatus::kBadParam);
  }
  if (request.algorithm != SelectAlgorithm::kAuto &&
      request.algorithm != SelectAlgorithm::kCertified) {
    return SelectFromList<Read>(request, request.algorithm, workspace);
  }
  const Profile& profile = params.profile;
  const bool has_top_k = params.top_k > 0 && params.top_k < row.size;
  const bool has_top_p = params.top_p < 1.0f;
  const bool is_covered = params.min_p == 0.0f && params.top_n_sigma == 0.0f &&
                          params.typical_p == 1.0f && params.xtc_probability == 0.0f &&
                          !(has_top_p && profile.top_p_boundary == TopPBoundary::kInclusive) &&
                          !(has_top_k && has_top_p && profile.top_k_top_p == TopKTopP::kJoint);
  if (request.wants_masses || !(is_covered || semantics::IsGreedy(params))) {
    return SelectFromList<Read>(request, kForTheRest, workspace);
  }
  SelectedSet selected = semantics::IsGreedy(params) ? SelectGreedy<Read>(row)
                         : has_top_k                 ? SelectTopK<Read>(row, params, memory)
                         : has_top_p                 ? SelectTopP<Read>(row, params, memory)
                                                     : SelectAll<Read>(row);
  selected.work.algorithm = SelectAlgorithm::kCertified;
  return selected;
}

// The workspace serves as a RowMemory or as a ListMemory.
inline size_t SelectRowBytes(int64_t vocab) {
  return std::max(RowMemory::Bytes(vocab), ListMemory::Bytes(vocab));
}

inline SelectedSet SelectRowOfAnyDType(const RowRequest& request, std::byte* workspace) {
  switch (request.row.dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return SelectRow<ReadBf16>(request, workspace);
    case DType::kF16:
      return SelectRow<ReadF16>(request, workspace);
  }
  return SelectRow<ReadF32>(request, workspace);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
