// The elements of a row that reach a threshold, and exact questions about them.
#include <bit>
#include <cstring>

#include "select/select_table.h"

#if defined(SLUICE_SELECT_CANDIDATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CANDIDATES_INL_H_
#undef SLUICE_SELECT_CANDIDATES_INL_H_
#else
#define SLUICE_SELECT_CANDIDATES_INL_H_
#endif

#include "select/weigh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Values and ids side by side, in order of neither, padded behind `size` to whole vectors with
// -inf. The memory holds a whole row: there is no bound to overflow.
struct CandidateList {
  float* x;
  int32_t* ids;
  int64_t size;

  void Pad() const {
    for (size_t i = 0; i < hn::Lanes(F32()); ++i) {
      x[static_cast<size_t>(size) + i] = -semantics::Infinity();
    }
  }
};

// Collects what a pass has marked, and what lies behind its last group. masks are padded with zeros
// to whole words.
template <class Read>
void Collect(const semantics::Row& row, float threshold, GroupMask* masks, CandidateList& list) {
  const size_t lanes = hn::Lanes(F32());
  const size_t groups = static_cast<size_t>(row.size) / GroupElements();
  size_t count = 0;
  // Each of the four elements of a marked lane is stored, and counted if it is one: no branch to
  // mispredict.
  auto append = [&](size_t i) HWY_ATTR {
    const float x = Read::One(row.data, i);
    list.x[count] = x;
    list.ids[count] = static_cast<int32_t>(i);
    count += x >= threshold ? 1 : 0;
  };
  constexpr size_t kGroupsInWord = sizeof(uint64_t) / sizeof(GroupMask);
  for (size_t g = groups; g % kGroupsInWord != 0; ++g) masks[g] = 0;
  for (size_t g = 0; g < groups; g += kGroupsInWord) {
    uint64_t bits;
    std::memcpy(&bits, masks + g, sizeof bits);
    for (; bits != 0; bits &= bits - 1) {
      const size_t bit = static_cast<size_t>(std::countr_zero(bits));
      const size_t first = (g + bit / lanes) * GroupElements() + bit % lanes;
      for (size_t v = 0; v < kVectorsInGroup; ++v) append(first + v * lanes);
    }
  }
  for (size_t i = groups * GroupElements(); i < static_cast<size_t>(row.size); ++i) append(i);
  list.size = static_cast<int64_t>(count);
  list.Pad();
}

// value is above -inf, the padding.
inline int64_t CountAtLeast(const CandidateList& list, float value) {
  const F32 d;
  size_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    count += hn::CountTrue(d, hn::Ge(hn::LoadU(d, list.x + i), hn::Set(d, value)));
  }
  return static_cast<int64_t>(count);
}

inline float MaxOf(const CandidateList& list) {
  const F32 d;
  auto max = hn::Set(d, -semantics::Infinity());
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    max = hn::Max(max, hn::LoadU(d, list.x + i));
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

inline float MinOf(const CandidateList& list) {
  const F32 d;
  const auto infinity = hn::Set(d, semantics::Infinity());
  auto min = infinity;
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, list.x + i);
    min = hn::Min(min, hn::IfThenElse(hn::Eq(x, hn::Neg(infinity)), infinity, x));  // the padding
  }
  return hn::GetLane(hn::MinOfLanes(d, min));
}

inline int64_t CountEqual(const CandidateList& list, float value) {
  const F32 d;
  int64_t count = 0;
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    count +=
        static_cast<int64_t>(hn::CountTrue(d, hn::Eq(hn::LoadU(d, list.x + i), hn::Set(d, value))));
  }
  return count;
}

// The exact mass of the candidates that reach `value`.
inline uint64_t MassAtLeast(const CandidateList& list, const float* weights, float value) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const hn::Half<F32> half;
  const auto least = hn::Set(d, value);
  const size_t size = static_cast<size_t>(list.size);
  uint64_t mass = 0;
  constexpr size_t kBlockVectors = 1024;  // as in MassBelow
  size_t i = 0;
  while (i < size) {
    const size_t end = HWY_MIN(size, i + kBlockVectors * hn::Lanes(d));
    auto low = hn::Zero(dd), high = hn::Zero(dd);
    for (; i < end; i += hn::Lanes(d)) {
      const auto w =
          hn::IfThenElseZero(hn::Ge(hn::LoadU(d, list.x + i), least), hn::LoadU(d, weights + i));
      low = hn::Add(low, hn::PromoteTo(dd, hn::LowerHalf(half, w)));
      high = hn::Add(high, hn::PromoteTo(dd, hn::UpperHalf(half, w)));
    }
    HWY_ALIGN double sums[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(hn::Add(low, high), dd, sums);
    for (size_t lane = 0; lane < hn::Lanes(dd); ++lane) mass += static_cast<uint64_t>(sums[lane]);
  }
  return mass;
}

