// Sums of powers of two over a row, by a table: approximate, with a proven bound.
//
//   degree 1: the table and one Taylor term; decides most rows. (The table alone saves a quarter of
//             the time, but at an error of 1.1 % it decides 13 % of the rows with a nucleus of 30
//             to 80 tokens, instead of 90 %.)
//   degree 2: two Taylor terms, and the same term for all values from a limit on, so that they do
//             not drown the rest; what it leaves open is decided by exact weights
#include <cmath>

#if defined(SLUICE_SELECT_CPU_POWER_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_POWER_SUM_INL_H_
#undef SLUICE_SELECT_CPU_POWER_SUM_INL_H_
#else
#define SLUICE_SELECT_CPU_POWER_SUM_INL_H_
#endif

#include "select/cpu/row_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// 2^(e / kEntries) in fixed places of a float's bits, so that adding an integer's bits shifted next
// to them gives 2^(n + e / kEntries). A lookup sees the lowest bits of its index only.
class PowerTable {
 public:
#if HWY_TARGET == HWY_AVX2
  static constexpr int kIndexBits = 3;
#else
  static constexpr int kIndexBits = 5;
#endif
  static constexpr size_t kEntries = size_t{1} << kIndexBits;

  HWY_INLINE PowerTable() {
    HWY_ALIGN float value[kEntries];
    for (size_t e = 0; e < kEntries; ++e) {
      const double power = std::exp2(static_cast<double>(e) / static_cast<double>(kEntries));
      const uint32_t index_bits = static_cast<uint32_t>(e) << (23 - kIndexBits);
      value[e] = semantics::FloatOf(semantics::BitsOf(static_cast<float>(power)) - index_bits);
    }
    const F32 d;
    low_ = hn::Load(d, value);
    high_ = hn::Load(d, value + (kEntries - hn::Lanes(d)));
  }

  // 2^(z / kEntries) for the integer z in the low bits of a float of exponent 23.
  HWY_INLINE VecF32 Power(VecF32 z) const {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    const auto index = hn::BitCast(di, z);
#if HWY_TARGET == HWY_AVX2
    const VecF32 fraction{_mm256_permutevar8x32_ps(low_.raw, index.raw)};
#else
    const VecF32 fraction{_mm512_permutex2var_ps(low_.raw, index.raw, high_.raw)};
#endif
    return hn::BitCast(d,
                       hn::Add(hn::BitCast(di, fraction), hn::ShiftLeft<23 - kIndexBits>(index)));
  }

 private:
  VecF32 low_;
  VecF32 high_;
};

// The terms 2^((x - reference) * scale), where the reference lies on the table's grid: as
// integers, exponents and offset are exact, and the only rounding of an argument is that to the
// grid, which the Taylor terms make up for.
template <int kDegree>
class PowerTerms {
 public:
  // A place near `wanted`, where the power is 1. |`wanted` * scale| is at most kLargestOffset. From
  // `wanted` on, all terms of degree 2 are equal.
  HWY_INLINE PowerTerms(float wanted, float scale) {
    const F32 d;
    const float steps = scale * static_cast<float>(PowerTable::kEntries);
    const float offset = std::round(-wanted * steps);
    reference_ = -static_cast<double>(offset) / static_cast<double>(steps);
    slope_ = hn::Set(d, steps);
    offset_ = hn::Set(d, kMagic + offset);
    // 100 octaves below, a term counts nothing, and further down its bits would mean nothing.
    const float range = 100.0f * static_cast<float>(PowerTable::kEntries);
    highest_x_ = hn::Set(d, wanted);
    lowest_x_ = hn::Set(d, (-offset - range) / steps);
    const float step_log = 0.6931472f / static_cast<float>(PowerTable::kEntries);
    first_ = hn::Set(d, step_log);
    second_ = hn::Set(d, 0.5f * step_log * step_log);
  }

