// Vector passes over one row: each reads the row once, at fp32, bf16 or fp16.
//
// Included once per SIMD target (hwy/foreach_target.h). Nothing here decides a result: the rules
// that use these sums and masks are those of semantics/.
#include "semantics/order.h"

#if defined(SLUICE_SELECT_CPU_ROW_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_ROW_PASS_INL_H_
#undef SLUICE_SELECT_CPU_ROW_PASS_INL_H_
#else
#define SLUICE_SELECT_CPU_ROW_PASS_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

constexpr float kLowestFinite = -0x1.fffffep+127f;

// A group is four vectors, one after the other in the row.
constexpr size_t kVectorsInGroup = 4;
inline size_t GroupElements() { return kVectorsInGroup * hn::Lanes(F32()); }
inline size_t GroupsOf(const semantics::Row& row) {
  return (static_cast<size_t>(row.size) + GroupElements() - 1) / GroupElements();
}

// The padding after the row's last element, to make a whole group of its end.
enum class Padding : uint8_t {
  kMasked,  // -inf
  kLast,    // the last element, again and again
};

// body(group, x0, x1, x2, x3) for all groups of the row, the padded end last; between() after every
// `groups_in_block` of them and after the last one, and after the end.
template <class Read, class Body, class Between>
HWY_INLINE void ForEachGroup(const semantics::Row& row, Padding padding, size_t groups_in_block,
                             const Body& body, const Between& between) {
  using Element = typename Read::Element;
  HWY_ALIGN Element end[kVectorsInGroup * HWY_MAX_BYTES / sizeof(float)];
  const size_t lanes = hn::Lanes(F32());
  const size_t size = static_cast<size_t>(row.size);
  const size_t groups = size / GroupElements();
  const Element* data = static_cast<const Element*>(row.data);
  for (size_t g = 0; g < GroupsOf(row);) {
    size_t block_end = HWY_MIN(groups, g + groups_in_block);
    const Element* x = data + g * GroupElements();
    if (g == groups) {
      const size_t rest = size - g * GroupElements();
      const Element pad = padding == Padding::kLast ? data[size - 1] : Read::kMasked;
      for (size_t i = 0; i < GroupElements(); ++i) end[i] = i < rest ? x[i] : pad;
      x = end;
      block_end = g + 1;
    }
    for (; g < block_end; ++g, x += GroupElements()) {
      const auto x0 = Read::At(x, 0);
      const auto x1 = Read::At(x, lanes);
      const auto x2 = Read::At(x, 2 * lanes);
      const auto x3 = Read::At(x, 3 * lanes);
      body(g, x0, x1, x2, x3);
    }
    between();
  }
}

template <class Read, class Body>
HWY_INLINE void ForEachGroup(const semantics::Row& row, const Body& body) {
  ForEachGroup<Read>(row, Padding::kMasked, ~size_t{0} / 2, body, [] {});
}

// Whether any element that it saw was NaN, for half an instruction a vector.
class NanWatch {
 public:
#if HWY_TARGET == HWY_AVX2
  HWY_INLINE NanWatch() : unordered_(_mm256_setzero_ps()) {}
  HWY_INLINE void See(VecF32 a, VecF32 b) {
    unordered_ = _mm256_or_ps(unordered_, _mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q));
  }
  HWY_INLINE bool HasSeen() const { return _mm256_movemask_ps(unordered_) != 0; }

 private:
  __m256 unordered_;
#else
  HWY_INLINE void See(VecF32 a, VecF32 b) {
    ordered_ = _mm512_mask_cmp_ps_mask(ordered_, a.raw, b.raw, _CMP_ORD_Q);
  }
  HWY_INLINE bool HasSeen() const { return ordered_ != 0xffff; }

 private:
  __mmask16 ordered_ = 0xffff;
#endif
};

// What a pass leaves about a group where few elements reach the threshold: for each lane whether
// any of its four elements does. So small a mask costs the pass 0.1 reads of the row.
#if HWY_TARGET == HWY_AVX2
using LaneMask = uint8_t;
using ElementMask = uint32_t;
#else
using LaneMask = uint16_t;
using ElementMask = uint64_t;
#endif

