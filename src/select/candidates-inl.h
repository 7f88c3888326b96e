// The elements of a row that reach a threshold, and exact questions about them.
#include <bit>
#include <cstring>

#include "select/select_table.h"
#include "sluice/tensor.hpp"

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
    hn::StoreU(hn::Set(F32(), -semantics::Infinity()), F32(), x + static_cast<size_t>(size));
  }
};

// Collects what a pass has marked. Without kIds the list's ids mean nothing.
template <class Read, bool kIds>
class Collector {
 public:
  HWY_INLINE Collector(const semantics::Row& row, float threshold, const CandidateList& list)
      : row_(row), threshold_(threshold), x_(list.x), ids_(list.ids) {}

  // Stores the element in any case and counts it if it is a candidate: no branch to mispredict.
  HWY_INLINE void Append(size_t i) {
    const float x = Read::One(row_.data, i);
    x_[count_] = x;
    if constexpr (kIds) ids_[count_] = static_cast<int32_t>(i);
    count_ += x >= threshold_ ? 1 : 0;
  }
  HWY_INLINE void AppendGroup(size_t group) {
    const F32 d;
    const hn::RebindToSigned<F32> di;
    for (size_t v = 0; v < kVectorsInGroup; ++v) {
      const size_t i = group * GroupElements() + v * hn::Lanes(d);
      const auto x = Read::At(static_cast<const typename Read::Element*>(row_.data) + i, 0);
      const auto mask = hn::Ge(x, hn::Set(d, threshold_));
      hn::StoreU(hn::Compress(x, mask), d, x_ + count_);
      if constexpr (kIds) {
        const auto ids = hn::Iota(di, static_cast<int32_t>(i));
        hn::StoreU(hn::Compress(ids, hn::RebindMask(di, mask)), di, ids_ + count_);
      }
      count_ += hn::CountTrue(d, mask);
    }
  }
  size_t count() const { return count_; }

 private:
  const semantics::Row& row_;
  float threshold_;
  float* x_;
  int32_t* ids_;
  size_t count_ = 0;
};

// masks: one a group, padded with zeros to whole words. Where few lanes of a word are marked, their
// elements are appended one by one; else by vectors.
template <class Read, bool kIds>
void Collect(const semantics::Row& row, float threshold, GroupMask* masks, CandidateList& list) {
  const size_t lanes = hn::Lanes(F32());
  const size_t groups = static_cast<size_t>(row.size) / GroupElements();
  Collector<Read, kIds> collector(row, threshold, list);
  constexpr size_t kGroupsInWord = sizeof(uint64_t) / sizeof(GroupMask);
  constexpr size_t kBitsInMask = 64 / kGroupsInWord;
  constexpr int kFewLanes = 8;
  for (size_t g = groups; g % kGroupsInWord != 0; ++g) masks[g] = 0;
  for (size_t g = 0; g < groups; g += kGroupsInWord) {
    uint64_t bits;
    std::memcpy(&bits, masks + g, sizeof bits);
    if (std::popcount(bits) <= kFewLanes) {
      for (; bits != 0; bits &= bits - 1) {
        const size_t bit = static_cast<size_t>(std::countr_zero(bits));
        const size_t first = (g + bit / kBitsInMask) * GroupElements() + bit % kBitsInMask;
        for (size_t v = 0; v < kVectorsInGroup; ++v) collector.Append(first + v * lanes);
      }
    } else {
      for (size_t k = 0; k < kGroupsInWord && g + k < groups; ++k) collector.AppendGroup(g + k);
    }
  }
  const size_t size = static_cast<size_t>(row.size);
  for (size_t i = groups * GroupElements(); i < size; ++i) collector.Append(i);
  list.size = static_cast<int64_t>(collector.count());
  list.Pad();
}

inline float MaxOf(const CandidateList& list) {
  const F32 d;
  auto max = hn::Set(d, -semantics::Infinity());
  for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
    max = hn::Max(max, hn::LoadU(d, list.x + i));
  }
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// Of size floats, padded with -inf, which does not count.
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
    hn::StoreU(hn::Compress(ids, hn::RebindMask(di, mask)), di, list.ids + kept);
    hn::StoreU(hn::Compress(x, mask), d, list.x + kept);
    kept += hn::CountTrue(d, mask);
  }
  list.size = static_cast<int64_t>(kept);
  list.Pad();
}

// Keeps of the candidates equal to `value`, the least of the list, the first `kept` by id.
inline void TrimTies(CandidateList& list, float value, int64_t kept) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const size_t size = static_cast<size_t>(list.size);
  const auto tie = hn::Set(d, value);
  const auto ties_until = [&](int32_t id) HWY_ATTR {
    int64_t count = 0;
    for (size_t i = 0; i < size; i += hn::Lanes(d)) {
      const auto is_tie = hn::RebindMask(di, hn::Eq(hn::LoadU(d, list.x + i), tie));
      const auto is_early = hn::Lt(hn::LoadU(di, list.ids + i), hn::Set(di, id + 1));
      count += static_cast<int64_t>(hn::CountTrue(di, hn::And(is_tie, is_early)));
    }
    return count;
  };
  int32_t low = -1;  // the last id that is kept, by bisection
  int32_t high = static_cast<int32_t>(kMaxVocab);
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (ties_until(middle) >= kept ? high : low) = middle;
  }
  size_t n = 0;
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, list.x + i);
    const auto ids = hn::LoadU(di, list.ids + i);
    const auto is_early = hn::RebindMask(d, hn::Lt(ids, hn::Set(di, high + 1)));
    const auto mask = hn::Or(hn::Gt(x, tie), hn::And(hn::Eq(x, tie), is_early));
    hn::StoreU(hn::Compress(ids, hn::RebindMask(di, mask)), di, list.ids + n);
    hn::StoreU(hn::Compress(x, mask), d, list.x + n);
    n += hn::CountTrue(d, mask);
  }
  list.size = static_cast<int64_t>(n);
  list.Pad();
}

// Forgets `excess` of the candidates equal to `value`, whichever.
inline void TrimAnyTies(CandidateList& list, float value, int64_t excess) {
  int64_t n = 0;
  for (int64_t i = 0; i < list.size; ++i) {
    const bool goes = excess > 0 && list.x[i] == value;
    excess -= goes ? 1 : 0;
    list.x[n] = list.x[i];
    n += goes ? 0 : 1;
  }
  list.size = n;
  list.Pad();
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
