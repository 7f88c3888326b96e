// The elements of a row that reach a threshold, and exact questions about them.
#include <bit>

#include "select/select_table.h"

#if defined(SLUICE_SELECT_CPU_CANDIDATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_CANDIDATES_INL_H_
#undef SLUICE_SELECT_CPU_CANDIDATES_INL_H_
#else
#define SLUICE_SELECT_CPU_CANDIDATES_INL_H_
#endif

#include "select/cpu/row_pass-inl.h"
#include "support/compress-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Values and ids side by side, by ascending id, padded from `size` to whole vectors with -inf. The
// memory holds a whole row: there is no bound to overflow.
struct CandidateList {
  float* x;
  int32_t* ids;
  int64_t size;

  void Pad() const {
    hn::StoreU(hn::Set(F32(), -semantics::Infinity()), F32(), x + static_cast<size_t>(size));
  }
};

// Appends the candidates of one group after the other, by ascending id. Without kIds the list's ids
// mean nothing.
template <class Read, class Mask, bool kIds>
class Collector {
 public:
  HWY_INLINE Collector(const semantics::Row& row, float threshold, const Mask* masks,
                       const CandidateList& list)
      : data_(static_cast<const typename Read::Element*>(row.data)),
        threshold_(threshold),
        masks_(masks),
        x_(list.x),
        ids_(list.ids) {}

  // Takes kAtOnce elements without a test of how many there are: most groups have no more, and a
  // branch that cannot be predicted costs more than storing too much.
  template <size_t kAtOnce>
  HWY_INLINE void Append(size_t group) {
    const size_t first = group * GroupElements();
    ElementMask bits = BitsOf(group);
    const size_t count = static_cast<size_t>(std::popcount(bits));
    if (count >= kMany) {
      size_ = AppendMany(data_ + first, first, threshold_, x_ + size_, ids_ + size_, size_);
      return;
    }
    for (size_t k = 0; k < kAtOnce; ++k) bits = Take(first, bits, size_ + k);
    if (count > kAtOnce) {
      for (size_t at = size_ + kAtOnce; bits != 0; ++at) bits = Take(first, bits, at);
    }
    size_ += count;
  }

  // After the last whole group.
  HWY_INLINE void AppendOne(size_t i) {
    const float x = Read::One(data_, i);
    x_[size_] = x;
    if constexpr (kIds) ids_[size_] = static_cast<int32_t>(i);
    size_ += x >= threshold_ ? 1 : 0;
  }

  size_t size() const { return size_; }

 private:
  static constexpr size_t kMany = 12;

  HWY_INLINE ElementMask BitsOf(size_t group) const {
    if constexpr (sizeof(Mask) == sizeof(ElementMask)) return masks_[group];
    const F32 d;
    const size_t lanes = hn::Lanes(d);
    const auto* x = data_ + group * GroupElements();
    return MarksOf(ElementMask(), hn::Set(d, threshold_), Read::At(x, 0), Read::At(x, lanes),
                   Read::At(x, 2 * lanes), Read::At(x, 3 * lanes));
  }

  // The lowest of the bits becomes element `at`; when there is none, what is stored does not count.
  HWY_INLINE ElementMask Take(size_t first, ElementMask bits, size_t at) {
    const size_t i = first + (static_cast<size_t>(std::countr_zero(bits)) & (GroupElements() - 1));
    x_[at] = Read::One(data_, i);
    if constexpr (kIds) ids_[at] = static_cast<int32_t>(i);
    return bits & (bits - 1);
  }

  // By vectors: for groups that are full of candidates. Not a call of a member, which would keep
  // the members of the caller in memory.
  static HWY_NOINLINE size_t AppendMany(const typename Read::Element* data, size_t first,
                                        float threshold, float* to_x, int32_t* to_ids,
                                        size_t size) {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    for (size_t v = 0; v < kVectorsInGroup; ++v) {
      const size_t i = v * hn::Lanes(d);
      const auto x = Read::At(data + i, 0);
      const auto mask = hn::Ge(x, hn::Set(d, threshold));
      const size_t count = hn::CountTrue(d, mask);
      CompressTo(d, x, mask, to_x);
      to_x += count;
      if constexpr (kIds) {
        const auto ids = hn::Iota(di, static_cast<int32_t>(first + i));
        CompressTo(di, ids, hn::RebindMask(di, mask), to_ids);
        to_ids += count;
      }
      size += count;
    }
    return size;
  }

