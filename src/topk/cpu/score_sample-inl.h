// Where a rank of a row falls, guessed from vectors spread over it.
#include "semantics/order.h"

#if defined(SLUICE_TOPK_CPU_SCORE_SAMPLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_TOPK_CPU_SCORE_SAMPLE_INL_H_
#undef SLUICE_TOPK_CPU_SCORE_SAMPLE_INL_H_
#else
#define SLUICE_TOPK_CPU_SCORE_SAMPLE_INL_H_
#endif

#include "select/cpu/guess-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

struct ScoreGuess {
  float threshold;
  bool is_tie;  // so many equal it that it is probably they where the rank falls
};

// A sample of scores as signed integers that compare as they do; NaN is beyond infinity.
template <size_t kVectors>
class ScoreSample {
 public:
  using Keys = hn::RebindToSigned<F32>;

  template <class Read>
  HWY_INLINE void Take(const typename Read::Element* data, int64_t count) {
    const F32 d;
    const Keys di;
    const size_t lanes = hn::Lanes(d);
    size_ = 0;
    if (static_cast<size_t>(count) < 2 * kVectors * lanes) return;
    const size_t step = (static_cast<size_t>(count) - lanes) / (kVectors - 1);
    auto least = hn::Set(di, INT32_MAX), largest = hn::Set(di, INT32_MIN);
    for (size_t v = 0; v < kVectors; ++v) {
      const auto x = hn::Add(Read::At(data + v * step, 0), hn::Zero(d));  // no -0
      const auto keys = Turned(hn::BitCast(di, x));
      least = hn::Min(least, keys);
      largest = hn::Max(largest, keys);
      hn::Store(keys, di, keys_ + v * lanes);
    }
    size_ = kVectors * lanes;
    least_ = hn::GetLane(hn::MinOfLanes(di, least));
    largest_ = hn::GetLane(hn::MaxOfLanes(di, largest));
  }

  size_t size() const { return size_; }  // 0: there are too few scores for one

  // The score of this rank, from 1 up to size(), or one that leaves up to `slack` more of the
  // sample.
  HWY_INLINE ScoreGuess OfRank(size_t rank, size_t slack) const {
    const size_t enough = rank + slack;
    int64_t low = least_, high = largest_;
    size_t reaching = size_;
    while (low < high && reaching > enough) {
      const int64_t middle = low + (high - low + 1) / 2;
      const size_t count = CountFrom(static_cast<int32_t>(middle));
      if (count >= rank) {
        low = middle;
        reaching = count;
      } else {
        high = middle - 1;
      }
    }
    const float threshold = semantics::FloatOf(static_cast<uint32_t>(TurnedOne(low)));
    return {threshold, reaching > 2 * rank && threshold < semantics::Infinity()};
  }

 private:
  // Its own inverse.
  static HWY_INLINE hn::Vec<Keys> Turned(hn::Vec<Keys> bits) {
    const hn::RebindToUnsigned<F32> du;
    const auto sign = hn::BitCast(du, hn::ShiftRight<31>(bits));
    return hn::Xor(bits, hn::BitCast(Keys(), hn::ShiftRight<1>(sign)));
  }
  static int32_t TurnedOne(int64_t key) {
    return static_cast<int32_t>(key < 0 ? key ^ INT32_MAX : key);
  }

  HWY_INLINE size_t CountFrom(int32_t key) const {
    const Keys di;
    const auto below = hn::Set(di, key - 1);  // key is above the least one
    auto even = hn::Zero(di), odd = even;     // negated
    for (size_t i = 0; i < size_; i += 2 * hn::Lanes(di)) {
      const auto a = hn::Load(di, keys_ + i), b = hn::Load(di, keys_ + i + hn::Lanes(di));
      even = hn::Add(even, hn::VecFromMask(di, hn::Gt(a, below)));
      odd = hn::Add(odd, hn::VecFromMask(di, hn::Gt(b, below)));
    }
    return static_cast<size_t>(-hn::GetLane(hn::SumOfLanes(di, hn::Add(even, odd))));
  }

  HWY_ALIGN int32_t keys_[kVectors * HWY_MAX_BYTES / sizeof(int32_t)];
  size_t size_ = 0;
  int32_t least_ = 0;
  int32_t largest_ = 0;
};

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
