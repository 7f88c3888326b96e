// Selection of one row with vectors: guess a threshold, certify it with an exact count or mass,
// refine.
//
//   guess     a threshold from 64 vectors of the row, as if its body were Gaussian (Qrita's sigma
//             truncation, with outliers on both sides trimmed away first)
//   certify   top-k: enough candidates were found. top-p: the rest of the row, summed by a table of
//             powers with a proven error, cannot move the boundary
//   refine    top-k: a threshold from the sample itself, then every element. top-p: a better sum,
//             then the exact mass, then a band of values around a boundary far down
//
// Candidates are stored in memory for a whole row, so no guess can overflow anything. What no path
// here covers goes to the definition itself.
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

#include "select/band-inl.h"
#include "select/boundary-inl.h"
#include "select/guess-inl.h"
#include "select/power_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The memory of one row's selection, carved from a worker's workspace.
struct RowMemory {
  CandidateList list;
  float* weights;  // of the list
  GroupMask* masks;
  semantics::Token* tokens;  // for the definition; else scratch_x and scratch_weights
  float* scratch_x;
  float* scratch_weights;

  static constexpr size_t kMaxLanes = 16;
  static size_t Padded(int64_t vocab) { return static_cast<size_t>(vocab) + 4 * kMaxLanes; }
  static size_t Bytes(int64_t vocab) {
    return Padded(vocab) * (3 * sizeof(float) + sizeof(semantics::Token)) +
           Padded(vocab) / kMaxLanes + 2 * sizeof(uint64_t);
  }
  static RowMemory In(std::byte* memory, int64_t vocab) {
    const size_t padded = Padded(vocab);
    RowMemory row;
    row.tokens = reinterpret_cast<semantics::Token*>(memory);
    row.scratch_x = reinterpret_cast<float*>(memory);
    row.scratch_weights = row.scratch_x + padded;
    row.list.x = reinterpret_cast<float*>(row.tokens + padded);
    row.list.ids = reinterpret_cast<int32_t*>(row.list.x + padded);
    row.list.size = 0;
    row.weights = reinterpret_cast<float*>(row.list.ids + padded);
    row.masks = reinterpret_cast<GroupMask*>(row.weights + padded);
    return row;
  }

  Measured Counted() const { return {list.x, nullptr, static_cast<size_t>(list.size)}; }
  Measured Weighed(const Weigher& weigher) const {
    Weigh(list.x, static_cast<size_t>(list.size), weigher, weights);
    return {list.x, weights, static_cast<size_t>(list.size)};
  }
};

// What the steps of one row's selection share.
struct RowTask {
  const semantics::Row& row;
  const SelectParams& params;
  RowMemory memory;
  bool wants_tokens;  // the kept tokens, for a draw; else the Cut is all
  int64_t elements_read = 0;

  // One pass over the row.
  void CountPass() { elements_read += row.size; }
};

inline SelectedSet WithStatus(RowStatus status) {
  SelectedSet selected;
  selected.cut = semantics::CutOfStatus(status);
  return selected;
}

// NaN and +inf: the definition says which comes first.
inline RowStatus StatusOf(const semantics::Row& row, bool has_nan, float max) {
  if (has_nan || max == semantics::Infinity()) return semantics::ScanRow(row).status;
  return RowStatus::kOk;
}

// The first `ties_kept` of the tokens equal to `lower`, and `above` tokens above it.
inline SelectedSet SetOf(float max, float lower, int64_t above, int64_t ties_kept) {
  SelectedSet selected;
  selected.max = max;
  selected.cut.lower = lower + 0.0f;
  selected.cut.ties_kept = static_cast<int32_t>(ties_kept);
  selected.cut.count = static_cast<int32_t>(above + ties_kept);
  return selected;
}

