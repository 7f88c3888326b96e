// Top-p over a whole row: sum, certify, sum better, and look for a boundary far down.
#include <algorithm>
#include <cmath>

#if defined(SLUICE_SELECT_CPU_TOP_P_SEARCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_TOP_P_SEARCH_INL_H_
#undef SLUICE_SELECT_CPU_TOP_P_SEARCH_INL_H_
#else
#define SLUICE_SELECT_CPU_TOP_P_SEARCH_INL_H_
#endif

#include "select/cpu/band-inl.h"
#include "select/cpu/guess-inl.h"
#include "select/cpu/power_sum-inl.h"
#include "select/cpu/row_task-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

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

  // The bounds of the mass below the threshold when nothing was summed.
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

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