// The candidates' weights, as fp32 integers; -inf (the padding) weighs nothing.
inline void Weigh(const CandidateList& list, float max, float scale, float* weights) {
  const F32 d;
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    hn::StoreU(Weights(hn::LoadU(d, list.x + i), hn::Set(d, max), hn::Set(d, scale)), d,
               weights + i);
  }
}

// The largest value among (low, high] for which `holds`, which is true up to some value and false
// above, by bisection over order-preserving keys; `low` is one for which it holds.
template <typename Predicate>
float LargestValue(float low, float high, Predicate holds) {
  uint32_t low_key = semantics::OrderKey(low);
  uint32_t high_key = semantics::OrderKey(high);
  while (low_key < high_key) {
    const uint32_t middle = high_key - (high_key - low_key) / 2;
    if (holds(semantics::ValueOfKey(middle))) {
      low_key = middle;
    } else {
      high_key = middle - 1;
    }
  }
  return semantics::ValueOfKey(low_key);
}

// Moves the candidates that reach `value` to the front and forgets the rest.
inline void KeepAtLeast(CandidateList& list, float value) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto least = hn::Set(d, value);
  size_t kept = 0;
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    // A store reaches no further than what has been loaded, so this works in place.
    const auto x = hn::LoadU(d, list.x + i);
    const auto ids = hn::LoadU(di, list.ids + i);
    const auto mask = hn::Ge(x, least);  // never the padding
    hn::CompressBlendedStore(ids, hn::RebindMask(di, mask), di, list.ids + kept);
    kept += hn::CompressBlendedStore(x, mask, d, list.x + kept);
  }
  list.size = static_cast<int64_t>(kept);
  list.Pad();
}

// One pass over the row: the exact mass of the elements from `high` on, and, as the list's values,
// the elements in [low, high). Ids are not collected.
template <class Read>
uint64_t MassAboveBand(const semantics::Row& row, float low, float high, float max, float scale,
                       CandidateList& list) {
  const F32 d;
  const hn::Repartition<double, F32> dd;
  const hn::Half<F32> half;
  const size_t lanes = hn::Lanes(d);
  const auto vlow = hn::Set(d, low), vhigh = hn::Set(d, high);
  const auto vmax = hn::Set(d, max), vscale = hn::Set(d, scale);
  constexpr size_t kBlockVectors = 1024;  // as in MassBelow
  const size_t size = static_cast<size_t>(row.size);
  uint64_t mass = 0;
  size_t count = 0;
  size_t i = 0;
  while (i + lanes <= size) {
    const size_t vectors = HWY_MIN((size - i) / lanes, kBlockVectors);
    auto sum0 = hn::Zero(dd), sum1 = sum0;
    for (size_t v = 0; v < vectors; ++v, i += lanes) {
      const auto x = Read::At(row.data, i);
      const auto w = hn::IfThenElseZero(hn::Ge(x, vhigh), Weights(x, vmax, vscale));
      sum0 = hn::Add(sum0, hn::PromoteTo(dd, hn::LowerHalf(half, w)));
      sum1 = hn::Add(sum1, hn::PromoteTo(dd, hn::UpperHalf(half, w)));
      const auto in_band = hn::And(hn::Ge(x, vlow), hn::Lt(x, vhigh));
      count += hn::CompressStore(x, in_band, d, list.x + count);
    }
    HWY_ALIGN double sums[HWY_MAX_BYTES / sizeof(double)];
    hn::Store(hn::Add(sum0, sum1), dd, sums);
    for (size_t lane = 0; lane < hn::Lanes(dd); ++lane) mass += static_cast<uint64_t>(sums[lane]);
  }
  for (; i < size; ++i) {
    const float x = row[static_cast<int64_t>(i)];
    if (x >= high) mass += semantics::Weight(x, max, scale);
    if (x >= low && x < high) list.x[count++] = x;
  }
  list.size = static_cast<int64_t>(count);
  list.Pad();
  return mass;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