HWY_INLINE LaneMask MarksOf(LaneMask, VecF32 least, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) {
  const auto largest = hn::Max(hn::Max(x0, x1), hn::Max(x2, x3));
#if HWY_TARGET == HWY_AVX2
  return static_cast<LaneMask>(
      _mm256_movemask_ps(_mm256_cmp_ps(largest.raw, least.raw, _CMP_GE_OQ)));
#else
  return _mm512_cmp_ps_mask(largest.raw, least.raw, _CMP_GE_OQ);
#endif
}

// And where many do: a bit for each element, the first one's lowest, for 0.4 reads of the row.
HWY_INLINE ElementMask MarksOf(ElementMask, VecF32 least, VecF32 x0, VecF32 x1, VecF32 x2,
                               VecF32 x3) {
#if HWY_TARGET == HWY_AVX2
  const auto bits = [&](VecF32 x) HWY_ATTR {
    const auto reaches = _mm256_cmp_ps(x.raw, least.raw, _CMP_GE_OQ);
    return static_cast<ElementMask>(_mm256_movemask_ps(reaches));
  };
  return bits(x0) | bits(x1) << 8 | bits(x2) << 16 | bits(x3) << 24;
#else
  const auto bits = [&](VecF32 x)
                        HWY_ATTR { return _mm512_cmp_ps_mask(x.raw, least.raw, _CMP_GE_OQ); };
  return _mm512_kunpackd(_mm512_kunpackw(bits(x3), bits(x2)), _mm512_kunpackw(bits(x1), bits(x0)));
#endif
}

// Marks, and watches for NaN, as part of any pass. masks: one a group.
template <class Mask>
class Marker {
 public:
  HWY_INLINE Marker(float threshold, Mask* masks)
      : least_(hn::Set(F32(), threshold)), masks_(masks) {}
  HWY_INLINE void See(size_t group, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) {
    even_.See(x0, x1);
    odd_.See(x2, x3);
    masks_[group] = MarksOf(Mask(), least_, x0, x1, x2, x3);
  }
  HWY_INLINE bool HasSeenNan() const { return even_.HasSeen() || odd_.HasSeen(); }

 private:
  VecF32 least_;
  Mask* masks_;
  NanWatch even_;
  NanWatch odd_;
};

// Returns whether there is a NaN.
template <class Read, class Mask>
bool ThresholdPass(const semantics::Row& row, float threshold, Mask* masks) {
  Marker<Mask> marker(threshold, masks);
  ForEachGroup<Read>(row, [&](size_t group, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3)
                              HWY_ATTR { marker.See(group, x0, x1, x2, x3); });
  return marker.HasSeenNan();
}

// Where the largest and the smallest value lie, -inf included. A chunk is small enough to be
// searched once more and large enough for its maximum to cost nothing.
constexpr size_t kGroupsInChunk = 64;
inline size_t ChunkElements() { return kGroupsInChunk * GroupElements(); }

struct Extremes {
  float max = -semantics::Infinity();
  float min = semantics::Infinity();
  size_t max_chunk = 0;  // the first element of the first chunk that holds the maximum
  bool has_nan = false;
};