  HWY_INLINE VecF32 AddTo(VecF32 sum, VecF32 x) const {
    const auto one = hn::Set(F32(), 1.0f);
    auto clamped = hn::Max(x, lowest_x_);
    if constexpr (kDegree == 2) clamped = hn::Min(clamped, highest_x_);
    const auto z = hn::MulAdd(clamped, slope_, offset_);
    const auto rest = hn::MulAdd(clamped, slope_, hn::Sub(offset_, z));  // in [-1/2, 1/2] steps
    const auto slope = kDegree == 1 ? first_ : hn::MulAdd(rest, second_, first_);
    return hn::MulAdd(table_.Power(z), hn::MulAdd(rest, slope, one), sum);
  }

  double reference() const { return reference_; }

  // How far a term may be from the weight of the same x, relative to the term: what the series
  // leaves out, and 5e-6 for roundings: of the weight's exponent (2^-23 of 40 octaves: 3.4e-6), of
  // the weight's own polynomial (1.7e-7), of the entries and the products (four times 2^-24).
  static double RelativeError() {
    const double half_step = 0.5 * 0.6931472 / static_cast<double>(PowerTable::kEntries);
    const double left_out =
        kDegree == 1 ? half_step * half_step * 0.52 : half_step * half_step * half_step * 0.175;
    return left_out + 5e-6;
  }

  // In octaves: 2^17 steps of the 2^22 up to which the fma rounds to whole steps.
  static constexpr float kLargestOffset = 4000.0f;
  // How many octaves above the reference a term may lie; one further up means nothing.
  static constexpr float kLargestTerm = 100.0f;

 private:
  static constexpr float kMagic = 0x1.8p23f;

  PowerTable table_;
  VecF32 slope_;
  VecF32 offset_;
  VecF32 highest_x_;
  VecF32 lowest_x_;
  VecF32 first_;
  VecF32 second_;
  double reference_;
};

struct PowerSum {
  double sum;
  bool has_nan;
};

// Blocks keep the error of the fp32 sums small: an addition each for the groups of one.
constexpr size_t kGroupsInPowerBlock = 16;
constexpr double kPowerSumError = (kGroupsInPowerBlock + 1) * 0x1p-24;

inline double SumOf(VecF32 a, VecF32 b, VecF32 c, VecF32 e) {
  const hn::Repartition<double, F32> dd;
  const hn::Half<F32> half;
  auto widened = [&](VecF32 x) HWY_ATTR {
    return hn::Add(hn::PromoteTo(dd, hn::LowerHalf(half, x)),
                   hn::PromoteTo(dd, hn::UpperHalf(half, x)));
  };
  return hn::GetLane(hn::SumOfLanes(
      dd, hn::Add(hn::Add(widened(a), widened(b)), hn::Add(widened(c), widened(e)))));
}

// The sum over the row. Unless masks is null, the candidates are marked and NaN is watched for.
template <class Read, class Mask, int kDegree>
PowerSum SumPowers(const semantics::Row& row, const PowerTerms<kDegree>& terms_in, float threshold,
                   Mask* masks) {
  const F32 d;
  const PowerTerms<kDegree> terms = terms_in;  // where nothing that is stored can change it
  Marker<Mask> marker(threshold, masks);
  PowerSum result{0.0, false};
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  ForEachGroup<Read>(
      row, Padding::kMasked, kGroupsInPowerBlock,
      [&](size_t group, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
        if (masks != nullptr) marker.See(group, x0, x1, x2, x3);
        sum0 = terms.AddTo(sum0, x0);
        sum1 = terms.AddTo(sum1, x1);
        sum2 = terms.AddTo(sum2, x2);
        sum3 = terms.AddTo(sum3, x3);
      },
      [&]() HWY_ATTR {
        result.sum += SumOf(sum0, sum1, sum2, sum3);
        sum0 = sum1 = sum2 = sum3 = hn::Zero(d);
      });
  result.has_nan = marker.HasSeenNan();
  return result;
}

// The same terms over a list of any length.
template <int kDegree>
double SumPowers(const float* x, size_t size, const PowerTerms<kDegree>& terms) {
  const F32 d;
  const auto zero = hn::Zero(d);
  double sum = 0.0;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {  // padded with -inf
    sum += SumOf(terms.AddTo(zero, hn::LoadU(d, x + i)), zero, zero, zero);
  }
  return sum;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
