// Status and maximum of a row in one pass, as semantics::ScanRow.
#include "semantics/row_status.h"

#if defined(SLUICE_SUPPORT_ROW_STATUS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SUPPORT_ROW_STATUS_INL_H_
#undef SLUICE_SUPPORT_ROW_STATUS_INL_H_
#else
#define SLUICE_SUPPORT_ROW_STATUS_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The first element that equals `max`, which the row holds: a zero has a sign, and the definition
// takes the first one's.
template <class Read>
float SignedMax(const semantics::Row& row, float max) {
  if (max != 0.0f) return max;
  const F32 d;
  size_t i = 0;
  while (i + hn::Lanes(d) <= static_cast<size_t>(row.size) &&
         hn::AllFalse(d, hn::Eq(Read::At(row.data, i), hn::Zero(d)))) {
    i += hn::Lanes(d);
  }
  while (Read::One(row.data, i) != 0.0f) ++i;
  return Read::One(row.data, i);
}

// The status of a row without NaN, from its largest value.
template <class Read>
semantics::StatusAndMax StatusOfMax(const semantics::Row& row, float max) {
  if (max == semantics::Infinity()) return {RowStatus::kPosInfInput, 0.0f};
  if (max == -semantics::Infinity()) return {RowStatus::kEmptySupport, 0.0f};
  return {RowStatus::kOk, SignedMax<Read>(row, max)};
}

template <class Read>
semantics::StatusAndMax ExamineRow(const semantics::Row& row) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  auto max0 = hn::Set(d, -semantics::Infinity()), max1 = max0, max2 = max0, max3 = max0;
  // A NaN may hide a larger value from Max, but then the maximum means nothing.
  auto nan0 = hn::IsNaN(max0), nan1 = nan0;
  size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    const auto x0 = Read::At(row.data, i);
    const auto x1 = Read::At(row.data, i + lanes);
    const auto x2 = Read::At(row.data, i + 2 * lanes);
    const auto x3 = Read::At(row.data, i + 3 * lanes);
    max0 = hn::Max(max0, x0);
    max1 = hn::Max(max1, x1);
    max2 = hn::Max(max2, x2);
    max3 = hn::Max(max3, x3);
    nan0 = hn::Or(nan0, hn::Or(hn::IsNaN(x0), hn::IsNaN(x1)));
    nan1 = hn::Or(nan1, hn::Or(hn::IsNaN(x2), hn::IsNaN(x3)));
  }
  bool has_nan = !hn::AllFalse(d, hn::Or(nan0, nan1));
  float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(max0, max1), hn::Max(max2, max3))));
  for (; i < size; ++i) {
    const float x = Read::One(row.data, i);
    has_nan = has_nan || semantics::IsNan(x);
    max = x > max ? x : max;
  }
  return has_nan ? semantics::StatusAndMax{RowStatus::kNanInput, 0.0f}
                 : StatusOfMax<Read>(row, max);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