// kMin: whether the minimum is looked for, and that of each chunk: chunk_minima has room for all of
// them and one more, for the end of the row.
template <class Read, bool kMin>
Extremes FindExtremes(const semantics::Row& row, float* chunk_minima) {
  const F32 d;
  const auto low = hn::Set(d, -semantics::Infinity());
  const auto high = hn::Set(d, semantics::Infinity());
  Extremes found;
  NanWatch even, odd;
  auto max0 = low, max1 = low, max2 = low, max3 = low;
  auto min0 = high, min1 = high;
  size_t chunk = 0;
  ForEachGroup<Read>(
      row, Padding::kLast, kGroupsInChunk,
      [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
        even.See(x0, x1);
        odd.See(x2, x3);
        max0 = hn::Max(max0, x0);
        max1 = hn::Max(max1, x1);
        max2 = hn::Max(max2, x2);
        max3 = hn::Max(max3, x3);
        if constexpr (kMin) {
          min0 = hn::Min(min0, hn::Min(x0, x1));
          min1 = hn::Min(min1, hn::Min(x2, x3));
        }
      },
      [&]() HWY_ATTR {
        const float max =
            hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(max0, max1), hn::Max(max2, max3))));
        if (max > found.max) {
          found.max = max;
          found.max_chunk = chunk * ChunkElements();
        }
        max0 = max1 = max2 = max3 = low;
        if constexpr (kMin) {
          const float min = hn::GetLane(hn::MinOfLanes(d, hn::Min(min0, min1)));
          found.min = min < found.min ? min : found.min;
          chunk_minima[chunk] = min;
          min0 = min1 = high;
        }
        ++chunk;
      });
  // The end of the row follows its last chunk, which may be a part of one.
  const size_t end = static_cast<size_t>(row.size) / GroupElements() * GroupElements();
  found.max_chunk = HWY_MIN(found.max_chunk, end);
  found.has_nan = even.HasSeen() || odd.HasSeen();
  return found;
}

// How many elements are equal to the minimum.
template <class Read>
int64_t CountMinima(const semantics::Row& row, float min, const float* chunk_minima) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  const size_t groups_end = size / GroupElements() * GroupElements();
  const auto* data = static_cast<const typename Read::Element*>(row.data);
  const auto wanted = hn::Set(d, min);
  size_t count = 0;
  for (size_t chunk = 0; chunk * ChunkElements() < groups_end; ++chunk) {
    if (chunk_minima[chunk] > min) continue;
    const size_t begin = chunk * ChunkElements();
    const size_t end = HWY_MIN(begin + ChunkElements(), groups_end);
    for (size_t i = begin; i < end; i += lanes) {
      count += hn::CountTrue(d, hn::Eq(Read::At(data + i, 0), wanted));
    }
  }
  for (size_t i = groups_end; i < size; ++i) count += Read::One(data, i) == min ? 1 : 0;
  return static_cast<int64_t>(count);
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

// How many elements reach a finite value; how many are equal to it.
struct Counts {
  int64_t at_least;
  int64_t equal;
};

template <class Read>
Counts CountIn(const semantics::Row& row, float value) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto least = hn::Set(d, value);
  auto at_least0 = hn::Zero(di), at_least1 = at_least0;  // negated
  auto equal0 = at_least0, equal1 = at_least0;
  const auto one_if = [&](auto mask) HWY_ATTR { return hn::BitCast(di, hn::VecFromMask(d, mask)); };
  ForEachGroup<Read>(row, [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
    at_least0 = hn::Add(at_least0, hn::Add(one_if(hn::Ge(x0, least)), one_if(hn::Ge(x1, least))));
    at_least1 = hn::Add(at_least1, hn::Add(one_if(hn::Ge(x2, least)), one_if(hn::Ge(x3, least))));
    equal0 = hn::Add(equal0, hn::Add(one_if(hn::Eq(x0, least)), one_if(hn::Eq(x1, least))));
    equal1 = hn::Add(equal1, hn::Add(one_if(hn::Eq(x2, least)), one_if(hn::Eq(x3, least))));
  });
  return {-int64_t{hn::GetLane(hn::SumOfLanes(di, hn::Add(at_least0, at_least1)))},
          -int64_t{hn::GetLane(hn::SumOfLanes(di, hn::Add(equal0, equal1)))}};
}

// The smallest value that is not masked, of a row that has one.
template <class Read>
float LowestFinite(const semantics::Row& row) {
  const F32 d;
  const auto high = hn::Set(d, semantics::Infinity());
  auto min = high;
  const auto finite = [&](VecF32 x) HWY_ATTR {
    return hn::IfThenElse(hn::Ge(x, hn::Set(d, kLowestFinite)), x, high);
  };
  ForEachGroup<Read>(row, [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
    min = hn::Min(min, hn::Min(hn::Min(finite(x0), finite(x1)), hn::Min(finite(x2), finite(x3))));
  });
  return hn::GetLane(hn::MinOfLanes(d, min));
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
