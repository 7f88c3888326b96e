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
// here covers goes to the list (select_list-inl.h).
#include <algorithm>
#include <cmath>

#include "select/policy.h"
#include "select/select_table.h"
#include "semantics/select_row.h"

#if defined(SLUICE_SELECT_SELECT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_SELECT_ROW_INL_H_
#undef SLUICE_SELECT_SELECT_ROW_INL_H_
#else
#define SLUICE_SELECT_SELECT_ROW_INL_H_
#endif

#include "select/band-inl.h"
#include "select/guess-inl.h"
#include "select/narrow-inl.h"
#include "select/power_sum-inl.h"
#include "select/select_list-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The memory of one row's selection, carved from a worker's workspace.
struct RowMemory {
  CandidateList list;
  float* weights;   // of the list
  LaneMask* masks;  // one a group; of either kind, in the same memory
  ElementMask* element_masks;
  float* scratch_x;
  float* scratch_weights;

  static constexpr size_t kMaxLanes = 16;
  // Room for four vectors more, and a multiple of a vector, so that every array is aligned.
  static size_t Padded(int64_t vocab) {
    return (static_cast<size_t>(vocab) + 5 * kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  }
  static size_t Bytes(int64_t vocab) {
    return Padded(vocab) * 5 * sizeof(float) + (Padded(vocab) / 64 + 1) * sizeof(uint64_t);
  }
  static RowMemory In(std::byte* memory, int64_t vocab) {
    const size_t padded = Padded(vocab);
    RowMemory row;
    row.scratch_x = reinterpret_cast<float*>(memory);
    row.scratch_weights = row.scratch_x + padded;
    row.list.x = row.scratch_weights + padded;
    row.list.ids = reinterpret_cast<int32_t*>(row.list.x + padded);
    row.list.size = 0;
    row.weights = reinterpret_cast<float*>(row.list.ids + padded);
    row.element_masks = reinterpret_cast<ElementMask*>(row.weights + padded);
    row.masks = reinterpret_cast<LaneMask*>(row.element_masks);
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
  SelectedSet selected = SetOf(max, boundary.value, boundary.above, ties_kept);
  if (!task.wants_tokens) return selected;
  CandidateList& list = task.memory.list;
  KeepAtLeast(list, boundary.value);
  if (ties_kept < boundary.ties) TrimTies(list, boundary.value, ties_kept);
  selected.kept = {list.x, list.ids, list.size};
  return selected;
}

template <class Read, class Mask>
void CollectCandidates(RowTask& task, float threshold, const Mask* masks) {
  RowMemory& memory = task.memory;
  uint32_t* marked = reinterpret_cast<uint32_t*>(memory.scratch_x);
  if (task.wants_tokens) {
    Collect<Read, Mask, true>(task.row, threshold, masks, marked, memory.list);
  } else {
    Collect<Read, Mask, false>(task.row, threshold, masks, marked, memory.list);
  }
  task.elements_read += memory.list.size;
}

// One pass over the row for the candidates from a threshold on, of which about `expected` are
// expected. Returns whether there is a NaN.
template <class Read>
bool FindCandidates(RowTask& task, float threshold, float expected) {
  const RowMemory& memory = task.memory;
  // From some share on most groups hold one, and asking each group again costs more than a bit an
  // element.
  const bool are_many = expected * 160.0f > static_cast<float>(task.row.size);
  bool has_nan = false;
  if (are_many) {
    has_nan = ThresholdPass<Read>(task.row, threshold, memory.element_masks);
    CollectCandidates<Read>(task, threshold, memory.element_masks);
  } else {
    has_nan = ThresholdPass<Read>(task.row, threshold, memory.masks);
    CollectCandidates<Read>(task, threshold, memory.masks);
  }
  task.CountPass();
  return has_nan;
}

template <class Read>
SelectedSet SelectGreedy(RowTask& task) {
  const Extremes found = FindExtremes<Read, false>(task.row, nullptr);
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

inline MassBoundary FindMassBoundary(const RowMemory& memory, const Measured& weighed,
                                     uint64_t mass, float max, float scale, uint64_t target,
                                     Ties rule) {
  MassBoundary found;
  found.at =
      NarrowToBoundary<true>(weighed, mass, target, memory.scratch_x, memory.scratch_weights);
  const uint64_t weight = semantics::Weight(found.at.value, max, scale);
  found.ties_kept = found.at.ties;
  if (rule == Ties::kLowestId && weight > 0) {
    found.ties_kept = semantics::TopPTiesKept(found.at.mass_above, weight, found.at.ties, target);
  }
  found.mass = found.at.mass_above + static_cast<uint64_t>(found.ties_kept) * weight;
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
  const float aim = 1.3f * static_cast<float>(k) + 60.0f;
  float threshold = GaussianThreshold(sample, row.size, aim);
  bool has_nan = FindCandidates<Read>(task, threshold, aim);
  for (const bool is_last : {false, true}) {
    if (list.size >= k || has_nan || threshold == kLowestFinite) break;
    const float next = is_last ? kLowestFinite : SampledThreshold(sample, row.size, k);
    if (!(next < threshold)) continue;
    threshold = next;
    has_nan = FindCandidates<Read>(task, threshold, static_cast<float>(row.size));
  }
  const float max = MaxOf(list);
  const RowStatus status = StatusOf(row, has_nan, max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (list.size == 0) return WithStatus(RowStatus::kEmptySupport);

  const uint64_t kept = static_cast<uint64_t>(std::min(k, list.size));
  const Boundary boundary =
      NarrowToBoundary<false>(memory.Counted(), static_cast<uint64_t>(list.size), kept,
                              memory.scratch_x, memory.scratch_weights);
  const int64_t ties_kept = task.params.profile.ties == Ties::kAll
                                ? boundary.ties
                                : static_cast<int64_t>(kept) - boundary.above;
  const SelectedSet by_count = SetOfCandidates(task, max, boundary, ties_kept);
  if (task.params.top_p == 1.0f) return by_count;

  if (!task.wants_tokens) {
    KeepAtLeast(list, boundary.value);
    if (ties_kept < boundary.ties) TrimTies(list, boundary.value, ties_kept);
  }
  const float scale = semantics::ScalesOf(task.params).filter;
  const Measured weighed = memory.Weighed(Weigher(max, scale));
  const uint64_t mass = MeasureAll<true>(weighed).amount;
  const MassBoundary by_mass =
      FindMassBoundary(memory, weighed, mass, max, scale,
                       semantics::TargetMass(task.params.top_p, mass), task.params.profile.ties);
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
    MassInterval rest = GuessAndSum<kFirstDegree>();
    if (list_.size == 0 && !has_nan_ && threshold_ != kLowestFinite) {
      // Nothing is as far above the body as a Gaussian's outliers. The sample itself reaches this:
      threshold_ = SampledThreshold(sample, row_.size, static_cast<int64_t>(kAim));
      rest = GuessAndSum<kFirstDegree>();
    }
    const RowStatus status = StatusOf(row_, has_nan_, max_);
    if (status != RowStatus::kOk) return WithStatus(status);
    if (list_.size == 0) return WithStatus(RowStatus::kEmptySupport);

    SelectedSet selected;
    if (Decide(rest, selected)) return selected;
    if (TargetOf(rest.least) > mass_) {
      const Bracket band = GuessBand(rest);
      if (band.high < threshold_) return SelectWide(band);
      // Few enough elements to collect them all, down to a lower threshold.
      threshold_ = band.low;
      rest = GuessAndSum<kSecondDegree>();
    } else if (CanSumPowers(threshold_)) {
      rest = SumRest();
    }
    if (Decide(rest, selected)) return selected;
    const uint64_t exact = MassBelow<Read>(row_, threshold_, Weigher(max_, scale_));
    task_.CountPass();
    if (Decide({exact, exact}, selected)) return selected;
    return SelectWide(GuessBand({exact, exact}));
  }

 private:
  static constexpr float kAim = 384.0f;
  static constexpr int kFirstDegree = 1;
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
    return {0, static_cast<uint64_t>(row_.size - list_.size) * semantics::kFullWeight};
  }

  // Candidates from the threshold on, weighed, and an interval for the mass below it.
  template <int kDegree>
  MassInterval GuessAndSum() {
    const bool sums = threshold_ != kLowestFinite && CanSumPowers(threshold_);
    double sum = 0.0;
    const PowerTerms<kDegree> terms(sums ? threshold_ : 0.0f, sums ? scale_ : 1.0f);
    if (sums) {
      const PowerSum powers = SumAndCollect(terms);
      sum = powers.sum;
      has_nan_ = powers.has_nan;
    } else {
      has_nan_ = FindCandidates<Read>(task_, threshold_, static_cast<float>(row_.size));
    }
    max_ = MaxOf(list_);
    if (list_.size == 0 || has_nan_ || max_ == semantics::Infinity()) return Unknown();
    weighed_ = task_.memory.Weighed(Weigher(max_, scale_));
    mass_ = MeasureAll<true>(weighed_).amount;
    if (threshold_ == kLowestFinite) return {0, 0};
    const double range = (static_cast<double>(max_) - terms.reference()) * scale_;
    if (!sums || (kDegree == 1 && range > PowerTerms<kDegree>::kLargestTerm)) return Unknown();
    return IntervalOf(sum, terms);
  }

  // The first threshold leaves few candidates, a lower one many.
  template <int kDegree>
  PowerSum SumAndCollect(const PowerTerms<kDegree>& terms) {
    const RowMemory& memory = task_.memory;
    PowerSum powers;
    if constexpr (kDegree == kFirstDegree) {
      powers = SumPowers<Read>(row_, terms, threshold_, memory.masks);
      CollectCandidates<Read>(task_, threshold_, memory.masks);
    } else {
      powers = SumPowers<Read>(row_, terms, threshold_, memory.element_masks);
      CollectCandidates<Read>(task_, threshold_, memory.element_masks);
    }
    task_.CountPass();
    return powers;
  }

  // Sums the whole row once more, better.
  MassInterval SumRest() {
    const PowerTerms<kSecondDegree> terms(threshold_, scale_);
    task_.CountPass();
    return IntervalOf(SumPowers<Read, LaneMask>(row_, terms, threshold_, nullptr).sum, terms);
  }

  // The sum holds the candidates as well: their terms are taken off, and what the fp32 sums lost of
  // them stays in doubt.
  template <int kDegree>
  MassInterval IntervalOf(double sum, const PowerTerms<kDegree>& terms) const {
    const double of_candidates = SumPowers(list_.x, static_cast<size_t>(list_.size), terms);
    const double rest = std::max(0.0, sum - of_candidates);
    const double doubt =
        PowerTerms<kDegree>::RelativeError() * rest + kPowerSumError * (sum + of_candidates);
    const double unit = 0x1p40 * std::exp2((terms.reference() - static_cast<double>(max_)) *
                                           static_cast<double>(scale_));
    // Each weight is rounded down by less than one unit; a masked token's term is below 2^-60.
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
        FindMassBoundary(task_.memory, weighed_, mass_, max_, scale_, low_target, rule_);
    if (low_target != high_target && boundary.mass < high_target) return false;
    selected = SetOfCandidates(task_, max_, boundary.at, boundary.ties_kept);
    return true;
  }

  // The boundary lies below the threshold, among too many tokens to collect them all: guess a band
  // around it, certify it with the exact mass above it, and search the band alone. Only the Cut
  // comes of it.
  SelectedSet SelectWide(Bracket bracket) {
    const int64_t candidates = list_.size;
    const Weigher weigher(max_, scale_);
    for (;;) {
      const bool reaches_limit = !(bracket.high < threshold_);
      const BandPass pass = reaches_limit ? PassBand<Read, true>(row_, bracket.low, 0.0f,
                                                                 threshold_, weigher, list_.x)
                                          : PassBand<Read, false>(row_, bracket.low, bracket.high,
                                                                  threshold_, weigher, list_.x);
      task_.CountPass();
      const uint64_t above = mass_ + pass.mass_above;
      const uint64_t target = TargetOf(pass.mass);
      if (above >= target) {  // the boundary lies above the band
        // Not above the threshold, or the candidates would have decided; should it ever, all tokens
        // do.
        if (reaches_limit) return SelectAmongAll();
        bracket = {bracket.high, semantics::Infinity()};
        continue;
      }
      list_.size = static_cast<int64_t>(pass.size);
      const Measured band = task_.memory.Weighed(weigher);
      const uint64_t mass = MeasureAll<true>(band).amount;
      if (above + mass < target) {  // it lies below
        bracket = {kLowestFinite, bracket.low};
        continue;
      }
      const MassBoundary boundary =
          FindMassBoundary(task_.memory, band, mass, max_, scale_, target - above, rule_);
      const int64_t tokens_above = candidates + static_cast<int64_t>(pass.above);
      return SetOf(max_, boundary.at.value, tokens_above + boundary.at.above, boundary.ties_kept);
    }
  }

  SelectedSet SelectAmongAll() {
    threshold_ = kLowestFinite;
    SelectedSet selected;
    Decide(GuessAndSum<kFirstDegree>(), selected);
    return selected;
  }

  // Values around the boundary below the threshold; up to +inf, when there are few between them and
  // the threshold.
  Bracket GuessBand(const MassInterval& guess) {
    const double rest = 0.5 * (static_cast<double>(guess.least) + static_cast<double>(guess.most));
    const double missing =
        static_cast<double>(TargetOf(static_cast<uint64_t>(rest))) - static_cast<double>(mass_);
    const double share = std::clamp(missing / std::max(rest, 1.0), 0.0, 1.0);
    constexpr size_t kVectors = 128;
    RowSample<kVectors> sample;
    sample.template Take<Read>(row_);
    if (sample.size == 0) return {kLowestFinite, semantics::Infinity()};
    const F32 d;
    const Weigher weigher(max_, scale_);
    HWY_ALIGN float weights[kVectors * HWY_MAX_BYTES / sizeof(float)];
    const auto limit = hn::Set(d, threshold_);
    for (size_t i = 0; i < sample.size; i += hn::Lanes(d)) {
      const auto x = hn::Load(d, sample.x + i);
      const auto below = hn::IfThenElse(hn::Lt(x, limit), x, hn::Set(d, -semantics::Infinity()));
      hn::Store(below, d, sample.x + i);
      hn::Store(weigher(below), d, weights + i);
    }
    const SampledShares shares({sample.x, weights, sample.size});
    const float low = shares.Low(share);
    const Extent down_to_low = MeasureFrom<false, true>({sample.x, nullptr, sample.size}, low);
    const bool are_few = down_to_low.count < static_cast<int64_t>(sample.size / 16);
    return {low, are_few ? semantics::Infinity() : shares.High(share)};
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
  float* chunk_minima = task.memory.scratch_x;
  const Extremes found = FindExtremes<Read, true>(row, chunk_minima);
  task.CountPass();
  const RowStatus status = StatusOf(row, found.has_nan, found.max);
  if (status != RowStatus::kOk) return WithStatus(status);
  if (found.max == -semantics::Infinity()) return WithStatus(RowStatus::kEmptySupport);
  if (found.min > -semantics::Infinity()) {
    const int64_t ties = CountMinima<Read>(row, found.min, chunk_minima);
    return SetOf(found.max, found.min, row.size - ties, ties);
  }
  const float lowest = LowestFinite<Read>(row);
  const Counts counts = CountIn<Read>(row, lowest);
  task.CountPass();
  task.CountPass();
  return SetOf(found.max, lowest, counts.at_least - counts.equal, counts.equal);
}

// What selects where the certified ways do not.
constexpr SelectAlgorithm kForTheRest = SelectAlgorithm::kPivot;

#if HWY_TARGET == HWY_AVX2
constexpr Backend kThisBackend = Backend::kCpuAvx2;
#else
constexpr Backend kThisBackend = Backend::kCpuAvx512;
#endif

// Whether there is a certified way to what is asked for.
inline bool IsCovered(const RowRequest& request) {
  const SelectParams& params = request.params;
  const Profile& profile = params.profile;
  const bool has_top_k = params.top_k > 0 && params.top_k < request.row.size;
  const bool has_top_p = params.top_p < 1.0f;
  if (request.wants_masses) return false;
  return semantics::IsGreedy(params) ||
         (params.min_p == 0.0f && params.top_n_sigma == 0.0f && params.typical_p == 1.0f &&
          params.xtc_probability == 0.0f &&
          !(has_top_p && profile.top_p_boundary == TopPBoundary::kInclusive) &&
          !(has_top_k && has_top_p && profile.top_k_top_p == TopKTopP::kJoint));
}

// The algorithm that runs: the policy table says which for kAuto.
inline SelectAlgorithm AlgorithmFor(const RowRequest& request) {
  SelectAlgorithm algorithm = request.algorithm;
  if (algorithm == SelectAlgorithm::kAuto) {
    // One pass is all that these two take.
    const SelectKind kind = KindOf(request.params, request.row.size);
    const bool is_one_pass =
        semantics::IsGreedy(request.params) || (kind == SelectKind::kOther && IsCovered(request));
    algorithm = is_one_pass ? SelectAlgorithm::kCertified
                            : ChooseAlgorithm(kThisBackend, kind, request.row.size);
  }
  return algorithm == SelectAlgorithm::kCertified && !IsCovered(request) ? kForTheRest : algorithm;
}

template <class Read>
SelectedSet SelectRow(const RowRequest& request, std::byte* workspace) {
  const semantics::Row& row = request.row;
  const SelectParams& params = request.params;
  if (!semantics::AreValid(params, request.limits) || !semantics::IsValid(request.key)) {
    return WithStatus(RowStatus::kBadParam);
  }
  const SelectAlgorithm algorithm = AlgorithmFor(request);
  if (algorithm != SelectAlgorithm::kCertified) {
    return SelectFromList<Read>(request, algorithm, workspace);
  }
  RowTask task{row, params, RowMemory::In(workspace, row.size), request.wants_tokens};
  const bool has_top_k = params.top_k > 0 && params.top_k < row.size;
  SelectedSet selected = semantics::IsGreedy(params) ? SelectGreedy<Read>(task)
                         : has_top_k                 ? SelectTopK<Read>(task)
                         : params.top_p < 1.0f       ? TopPSearch<Read>(task).Run()
                                                     : SelectAll<Read>(task);
  selected.work = {SelectAlgorithm::kCertified, task.elements_read};
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
