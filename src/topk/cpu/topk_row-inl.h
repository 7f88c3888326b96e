// topk of one row with vectors: guess a threshold, count what reaches it, refine.
//
//   guess   the score at some rank of a sample, which leaves somewhat more than k
//   verify  one read marks and lists what reaches it; a list of k or more holds the answer
//   refine  where the k-th of the list falls, exactly; the ids above and the first ties stay
//
// Where many scores equal the guess, only the larger ones are listed, and the first ties are looked
// for from the start of the row. Lists have room for the whole row: no guess can overflow them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/rank_keys.h"
#include "topk/topk_table.h"

#if defined(SLUICE_TOPK_CPU_TOPK_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_TOPK_CPU_TOPK_ROW_INL_H_
#undef SLUICE_TOPK_CPU_TOPK_ROW_INL_H_
#else
#define SLUICE_TOPK_CPU_TOPK_ROW_INL_H_
#endif

#include "hwy/cache_control.h"
#include "select/cpu/row_task-inl.h"
#include "topk/cpu/score_sample-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <class D>
HWY_INLINE uint64_t LaneBitsOf(D d, hn::Mask<D> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

// The lowest `most` of the bits.
HWY_INLINE uint64_t LowestBits(uint64_t bits, int64_t most) {
  uint64_t rest = bits;
  for (; most > 0 && rest != 0; --most) rest &= rest - 1;
  return bits & ~rest;
}

// The ids of the first `most` elements that equal a value; how many there are. ids: room for a
// vector more.
template <class Read>
int64_t FirstEqual(const semantics::Row& row, float value, int64_t most, int32_t* ids) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  const auto wanted = hn::Set(d, value);
  int64_t found = 0;
  size_t i = 0;
  for (; i + lanes <= size && found < most; i += lanes) {
    const uint64_t equal = LaneBitsOf(d, hn::Eq(Read::At(row.data, i), wanted));
    if (equal == 0) continue;
    found += static_cast<int64_t>(
        CompressTo(di, hn::Iota(di, static_cast<int32_t>(i)), equal, ids + found));
  }
  for (; i < size && found < most; ++i) {
    ids[found] = static_cast<int32_t>(i);
    found += Read::One(row.data, i) == value ? 1 : 0;
  }
  return std::min(found, most);
}

// Moves the ids of the first `kept` of a list to the front: those of larger values than `value` and
// the first `ties` of those that equal it.
inline void KeepFirst(const CandidateList& list, float value, int64_t ties, int64_t kept) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto least = hn::Set(d, value);
  size_t to = 0;
  for (size_t i = 0; to < static_cast<size_t>(kept); i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, list.x + i);
    uint64_t keep = LaneBitsOf(d, hn::Ge(x, least));  // never the padding
    const uint64_t equal = LaneBitsOf(d, hn::Eq(x, least));
    const int64_t count = std::popcount(equal);
    if (count > ties) keep &= ~equal | LowestBits(equal, ties);
    ties -= std::min(count, ties);
    to += CompressTo(di, hn::LoadU(di, list.ids + i), keep, list.ids + to);
  }
}

// Ids of the answer, ascending, become the answer. keys, scratch: as many, when sorted.
template <class Read>
void PutAnswer(const TopkRequest& request, const int32_t* ids, int64_t count, uint64_t* keys,
               uint64_t* scratch) {
  const auto* data = request.row.data;
  if (request.sorted) {
    for (int64_t i = 0; i < count; ++i) {
      keys[i] = RankKey({Read::One(data, static_cast<size_t>(ids[i])), ids[i]});
    }
    const uint64_t* const sorted = SortRankKeys(keys, scratch, static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) request.indices[i] = IdOfRankKey(sorted[i]);
  } else {
    std::copy(ids, ids + count, request.indices);
  }
  std::fill(request.indices + count, request.indices + request.k, -1);
  if (request.values == nullptr) return;
  for (int64_t i = 0; i < count; ++i) {
    request.values[i] = Read::One(data, static_cast<size_t>(request.indices[i]));
  }
  std::fill(request.values + count, request.values + request.k, -semantics::Infinity());
}

// Appends what the bits of 64 neighbours mark: values and ids, by ascending id.
template <class Read>
class BitLister {
 public:
  HWY_INLINE BitLister(const semantics::Row& row, const CandidateList& list)
      : data_(static_cast<const typename Read::Element*>(row.data)), x_(list.x), ids_(list.ids) {}

  // Takes four at once without a test of how many there are: a branch that cannot be predicted
  // costs more than to store too much.
  HWY_INLINE void Append(size_t first, uint64_t bits) {
    if (bits == 0) return;
    const size_t count = static_cast<size_t>(std::popcount(bits));
    for (size_t taken = 0; taken < count; taken += kAtOnce) {
      for (size_t k = 0; k < kAtOnce; ++k) bits = Take(first, bits, size_ + taken + k);
    }
    size_ += count;
  }

  size_t size() const { return size_; }