// The same, of a set that lies among the candidates: they are reduced to it when somebody wants
// them.
inline SelectedSet SetOfCandidates(RowTask& task, float max, const Boundary& boundary,
                                   int64_t ties_kept) {
  SelectedSet selected = SetOf(max, boundary.value, boundary.count_above, ties_kept);
  if (!task.wants_tokens) return selected;
  CandidateList& list = task.memory.list;
  KeepAtLeast(list, boundary.value);
  if (ties_kept < boundary.ties) TrimTies(list, boundary.value, ties_kept);
  selected.kept = {list.x, list.ids, list.size};
  return selected;
}

template <class Read>
void CollectCandidates(RowTask& task, float threshold) {
  RowMemory& memory = task.memory;
  if (task.wants_tokens) {
    Collect<Read, true>(task.row, threshold, memory.masks, memory.list);
  } else {
    Collect<Read, false>(task.row, threshold, memory.masks, memory.list);
  }
  task.elements_read += memory.list.size;
}

template <class Read>
SelectedSet SelectGreedy(RowTask& task) {
  const Extremes found = FindExtremes<Read, false>(task.row);
  task.CountPass();
  const RowStatus status = StatusOf(task.row, found.has_nan, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (found.max == -semantics::Infinity()) return WithStatus(RowStatus::kEmptySupport);
  SelectedSet selected = SetOf(found.max, found.max, 0, 1);
  selected.first_id = static_cast<int32_t>(FindFrom<Read>(task.row, found.max_chunk, found.max));
  return selected;
}

// The boundary of top-p among the candidates, which hold at least the target mass, and how many of
// its ties are kept.
struct MassBoundary {
  Boundary at;
  int64_t ties_kept;
  uint64_t mass;  // of what is kept
};

inline MassBoundary FindMassBoundary(const RowMemory& memory, const Measured& weighed, float max,
                                     float scale, uint64_t target, Ties rule) {
  MassBoundary found;
  found.at =
      FindBoundary<true>(weighed, target, memory.scratch_x, memory.scratch_weights);
  const uint64_t weight = semantics::Weight(found.at.value, max, scale);
  found.ties_kept = found.at.ties;
  if (rule == Ties::kLowestId && weight > 0) {
    found.ties_kept =
        semantics::TopPTiesKept(found.at.above, weight, found.at.ties, target);
  }
  found.mass = found.at.above + static_cast<uint64_t>(found.ties_kept) * weight;
  return found;
}

// Top-k, and top-p on its survivors: everything after the one pass happens among k tokens.
template <class Read>
SelectedSet SelectTopK(RowTask& task) {
  const semantics::Row& row = task.row;
  const int64_t k = task.params.top_k;
  RowMemory& memory = task.memory;
  CandidateList& list = memory.list;
  SmallSample sample;
  sample.Take<Read>(row);
  float threshold =
      GaussianThreshold(sample, row.size, 1.4f * static_cast<float>(k) + 80.0f);
  bool has_nan = ThresholdPass<Read>(row, threshold, memory.masks);
  task.CountPass();
  CollectCandidates<Read>(task, threshold);
  for (const float next : {SampledThreshold(sample, row.size, k), kLowestFinite}) {
    if (list.size >= k || has_nan || !(next < threshold)) continue;
    threshold = next;
    has_nan = ThresholdPass<Read>(row, threshold, memory.masks);
    task.CountPass();
    CollectCandidates<Read>(task, threshold);
  }
  const float max = MaxOf(list);
  const RowStatus status = StatusOf(row, has_nan, max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (list.size == 0) return WithStatus(RowStatus::kEmptySupport);

  const uint64_t kept = static_cast<uint64_t>(std::min(k, list.size));
  const Boundary boundary =
      FindBoundary<false>(memory.Counted(), kept, memory.scratch_x, memory.scratch_weights);
  const int64_t ties_kept = task.params.profile.ties == Ties::kAll
                                ? boundary.ties
                                : static_cast<int64_t>(kept) - boundary.count_above;
  const SelectedSet by_count = SetOfCandidates(task, max, boundary, ties_kept);
  if (task.params.top_p == 1.0f) return by_count;

  if (!task.wants_tokens) {  // ids mean nothing here, so any of the ties may go
    KeepAtLeast(list, boundary.value);
    if (ties_kept < boundary.ties) {
      TrimAnyTies(list, boundary.value, boundary.ties - ties_kept);
    }
  }
  const float scale = semantics::ScalesOf(task.params).filter;
  const Measured weighed = memory.Weighed(Weigher(max, scale));
  const uint64_t target =
      semantics::TargetMass(task.params.top_p, MeasureAll<true>(weighed).amount);
  const MassBoundary by_mass =
      FindMassBoundary(memory, weighed, max, scale, target, task.params.profile.ties);
  return SetOfCandidates(task, max, by_mass.at, by_mass.ties_kept);
}

// An interval that holds the mass of a set.
struct MassInterval {
  uint64_t least;
  uint64_t most;
};

// Top-p over the whole row.
template <class Read>
class TopPSearch {
 public:
  explicit TopPSearch(RowTask& task)
      : task_(task),
        row_(task.row),
        list_(task.memory.list),
        scale_(semantics::ScalesOf(task.params).filter),
        rule_(task.params.profile.ties) {}

  SelectedSet Run() {
    SmallSample sample;
    sample.Take<Read>(row_);
    threshold_ = GaussianThreshold(sample, row_.size, kAim);
    MassInterval rest = GuessAndSum();
    if (list_.size == 0 && !has_nan_) {  // the body's outliers are all below it
      threshold_ = SampledThreshold(sample, row_.size, static_cast<int64_t>(kAim));
      rest = GuessAndSum();
    }
    if (list_.size == 0 && !has_nan_) {
      threshold_ = kLowestFinite;
      rest = GuessAndSum();
    }
    const RowStatus status = StatusOf(row_, has_nan_, max_);
    if (status != RowStatus::kOk) return WithStatus(status);
    if (list_.size == 0) return WithStatus(RowStatus::kEmptySupport);

    SelectedSet selected;
    if (Decide(rest, selected)) return selected;
    if (TargetOf(rest.least) <= mass_ && CanSumPowers(max_)) {
      const MassInterval better = SumRest();
      if (Decide(better, selected)) return selected;
      rest = better;
    }
    if (TargetOf(rest.least) > mass_) return SelectWide(rest);
    const uint64_t exact = MassBelow<Read>(row_, threshold_, Weigher(max_, scale_));
    task_.CountPass();
    if (Decide({exact, exact}, selected)) return selected;
    return SelectWide({exact, exact});
  }

 private:
  static constexpr float kAim = 384.0f;
#if HWY_TARGET == HWY_AVX2
  static constexpr int kFirstDegree = 1;  // eight entries are too coarse to decide much alone
#else
  static constexpr int kFirstDegree = 0;
#endif
  static constexpr int kSecondDegree = 2;

  uint64_t TargetOf(uint64_t rest) const {
    return semantics::TargetMass(task_.params.top_p, mass_ + rest);
  }
  bool CanSumPowers(float reference) const {
    return scale_ > 1e-6f &&
           std::abs(reference * scale_) < PowerTerms<kSecondDegree>::kLargestOffset;
  }

  // What is known of the mass below the threshold when nothing was summed.
  MassInterval Unknown() const {
    return {0, static_cast<uint64_t>(row_.size) * semantics::kFullWeight};
  }

  // Candidates from the threshold on, weighed, and an interval for the mass below it.
  MassInterval GuessAndSum() {
    const bool sums = threshold_ != kLowestFinite && CanSumPowers(threshold_);
    double sum = 0.0;
    const PowerTerms<kFirstDegree> terms(sums ? threshold_ : 0.0f, sums ? scale_ : 1.0f);
    if (sums) {
      const PowerSum powers =
          SumPowers<Read, kFirstDegree>(row_, terms, threshold_, task_.memory.masks);
      sum = powers.sum;
      has_nan_ = powers.has_nan;
    } else {
      has_nan_ = ThresholdPass<Read>(row_, threshold_, task_.memory.masks);
    }
    task_.CountPass();
    CollectCandidates<Read>(task_, threshold_);
    max_ = MaxOf(list_);
    if (list_.size == 0 || has_nan_ || max_ == semantics::Infinity()) return Unknown();
    weighed_ = task_.memory.Weighed(Weigher(max_, scale_));
    mass_ = MeasureAll<true>(weighed_).amount;
    if (threshold_ == kLowestFinite) return {0, 0};
    const double range = (static_cast<double>(max_) - terms.reference()) * scale_;
    if (!sums || range > PowerTerms<kFirstDegree>::kLargestTerm) return Unknown();
    return IntervalOf(sum, terms);
  }

  // Sums the whole row once more, better.
  MassInterval SumRest() {
    const PowerTerms<kSecondDegree> terms(max_, scale_);
    task_.CountPass();
    return IntervalOf(SumPowers<Read, kSecondDegree>(row_, terms, 0.0f, nullptr).sum, terms);
  }

  // The sum holds the candidates as well: their terms are taken off, and only what the fp32 sums
  // lost of them stays in doubt.
  template <int kDegree>
  MassInterval IntervalOf(double sum, const PowerTerms<kDegree>& terms) const {
    const double of_candidates =
        SumPowers(list_.x, static_cast<size_t>(list_.size), terms);
    const double rest = std::max(0.0, sum - of_candidates);
    const double doubt = PowerTerms<kDegree>::RelativeError() * 1.01 * rest +
                         kPowerSumError * (sum + of_candidates);
    const double unit =
        0x1p40 * std::exp2((terms.reference() - static_cast<double>(max_)) *
                           static_cast<double>(scale_));
    // Each weight is rounded down by less than one unit, and 2^-40 of a unit is cut off below.
    const double least =
        std::max(0.0, (rest - doubt) * unit - static_cast<double>(row_.size)) * (1.0 - 1e-9);
    const double most = (rest + doubt) * unit * (1.0 + 1e-9) + 1.0;
    return {static_cast<uint64_t>(least), static_cast<uint64_t>(most)};
  }

  // Whether every mass of the interval gives the same set, which lies among the candidates.
  bool Decide(const MassInterval& rest, SelectedSet& selected) {
    const uint64_t low_target = TargetOf(rest.least);
    const uint64_t high_target = TargetOf(rest.most);
    if (mass_ < high_target) return false;
    const MassBoundary boundary =
        FindMassBoundary(task_.memory, weighed_, max_, scale_, low_target, rule_);
    if (low_target != high_target && boundary.mass < high_target) return false;
    selected = SetOfCandidates(task_, max_, boundary.at, boundary.ties_kept);
    return true;
  }

  // The boundary lies below the threshold, among too many tokens to collect them all: guess a band
  // around it, certify it with the exact mass above it, and search the band alone. Only the Cut
  // comes of it.
  SelectedSet SelectWide(const MassInterval& guess) {
    const Weigher weigher(max_, scale_);
    const double rest = 0.5 * (static_cast<double>(guess.least) + static_cast<double>(guess.most));
    const double missing = static_cast<double>(TargetOf(static_cast<uint64_t>(rest))) -
                           static_cast<double>(mass_);
    Bracket bracket = BandFor(std::clamp(missing / std::max(rest, 1.0), 0.0, 1.0), weigher);
    for (;;) {
      const bool reaches_limit = !(bracket.high < threshold_);
      const BandPass pass =
          reaches_limit
              ? PassBand<Read, true>(row_, bracket.low, 0.0f, threshold_, weigher, list_.x)
              : PassBand<Read, false>(row_, bracket.low, bracket.high, threshold_, weigher,
                                      list_.x);
      task_.CountPass();
      const uint64_t above = mass_ + pass.mass_above;
      const uint64_t target = TargetOf(pass.mass);
      if (above >= target) {  // the boundary lies above the band
        bracket = {bracket.high, semantics::Infinity()};
        continue;
      }
      list_.size = static_cast<int64_t>(pass.size);
      const Measured band = task_.memory.Weighed(weigher);
      if (above + MeasureAll<true>(band).amount < target) {  // it lies below
        bracket = {kLowestFinite, bracket.low};
        continue;
      }
      const MassBoundary boundary =
          FindMassBoundary(task_.memory, band, max_, scale_, target - above, rule_);
      const Counts counts = CountIn<Read>(row_, boundary.at.value);
      task_.CountPass();
      return SetOf(max_, boundary.at.value, counts.at_least - counts.equal, boundary.ties_kept);
    }
  }

  // Values around the place where the elements below the threshold pass this share of their mass.
  Bracket BandFor(double share, const Weigher& weigher) {
    constexpr size_t kVectors = 256;
    RowSample<kVectors> sample;
    sample.template Take<Read>(row_);
    if (sample.size == 0) return {kLowestFinite, semantics::Infinity()};
    const F32 d;
    HWY_ALIGN float weights[kVectors * HWY_MAX_BYTES / sizeof(float)];
    const auto limit = hn::Set(d, threshold_);
    for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
      const auto x = hn::Load(d, sample.x + i);
      const auto below = hn::IfThenElse(hn::Lt(x, limit), x, hn::Set(d, -semantics::Infinity()));
      hn::Store(below, d, sample.x + i);
      hn::Store(weigher(below), d, weights + i);
    }
    return SampledBracket({sample.x, weights, sample.size}, share);
  }

  RowTask& task_;
  const semantics::Row& row_;
  CandidateList& list_;
  float scale_;
  Ties rule_;
  float threshold_ = 0.0f;
  bool has_nan_ = false;
  float max_ = 0.0f;
  uint64_t mass_ = 0;  // of the candidates
  Measured weighed_ = {};
};

// No filter: every finite token, known by its Cut alone.
template <class Read>
SelectedSet SelectAll(RowTask& task) {
  const semantics::Row& row = task.row;
  Extremes found = FindExtremes<Read, true>(row);
  task.CountPass();
  const RowStatus status = StatusOf(row, found.has_nan, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (found.max == -semantics::Infinity()) return WithStatus(RowStatus::kEmptySupport);
  int64_t finite = row.size;
  if (found.min == -semantics::Infinity()) {
    found.min = LowestFinite<Read>(row);
    finite = CountIn<Read>(row, kLowestFinite).at_least;
    task.CountPass();
    task.CountPass();
  }
  const int64_t ties = CountIn<Read>(row, found.min).equal;
  task.CountPass();
  return SetOf(found.max, found.min, finite - ties, ties);
}

template <class Read>
SelectedSet SelectRow(const RowRequest& request, std::byte* workspace) {
  const semantics::Row& row = request.row;
  const SelectParams& params = request.params;
  RowTask task{row, params, RowMemory::In(workspace, row.size), request.wants_tokens};
  if (!semantics::AreValid(params, request.limits) || !semantics::IsValid(request.key)) {
    return WithStatus(RowStatus::kBadParam);
  }
  const Profile& profile = params.profile;
  const bool has_top_k = params.top_k > 0 && params.top_k < row.size;
  const bool has_top_p = params.top_p < 1.0f;
  const bool is_covered = params.min_p == 0.0f && params.top_n_sigma == 0.0f &&
                          params.typical_p == 1.0f && params.xtc_probability == 0.0f &&
                          !(has_top_p && profile.top_p_boundary == TopPBoundary::kInclusive) &&
                          !(has_top_k && has_top_p && profile.top_k_top_p == TopKTopP::kJoint);
  if (request.wants_masses || !(is_covered || semantics::IsGreedy(params))) {
    return SelectByDefinition(request, task.memory.tokens);
  }
  SelectedSet selected = semantics::IsGreedy(params) ? SelectGreedy<Read>(task)
                         : has_top_k                 ? SelectTopK<Read>(task)
                         : has_top_p                 ? TopPSearch<Read>(task).Run()
                                                     : SelectAll<Read>(task);
  selected.work = {SelectAlgorithm::kCertified, task.elements_read};
  return selected;
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
