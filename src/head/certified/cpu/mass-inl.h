// MassBounds with vectors.
#include "head/certified/score_table.h"

#if defined(SLUICE_HEAD_CERTIFIED_CPU_MASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_HEAD_CERTIFIED_CPU_MASS_INL_H_
#undef SLUICE_HEAD_CERTIFIED_CPU_MASS_INL_H_
#else
#define SLUICE_HEAD_CERTIFIED_CPU_MASS_INL_H_
#endif

#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

inline MassBounds SumMassBounds(const Intervals& intervals, int64_t size,
                                const MassQuestion& question) {
  const F32 d;
  const auto x = hn::Set(d, question.x);
  const auto max = hn::Set(d, question.max);
  const Weigher weigh(question.max, question.scale);
  WeightSum least_above, most_above, least_rest, most_rest;
  MassBounds around;
  const auto total = [&]() HWY_ATTR {
    around.above.least += least_above.Total();
    around.above.most += most_above.Total();
    around.rest.least += least_rest.Total();
    around.rest.most += most_rest.Total();
  };
  size_t vectors = 0;
  for (int64_t v = 0; v < size; v += static_cast<int64_t>(hn::Lanes(d))) {
    if (vectors++ == WeightSum::kMostVectors) {
      total();
      vectors = 1;
    }
    const auto score = hn::LoadU(d, intervals.scores + v);
    const auto width = hn::LoadU(d, intervals.widths + v);
    const auto lower = hn::Min(hn::Sub(score, width), max);
    const auto upper = hn::Min(hn::Add(score, width), max);
    const auto of_lower = weigh(lower);
    const auto of_upper = weigh(upper);
    const auto is_below = hn::Lt(upper, x);
    most_rest.Add(hn::IfThenElseZero(is_below, of_upper));
    least_rest.Add(hn::IfThenElseZero(is_below, of_lower));
    if (hn::AllTrue(d, is_below)) continue;
    const auto is_tie = hn::And(hn::Eq(width, hn::Zero(d)), hn::Eq(score, x));
    const auto is_above = hn::Gt(lower, x);
    const auto may_be_above = hn::Not(hn::Or(is_below, is_tie));
    least_above.Add(hn::IfThenElseZero(is_above, of_lower));
    most_above.Add(hn::IfThenElseZero(may_be_above, of_upper));
    around.ties += static_cast<int64_t>(hn::CountTrue(d, is_tie));
    around.tokens.least += hn::CountTrue(d, is_above);
    around.tokens.most += hn::CountTrue(d, may_be_above);
  }
  total();
  AddOpen(question, around);
  return around;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