 private:
  static constexpr size_t kAtOnce = 4;

  // When there is none left, what is stored does not count.
  HWY_INLINE uint64_t Take(size_t first, uint64_t bits, size_t at) {
    const size_t i = first + (static_cast<size_t>(std::countr_zero(bits)) & 63);
    x_[at] = Read::One(data_, i);
    ids_[at] = static_cast<int32_t>(i);
    return bits & (bits - 1);
  }

  const typename Read::Element* data_;
  float* x_;
  int32_t* ids_;
  size_t size_ = 0;
};

// Lists what reaches a threshold; whether there is a NaN. Some kilobytes are marked and then listed
// while they are in the nearest cache: to come back for them takes as long as to read the row.
template <class Read>
bool ListFrom(const semantics::Row& row, float threshold, CandidateList& list) {
  using Element = typename Read::Element;
  constexpr size_t kWords = 32;  // of 64 bits
  constexpr size_t kAhead = kWords * 64;
  constexpr size_t kGroupsInWord = sizeof(uint64_t) / sizeof(ElementMask);
  ElementMask masks[kWords * kGroupsInWord] = {};
  const auto least = hn::Set(F32(), threshold);
  const auto* data = static_cast<const Element*>(row.data);
  NanWatch even, odd;
  BitLister<Read> lister(row, list);
  size_t listed = 0;  // elements of the row
  size_t marked = 0;  // groups in masks
  ForEachGroup<Read>(
      row, Padding::kLast, std::size(masks),
      [&](size_t, VecF32 x0, VecF32 x1, VecF32 x2, VecF32 x3) HWY_ATTR {
        even.See(x0, x1);
        odd.See(x2, x3);
        masks[marked++] = MarksOf(ElementMask(), least, x0, x1, x2, x3);
      },
      [&]() HWY_ATTR {
        const size_t end =
            std::min(listed + marked * GroupElements(), static_cast<size_t>(row.size));
        for (size_t word = 0; listed < end; ++word, listed += 64) {
          uint64_t bits;
          std::memcpy(&bits, masks + word * kGroupsInWord, sizeof(bits));
          const size_t left = end - listed;
          if (left < 64) bits &= (uint64_t{1} << left) - 1;
          // The elements that are marked next, while nothing else loads from memory.
          for (size_t line = 0; line < 64 * sizeof(Element); line += 64) {
            hwy::Prefetch(reinterpret_cast<const std::byte*>(data + listed + kAhead) + line);
          }
          lister.Append(listed, bits);
        }
        listed = end;
        marked = 0;
      });
  list.size = static_cast<int64_t>(lister.size());
  list.Pad();
  return even.HasSeen() || odd.HasSeen();
}

// Ranks of the sample that leave at least `wanted` of the row in all but one of some hundred rows.
inline size_t RankInSample(size_t sample, int64_t row_size, int64_t wanted) {
  const double expected =
      static_cast<double>(sample) * static_cast<double>(wanted) / static_cast<double>(row_size);
  return static_cast<size_t>(expected + 2.5 * std::sqrt(expected) + 2.0);
}

// Whether the threshold of a list this long is worth trying on the next scores of the row:
// neither does it nearly leave too few, nor takes what it leaves longer to list than a sample
// takes.
inline bool IsAmid(int64_t listed, int64_t wanted) {
  return listed >= wanted + wanted / 16 && listed <= 3 * wanted;
}

// Where rank `wanted` of a list falls. A sample of it brackets the place; where it does not, or the
// list is short, the way of selection does.
inline Boundary BoundaryIn(const RowMemory& memory, int64_t wanted) {
  const F32 d;
  const CandidateList& list = memory.list;
  ScoreSample<64> sample;
  sample.Take<ReadF32>(list.x, list.size);
  const double share = static_cast<double>(wanted) / static_cast<double>(list.size);
  const double expected = share * static_cast<double>(sample.size());
  const double error = 2.5 * std::sqrt(expected * (1.0 - share)) + 4.0;
  constexpr size_t kSlack = 4;
  if (sample.size() != 0 && expected > error &&
      expected + error < static_cast<double>(sample.size())) {
    const auto low =
        hn::Set(d, sample.OfRank(static_cast<size_t>(expected + error), kSlack).threshold);
    const auto high =
        hn::Set(d, sample.OfRank(static_cast<size_t>(expected - error), kSlack).threshold);
    int64_t above = 0;
    size_t kept = 0;
    for (size_t i = 0; i < static_cast<size_t>(list.size); i += hn::Lanes(d)) {
      const auto x = hn::LoadU(d, list.x + i);
      const auto is_above = hn::Gt(x, high);
      above += static_cast<int64_t>(hn::CountTrue(d, is_above));
      const uint64_t between = LaneBitsOf(d, hn::AndNot(is_above, hn::Ge(x, low)));
      kept += CompressTo(d, x, between, memory.scratch_x + kept);
    }
    const int64_t left = wanted - above;
    if (left > 0 && left <= static_cast<int64_t>(kept)) {
      hn::StoreU(hn::Set(d, -semantics::Infinity()), d, memory.scratch_x + kept);
      const Measured band{memory.scratch_x, nullptr, kept};
      const float value = LargestValue(
          MinOf(band.x, kept), MaxOf(band.x, kept),
          [&](float x) HWY_ATTR { return MeasureFrom<false, true>(band, x).count >= left; });
      const int64_t larger = MeasureFrom<false, false>(band, value).count;
      const int64_t reaching = MeasureFrom<false, true>(band, value).count;
      return {value, above + larger, 0, reaching - larger};
    }
  }
  return NarrowToBoundary<false>(memory.Counted(), static_cast<uint64_t>(list.size),
                                 static_cast<uint64_t>(wanted), memory.scratch_x,
                                 memory.scratch_weights);
}

