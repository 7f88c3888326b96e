// Vector passes over one row: each reads the row once, at fp32, bf16 or fp16.
//
// Included once per SIMD target (hwy/foreach_target.h). Nothing here decides a result: the rules
// that use these sums and masks are those of semantics/.
#if defined(SLUICE_SELECT_ROW_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_ROW_PASS_INL_H_
#undef SLUICE_SELECT_ROW_PASS_INL_H_
#else
#define SLUICE_SELECT_ROW_PASS_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// A group is four vectors; a pass says for each lane of a group whether any of its four elements is
// a candidate. One small mask a group keeps the pass free of branches at 1.07 reads of the row.
constexpr size_t kVectorsInGroup = 4;
#if HWY_TARGET == HWY_AVX2
using GroupMask = uint8_t;  // one bit a lane
#else
using GroupMask = uint16_t;
#endif

inline size_t GroupElements() { return kVectorsInGroup * hn::Lanes(F32()); }

// Sums that only serve to find NaN: a NaN in the row makes the sum NaN. The sum of infinities of
// both signs is NaN as well, so NaN means "look closer", and anything else that there is none.
struct PassSums {
  float checksum = 0.0f;
  float tail = 0.0f;  // see ApproximateTailPass
};

// The elements behind the last whole group take part in the check alone.
inline float SumOfUngrouped(const semantics::Row& row) {
  float sum = 0.0f;
  const int64_t group = static_cast<int64_t>(GroupElements());
  for (int64_t i = row.size / group * group; i < row.size; ++i) sum += row[i];
  return sum;
}

inline float Total(VecF32 a, VecF32 b, VecF32 c, VecF32 e) {
  return hn::GetLane(hn::SumOfLanes(F32(), hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// masks: one per whole group. Elements behind the last whole group are left to the caller.
template <class Read>
float ThresholdPass(const semantics::Row& row, float threshold, GroupMask* masks) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto least = hn::Set(d, threshold);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const size_t end = static_cast<size_t>(row.size) / GroupElements() * GroupElements();
  for (size_t i = 0; i < end; i += GroupElements(), ++masks) {
    const auto x0 = Read::At(row.data, i);
    const auto x1 = Read::At(row.data, i + lanes);
    const auto x2 = Read::At(row.data, i + 2 * lanes);
    const auto x3 = Read::At(row.data, i + 3 * lanes);
    sum0 = hn::Add(sum0, x0);
    sum1 = hn::Add(sum1, x1);
    sum2 = hn::Add(sum2, x2);
    sum3 = hn::Add(sum3, x3);
    const auto largest = hn::Max(hn::Max(x0, x1), hn::Max(x2, x3));
    hn::StoreMaskBits(d, hn::Ge(largest, least), reinterpret_cast<uint8_t*>(masks));
  }
  return Total(sum0, sum1, sum2, sum3) + SumOfUngrouped(row);
}

struct MaxFinding {
  float max;
  float checksum;
  size_t chunk;  // first element of the first chunk that holds the maximum
};
constexpr size_t kMaxChunk = 4096;

template <class Read>
MaxFinding MaxPass(const semantics::Row& row) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  MaxFinding found{-semantics::Infinity(), 0.0f, 0};
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  float rest = 0.0f;
  for (size_t chunk = 0; chunk < size; chunk += kMaxChunk) {
    const size_t end = HWY_MIN(chunk + kMaxChunk, size);
    auto max0 = hn::Set(d, -semantics::Infinity()), max1 = max0, max2 = max0, max3 = max0;
    size_t i = chunk;
    for (; i + GroupElements() <= end; i += GroupElements()) {
      const auto x0 = Read::At(row.data, i);
      const auto x1 = Read::At(row.data, i + lanes);
      const auto x2 = Read::At(row.data, i + 2 * lanes);
      const auto x3 = Read::At(row.data, i + 3 * lanes);
      max0 = hn::Max(max0, x0);
      max1 = hn::Max(max1, x1);
      max2 = hn::Max(max2, x2);
      max3 = hn::Max(max3, x3);
      sum0 = hn::Add(sum0, x0);
      sum1 = hn::Add(sum1, x1);
      sum2 = hn::Add(sum2, x2);
      sum3 = hn::Add(sum3, x3);
    }
    float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(max0, max1), hn::Max(max2, max3))));
    for (; i < end; ++i) {
      const float x = row[static_cast<int64_t>(i)];
      rest += x;
      max = x > max ? x : max;
    }
    if (max > found.max) {
      found.max = max;
      found.chunk = chunk;
    }
  }
  found.checksum = Total(sum0, sum1, sum2, sum3) + rest;
  return found;
}

// The first element equal to a value that the row holds from `begin` on.
template <class Read>
size_t FindFrom(const semantics::Row& row, size_t begin, float value) {
  const F32 d;
  const auto wanted = hn::Set(d, value);
  const size_t size = static_cast<size_t>(row.size);
  size_t i = begin;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(Read::At(row.data, i), wanted));
    if (lane >= 0) return i + static_cast<size_t>(lane);
  }
  while (Read::One(row.data, i) != value) ++i;
  return i;
}

