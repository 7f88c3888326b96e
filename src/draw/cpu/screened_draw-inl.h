// The Gumbel draw from a row and its Cut: screen every token, look closer at few.
#include "semantics/draw/draw.h"

#if defined(SLUICE_DRAW_CPU_SCREENED_DRAW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_SCREENED_DRAW_INL_H_
#undef SLUICE_DRAW_CPU_SCREENED_DRAW_INL_H_
#else
#define SLUICE_DRAW_CPU_SCREENED_DRAW_INL_H_
#endif

#include "draw/cpu/screen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The best of a vector's tokens against the best so far. Most vectors hold no better score, and for
// those one comparison is all.
inline void Challenge(VecF32 scores, const float* x, const int32_t* ids, size_t count,
                      semantics::Winner& best) {
  const F32 d;
  if (best.token.id >= 0 && hn::AllFalse(d, hn::Ge(scores, hn::Set(d, best.score)))) return;
  HWY_ALIGN float score[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(scores, d, score);
  for (size_t lane = 0; lane < count; ++lane) {
    const semantics::Winner candidate{score[lane], {x[lane], ids[lane]}};
    if (semantics::Beats(candidate, best)) best = candidate;
  }
}

// The id of the n-th element (from 1) equal to `value`, or the largest id when there are fewer; -1
// for n = 0.
template <class Read>
int32_t IdOfTie(const semantics::Row& row, float value, int64_t n) {
  if (n <= 0) return -1;
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  const auto* data = static_cast<const typename Read::Element*>(row.data);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto ties =
        static_cast<int64_t>(hn::CountTrue(d, hn::Eq(Read::At(data + i, 0), hn::Set(d, value))));
    if (ties >= n) break;
    n -= ties;
  }
  for (; i < size; ++i) {
    if (Read::One(data, i) == value && --n == 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(kMaxVocab);
}

// Whether a Cut keeps a token, for a few of a row's tokens in any order. The end of the ties is
// found in the row on the first call that needs it.
template <class Read>
class KeptTest {
 public:
  KeptTest(const semantics::Row& row, const Cut& cut) : row_(row), cut_(cut) {}

  bool operator()(float x, int32_t id) {
    if (!(x <= cut_.upper && x >= cut_.lower)) return false;
    if (x == cut_.upper && id <= End(dropped_until_, cut_.upper, cut_.ties_dropped)) return false;
    if (x == cut_.lower && id > End(kept_until_, cut_.lower, cut_.ties_kept)) return false;
    return true;
  }

 private:
  static constexpr int32_t kUnknown = -2;

  int32_t End(int32_t& known, float value, int64_t n) {
    if (known == kUnknown) known = IdOfTie<Read>(row_, value, n);
    return known;
  }

  const semantics::Row& row_;
  const Cut& cut_;
  int32_t dropped_until_ = kUnknown;
  int32_t kept_until_ = kUnknown;
};

template <class Read>
class ScreenedDraw {
 public:
  ScreenedDraw(const semantics::Row& row, const Cut& cut, float max, float scale,
               const NoiseKey& key)
      : row_(row),
        cut_(cut),
        max_(max),
        scale_(scale),
        key_(key),
        is_kept_(row, cut),
        noise_(key, semantics::GumbelStream(key)),
        bound_(max, scale) {
    // The noise is above -5.7, so where the maximum is kept nothing below wins.
    keeps_max_ = cut.upper == semantics::Infinity() && cut.lower < max;
    least_score_ = keeps_max_ ? -6.0f : -semantics::Infinity();
    bound_.Set(least_score_);
  }

  int32_t Run() {
    const bool keeps_many = int64_t{cut_.count} * 2 >= row_.size;
    keeps_max_&& keeps_many&& bound_.is_near_zero() ? Screen<true>() : Screen<false>();
    LookCloser();
    return best_.token.id;
  }

 private:
  // kIsSafe: the largest value is kept, most others are as well, and none is too large for the
  // cheaper bound.
  template <bool kIsSafe>
  void Screen() {
    using Element = typename Read::Element;
    const size_t lanes = hn::Lanes(F32());
    const size_t size = static_cast<size_t>(row_.size);
    const size_t step = ScreenTokens();
    const auto* data = static_cast<const Element*>(row_.data);
    const ScreenNoise noise = noise_;
    HWY_ALIGN Element end[kScreenVectors * HWY_MAX_BYTES / sizeof(float)];
    for (size_t first = 0; first < size; first += step) {
      const Element* x = data + first;
      if (first + step > size) {
        for (size_t i = 0; i < step; ++i) end[i] = first + i < size ? x[i] : Read::kMasked;
        x = end;
      }
      const ScreenBits bits = noise.Bits(static_cast<uint32_t>(first / 8));
      const auto bound =
          bound_.Of<kIsSafe>(Value<kIsSafe>(x, 0), Value<kIsSafe>(x, lanes),
                             Value<kIsSafe>(x, 2 * lanes), Value<kIsSafe>(x, 3 * lanes));
      const uint64_t passes = AtMost(bits.first, bound) | uint64_t{AtMost(bits.second, bound)}
                                                              << 32;
      if (HWY_UNLIKELY(passes != 0)) Note(first, passes);
    }
  }

  // Where the Cut keeps few, the values that it drops must not pass for their noise.
  template <bool kIsSafe>
  HWY_INLINE VecF32 Value(const typename Read::Element* data, size_t i) const {
    const F32 d;
    const auto x = Read::At(data + i, 0);
    if constexpr (kIsSafe) return x;
    const auto masked = hn::Set(d, -semantics::Infinity());
    return hn::IfThenElse(hn::Ge(x, hn::Set(d, cut_.lower)), x, masked);
  }

  // passes: as AtMost, the first two vectors of tokens low.
  HWY_NOINLINE void Note(size_t first, uint64_t passes) {
    const size_t lanes = hn::Lanes(F32());
    for (passes = CountedBits(passes); passes != 0; passes &= passes - 1) {
      const size_t id = first + ScreenedToken(passes);
      if (id >= static_cast<size_t>(row_.size)) continue;
      const float x = Read::One(row_.data, id);
      if (!is_kept_(x, static_cast<int32_t>(id))) continue;
      x_[noted_] = x;
      ids_[noted_] = static_cast<int32_t>(id);
      if (++noted_ == lanes) LookCloser();
    }
  }

  // The exact scores of the noted tokens.
  void LookCloser() {
    const F32 d;
    const U32 du;
    if (noted_ == 0) return;
    for (size_t i = noted_; i < hn::Lanes(d); ++i) ids_[i] = ids_[0];
    const auto noise = GumbelNoise(key_, hn::Load(du, reinterpret_cast<const uint32_t*>(ids_)));
    const auto t = hn::Mul(hn::Sub(hn::Load(d, x_), hn::Set(d, max_)), hn::Set(d, scale_));
    Challenge(hn::Add(t, noise), x_, ids_, noted_, best_);
    noted_ = 0;
    bound_.Set(best_.score > least_score_ ? best_.score : least_score_);
  }

  const semantics::Row& row_;
  const Cut& cut_;
  float max_;
  float scale_;
  const NoiseKey& key_;
  KeptTest<Read> is_kept_;
  ScreenNoise noise_;
  ScreenBound bound_;
  bool keeps_max_;
  float least_score_;
  semantics::Winner best_{0.0f, {0.0f, -1}};
  size_t noted_ = 0;
  HWY_ALIGN float x_[HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN int32_t ids_[HWY_MAX_BYTES / sizeof(float)] = {};
};

template <class Read>
int32_t DrawScreened(const semantics::Row& row, const Cut& cut, float max, float scale,
                     const NoiseKey& key) {
  ScreenedDraw<Read> draw(row, cut, max, scale, key);
  return draw.Run();
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