  const typename Read::Element* data_;
  float threshold_;
  const Mask* masks_;
  float* x_;
  int32_t* ids_;
  size_t size_ = 0;
};

// The indices of the groups with marks. masks and marked have room for a vector more.
template <class Mask>
size_t ListMarked(const Mask* masks, size_t groups, uint32_t* marked) {
  const hn::RebindToUnsigned<F32> du;
  size_t count = 0;
  size_t g = 0;
  if constexpr (sizeof(Mask) < sizeof(uint32_t)) {
    const hn::Rebind<Mask, decltype(du)> dm;
    for (; g + hn::Lanes(du) <= groups; g += hn::Lanes(du)) {
      const auto has_marks = hn::Ne(hn::PromoteTo(du, hn::LoadU(dm, masks + g)), hn::Zero(du));
      const auto indices = hn::Iota(du, static_cast<uint32_t>(g));
      count += CompressTo(du, indices, has_marks, marked + count);
    }
  }
  for (; g < groups; ++g) {
    marked[count] = static_cast<uint32_t>(g);
    count += masks[g] != 0 ? 1 : 0;
  }
  return count;
}

template <class Read, class Mask, bool kIds>
void Collect(const semantics::Row& row, float threshold, const Mask* masks, uint32_t* marked,
             CandidateList& list) {
  const size_t groups = static_cast<size_t>(row.size) / GroupElements();
  const size_t count = ListMarked(masks, groups, marked);
  Collector<Read, Mask, kIds> collector(row, threshold, masks, list);
  if (count <= groups / 2) {
    for (size_t k = 0; k < count; ++k) collector.template Append<2>(marked[k]);
  } else {
    for (size_t k = 0; k < count; ++k) collector.template Append<4>(marked[k]);
  }
  const size_t size = static_cast<size_t>(row.size);
  for (size_t i = groups * GroupElements(); i < size; ++i) collector.AppendOne(i);
  list.size = static_cast<int64_t>(collector.size());
  list.Pad();
}

// The maximum of `size` floats, padded with -inf.
inline float MaxOf(const float* x, size_t size) {
  const F32 d;
  auto max = hn::Set(d, -semantics::Infinity());
  for (size_t i = 0; i < size; i += hn::Lanes(d)) max = hn::Max(max, hn::LoadU(d, x + i));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

inline float MaxOf(const CandidateList& list) {
  return MaxOf(list.x, static_cast<size_t>(list.size));
}

// The minimum of `size` floats, padded with -inf, which does not count.
inline float MinOf(const float* x, size_t size) {
  const F32 d;
  const auto infinity = hn::Set(d, semantics::Infinity());
  auto min = infinity;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    min = hn::Min(min, hn::IfThenElse(hn::Eq(v, hn::Neg(infinity)), infinity, v));
  }
  return hn::GetLane(hn::MinOfLanes(d, min));
}

// The weights of a list; -inf (the padding) weighs nothing.
inline void Weigh(const float* x, size_t size, const Weigher& weigher, float* weights) {
  const F32 d;
  const Weigher weigh = weigher;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    hn::StoreU(weigh(hn::LoadU(d, x + i)), d, weights + i);
  }
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
    CompressTo(di, ids, hn::RebindMask(di, mask), list.ids + kept);
    kept += CompressTo(d, x, mask, list.x + kept);
  }
  list.size = static_cast<int64_t>(kept);
  list.Pad();
}

// Keeps of the candidates equal to `value` the first `kept`, and all others.
inline void TrimTies(CandidateList& list, float value, int64_t kept) {
  int64_t n = 0;
  for (int64_t i = 0; i < list.size; ++i) {
    const bool is_tie = list.x[i] == value;
    const bool goes = is_tie && kept == 0;
    kept -= is_tie && !goes ? 1 : 0;
    list.x[n] = list.x[i];
    list.ids[n] = list.ids[i];
    n += goes ? 0 : 1;
  }
  list.size = n;
  list.Pad();
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