template <class Read>
RowStatus TopkRow(const TopkRequest& request, std::byte* workspace) {
  constexpr int kMostGuesses = 3;
  const semantics::Row& row = request.row;
  const int64_t wanted = std::min<int64_t>(request.k, row.size);
  RowMemory memory = RowMemory::In(workspace, row.size);
  uint64_t* const keys = reinterpret_cast<uint64_t*>(memory.scratch_x);  // with scratch_weights
  uint64_t* const scratch = reinterpret_cast<uint64_t*>(memory.list.x);  // with the ids
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const float carried = request.threshold == nullptr ? kNone : *request.threshold;
  const auto keep = [&](float threshold) {
    if (request.threshold != nullptr) *request.threshold = threshold;
  };
  keep(kNone);
  if (wanted == 0) {
    PutAnswer<Read>(request, nullptr, 0, keys, scratch);
    return RowStatus::kOk;
  }
  // Neighbours are alike in real scores, so many pieces count, not many scores.
  ScoreSample<256> sample;
  size_t rank = 0;
  bool is_sampled = false;
  for (int guesses = 1;; ++guesses) {
    // -inf is not listed: where it is needed it is a plateau.
    ScoreGuess guess{-semantics::Infinity(), true};
    if (guesses == 1 && !semantics::IsNan(carried)) {
      guess = {carried, false};
    } else {
      if (!is_sampled) {
        sample.Take<Read>(static_cast<const typename Read::Element*>(row.data), row.size);
        if (sample.size() != 0) rank = RankInSample(sample.size(), row.size, wanted);
        is_sampled = true;
      }
      if (rank < sample.size() && guesses <= kMostGuesses) guess = sample.OfRank(rank, rank / 16);
    }
    guess.is_tie |= guess.threshold == -semantics::Infinity();
    const float threshold = guess.is_tie
                                ? semantics::ValueOfKey(semantics::OrderKey(guess.threshold) + 1)
                                : guess.threshold;
    if (ListFrom<Read>(row, threshold, memory.list)) {
      const TopkRequest nothing{row, request.k, false, request.indices, request.values};
      PutAnswer<Read>(nothing, nullptr, 0, keys, scratch);
      return RowStatus::kNanInput;
    }
    const CandidateList& list = memory.list;
    if (list.size >= wanted) {
      if (!guess.is_tie && IsAmid(list.size, wanted)) keep(threshold);
      const Boundary boundary = BoundaryIn(memory, wanted);
      KeepFirst(list, boundary.value, wanted - boundary.above, wanted);
      std::copy(list.ids, list.ids + wanted, reinterpret_cast<int32_t*>(memory.weights));
      break;
    }
    if (guess.is_tie) {
      int32_t* const ties = reinterpret_cast<int32_t*>(memory.scratch_x);
      const int64_t missing = wanted - list.size;
      if (FirstEqual<Read>(row, guess.threshold, missing, ties) == missing) {
        std::merge(list.ids, list.ids + list.size, ties, ties + missing,
                   reinterpret_cast<int32_t*>(memory.weights));
        break;
      }
    }
    if (!is_sampled) continue;
    // By how much too few, and some more; a plateau that was none has no part in that.
    const double share =
        static_cast<double>(wanted) / static_cast<double>(std::max<int64_t>(list.size, 1));
    rank = static_cast<size_t>(1.0 + static_cast<double>(rank) *
                                         (guess.is_tie ? 4.0 : std::min(1.2 * share, 16.0)));
  }
  PutAnswer<Read>(request, reinterpret_cast<const int32_t*>(memory.weights), wanted, keys, scratch);
  return RowStatus::kOk;
}

inline size_t TopkRowBytes(int64_t columns) { return RowMemory::Bytes(columns); }

inline RowStatus TopkRowOfAnyDType(const TopkRequest& request, std::byte* workspace) {
  switch (request.row.dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return TopkRow<ReadBf16>(request, workspace);
    case DType::kF16:
      return TopkRow<ReadF16>(request, workspace);
  }
  return TopkRow<ReadF32>(request, workspace);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