template <class Read>
int64_t CountAtLeast(const semantics::Row& row, float value) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const size_t lanes = hn::Lanes(d);
  const auto least = hn::Set(d, value);
  auto count0 = hn::Zero(di), count1 = count0, count2 = count0, count3 = count0;  // negated
  size_t i = 0;
  const size_t size = static_cast<size_t>(row.size);
  for (; i + GroupElements() <= size; i += GroupElements()) {
    auto hit = [&](size_t at) HWY_ATTR {
      return hn::BitCast(di, hn::VecFromMask(d, hn::Ge(Read::At(row.data, at), least)));
    };
    count0 = hn::Add(count0, hit(i));
    count1 = hn::Add(count1, hit(i + lanes));
    count2 = hn::Add(count2, hit(i + 2 * lanes));
    count3 = hn::Add(count3, hit(i + 3 * lanes));
  }
  int64_t count = -int64_t{
      hn::GetLane(hn::SumOfLanes(di, hn::Add(hn::Add(count0, count1), hn::Add(count2, count3))))};
  for (; i < size; ++i) count += row[static_cast<int64_t>(i)] >= value ? 1 : 0;
  return count;
}

// 2^(e / lanes) in fixed places of a float's bits, so that adding an integer's bits shifted next to
// them gives 2^(n + e / lanes): a table exp of one fma, one permute, one shift and one add. The
// permute looks at the lowest bits of its index only.
struct ExpTable {
  HWY_ALIGN float value[HWY_MAX_BYTES / sizeof(float)];
};

// In octaves: a threshold further from 0 would make the offset of the fma too coarse.
constexpr float kLargestOffset = 500.0f;

// What can be wrong in ApproximateTailPass, relative to the sum. Of each power: the table and one
// step of its Taylor series leave (ln 2 / (2 lanes))^2 / 2, and 1e-4 covers the roundings of the
// argument (2^-24 of 100 octaves, and of the offset, see kLargestOffset), of the entries and of the
// product. Of the sum: 2^-24 for each of the additions that a lane has seen, and eight more to add
// the lanes up.
struct TailError {
  double power;
  double candidate;
  double sum;
};

inline TailError ApproximationError(int64_t size) {
  const double half_step = 0.5 * 0.6931472 / static_cast<double>(hn::Lanes(F32()));
  const double additions = static_cast<double>(size) / static_cast<double>(GroupElements()) + 8.0;
  return {half_step * half_step * 0.51 + 1e-4, 0x1p-24 * kLargestOffset, additions * 0x1p-24};
}

// Beside the masks, the sum of 2^((x - threshold) * scale) over the row, where what reaches the
// threshold counts 1. |threshold * scale| is at most kLargestOffset.
template <class Read>
PassSums ApproximateTailPass(const semantics::Row& row, float threshold, float scale,
                             GroupMask* masks) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const size_t lanes = hn::Lanes(d);
  const int shift_bits = lanes == 16 ? 4 : 3;

  // z = round(t * lanes) as the low bits of a float of exponent 23: its lowest bits choose the
  // table entry, the rest is the integer part of t.
  ExpTable table;
  for (size_t e = 0; e < lanes; ++e) {
    const float power =
        static_cast<float>(std::exp2(static_cast<double>(e) / static_cast<double>(lanes)));
    const uint32_t index_bits = static_cast<uint32_t>(e) << (23 - shift_bits);
    table.value[e] = semantics::FloatOf(semantics::BitsOf(power) - index_bits);
  }
  const auto powers = hn::Load(d, table.value);
  const float steps = scale * static_cast<float>(lanes);
  const auto slope = hn::Set(d, steps);
  const auto offset = hn::Set(d, -threshold * steps);
  const auto least = hn::Set(d, threshold);
  const auto lowest = hn::Set(d, -100.0f * static_cast<float>(lanes));
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto step_log = hn::Set(d, 0.6931472f / static_cast<float>(lanes));

  auto power_of = [&](VecF32 x) HWY_ATTR {
    const auto t = hn::Max(hn::Min(hn::MulAdd(x, slope, offset), hn::Zero(d)), lowest);
    const auto rounded = hn::Add(t, magic);
    const auto z = hn::BitCast(di, rounded);
    const auto fraction = hn::TableLookupLanes(powers, hn::IndicesFromVec(d, z));
    const auto exponent = lanes == 16 ? hn::ShiftLeft<19>(z) : hn::ShiftLeft<20>(z);
    const auto power = hn::BitCast(d, hn::Add(hn::BitCast(di, fraction), exponent));
    const auto rest = hn::Sub(t, hn::Sub(rounded, magic));  // of a step, in [-1/2, 1/2]
    return hn::MulAdd(hn::Mul(power, step_log), rest, power);
  };

  PassSums sums;
  auto check0 = hn::Zero(d), check1 = check0;
  auto tail0 = check0, tail1 = check0, tail2 = check0, tail3 = check0;
  const size_t end = static_cast<size_t>(row.size) / GroupElements() * GroupElements();
  for (size_t i = 0; i < end; i += GroupElements(), ++masks) {
    const auto x0 = Read::At(row.data, i);
    const auto x1 = Read::At(row.data, i + lanes);
    const auto x2 = Read::At(row.data, i + 2 * lanes);
    const auto x3 = Read::At(row.data, i + 3 * lanes);
    check0 = hn::Add(check0, hn::Add(x0, x1));
    check1 = hn::Add(check1, hn::Add(x2, x3));
    const auto largest = hn::Max(hn::Max(x0, x1), hn::Max(x2, x3));
    hn::StoreMaskBits(d, hn::Ge(largest, least), reinterpret_cast<uint8_t*>(masks));
    tail0 = hn::Add(tail0, power_of(x0));
    tail1 = hn::Add(tail1, power_of(x1));
    tail2 = hn::Add(tail2, power_of(x2));
    tail3 = hn::Add(tail3, power_of(x3));
  }
  sums.checksum = Total(check0, check1, hn::Zero(d), hn::Zero(d)) + SumOfUngrouped(row);
  sums.tail = Total(tail0, tail1, tail2, tail3);
  return sums;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
