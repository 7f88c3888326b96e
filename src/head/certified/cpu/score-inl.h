// Scores from planes with vectors: a lane is a row of a tile.
//
// SLUICE_HEAD_VNNI: with the instruction that multiplies bytes and adds up four products, for
// AVX-512 only. Without it, pairs of products are summed to 16 bits, eight of them without
// overflow: 8 * 2 * 15 * 127 < 2^15.
#include "head/certified/score_table.h"

#if defined(SLUICE_HEAD_CERTIFIED_CPU_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_HEAD_CERTIFIED_CPU_SCORE_INL_H_
#undef SLUICE_HEAD_CERTIFIED_CPU_SCORE_INL_H_
#else
#define SLUICE_HEAD_CERTIFIED_CPU_SCORE_INL_H_
#endif

#include "support/vectors-inl.h"

#if SLUICE_HEAD_VNNI
#define SLUICE_HEAD_SCORE_NAMESPACE vnni
HWY_PUSH_ATTRIBUTES("avx512vnni," HWY_TARGET_STR)
#else
#define SLUICE_HEAD_SCORE_NAMESPACE bytes
HWY_BEFORE_NAMESPACE();
#endif
namespace sluice::HWY_NAMESPACE::SLUICE_HEAD_SCORE_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using VecI32 = hn::Vec<I32>;

constexpr int64_t kRows = HWY_MAX_BYTES / sizeof(float);  // of a tile at once
constexpr int kStepsInGroup = kPlaneGroup / 8;
constexpr int kStepsInQuad = 4;

#if HWY_TARGET == HWY_AVX2
constexpr size_t kMostStates = 2;
#else
constexpr size_t kMostStates = 4;
#endif

// A sum of products of codes (unsigned bytes) and elements (signed bytes) in each lane.
class DotSum {
 public:
  HWY_INLINE void Start(int32_t value) {
    wide_ = hn::Set(I32(), value);
    narrow_ = hn::Zero(I32());
  }
  HWY_INLINE void Add(VecI32 codes, VecI32 elements) {
#if SLUICE_HEAD_VNNI
    wide_ = VecI32{_mm512_dpbusd_epi32(wide_.raw, codes.raw, elements.raw)};
#elif HWY_TARGET == HWY_AVX2
    narrow_ = VecI32{_mm256_add_epi16(narrow_.raw, _mm256_maddubs_epi16(codes.raw, elements.raw))};
#else
    narrow_ = VecI32{_mm512_add_epi16(narrow_.raw, _mm512_maddubs_epi16(codes.raw, elements.raw))};
#endif
  }
  // After at most eight additions.
  HWY_INLINE void Widen() {
#if !SLUICE_HEAD_VNNI
#if HWY_TARGET == HWY_AVX2
    const auto pairs = VecI32{_mm256_madd_epi16(narrow_.raw, _mm256_set1_epi16(1))};
#else
    const auto pairs = VecI32{_mm512_madd_epi16(narrow_.raw, _mm512_set1_epi16(1))};
#endif
    wide_ = hn::Add(wide_, pairs);
    narrow_ = hn::Zero(I32());
#endif
  }
  HWY_INLINE VecI32 Get() const { return wide_; }

 private:
  VecI32 wide_;
  VecI32 narrow_;
};

// Four consecutive elements in every lane.
HWY_INLINE VecI32 Elements(const int8_t* elements) {
  int32_t four;
  __builtin_memcpy(&four, elements, sizeof four);
  return hn::Set(I32(), four);
}

struct ScoreAndSquare {
  VecF32 score;
  VecF32 square;
};

// Of kRows rows of a tile, from row `first` on, and kStates hidden states. One state has two
// chains a sum, so that the latency of an addition does not count.
template <size_t kStates>
HWY_INLINE void ScoreRows(const std::byte* codes, const uint16_t* scales, int64_t groups,
                          int64_t first, const HiddenState* states, ScoreAndSquare* of_states) {
  constexpr size_t kChains = kStates == 1 ? 2 : 1;
  const F32 d;
  const I32 di;
  const auto low_half = hn::Set(di, 0x0f0f0f0f);
  for (size_t s = 0; s < kStates; ++s) of_states[s] = {hn::Zero(d), hn::Zero(d)};
  codes += first * 4;
  for (int64_t g = 0; g < groups; ++g, codes += kTileGroupBytes) {
    DotSum high[kStates][kChains];
    DotSum low[kStates][kChains];
    for (size_t s = 0; s < kStates; ++s) {
      for (size_t c = 0; c < kChains; ++c) {
        high[s][c].Start(0);
        low[s][c].Start(c == 0 ? states[s].groups[g].start : 0);
      }
    }
    for (int quad = 0; quad < kStepsInGroup; quad += kStepsInQuad) {
      HWY_UNROLL(4)
      for (int k = quad; k < quad + kStepsInQuad; ++k) {
        const auto bytes =
            hn::LoadU(di, reinterpret_cast<const int32_t*>(codes + k * 4 * kTileRows));
        const auto first_codes = hn::And(bytes, low_half);
        const auto second_codes = hn::And(hn::ShiftRight<4>(bytes), low_half);
        HWY_UNROLL(4)
        for (size_t s = 0; s < kStates; ++s) {
          const HiddenGroup& hidden = states[s].groups[g];
          high[s][0].Add(first_codes, Elements(hidden.high + 4 * k));
          low[s][0].Add(first_codes, Elements(hidden.low + 4 * k));
          high[s][kChains - 1].Add(second_codes, Elements(hidden.high + 64 + 4 * k));
          low[s][kChains - 1].Add(second_codes, Elements(hidden.low + 64 + 4 * k));
        }
      }
      for (size_t s = 0; s < kStates; ++s) {
        for (size_t c = 0; c < kChains; ++c) {
          high[s][c].Widen();
          low[s][c].Widen();
        }
      }
    }
    const auto scale = ReadBf16::At(scales + g * kTileRows, static_cast<size_t>(first));
    const auto scale_squared = hn::Mul(scale, scale);
    for (size_t s = 0; s < kStates; ++s) {
      const HiddenGroup& hidden = states[s].groups[g];
      auto high_sum = high[s][0].Get();
      auto low_sum = low[s][0].Get();
      if constexpr (kChains == 2) {
        high_sum = hn::Add(high_sum, high[s][1].Get());
        low_sum = hn::Add(low_sum, low[s][1].Get());
      }
      const auto sum = hn::ConvertTo(d, hn::Add(hn::ShiftLeft<7>(high_sum), low_sum));
      const auto y = hn::MulAdd(sum, hn::Set(d, hidden.scale), hn::Set(d, hidden.dither));
      of_states[s].score = hn::MulAdd(scale, y, of_states[s].score);
      of_states[s].square =
          hn::MulAdd(scale_squared, hn::Set(d, hidden.square), of_states[s].square);
    }
  }
}

// As HalfWidth.
HWY_INLINE VecF32 HalfWidths(VecF32 score, VecF32 square, VecF32 error, const StepBound& bound) {
  const F32 d;
  const auto v = hn::Add(hn::Sqrt(square), hn::Set(d, 0x1p-60f));
  const auto width =
      hn::MulAdd(v, hn::Set(d, bound.factor), hn::Mul(error, hn::Set(d, bound.norm)));
  return hn::MulAdd(hn::Abs(score), hn::Set(d, 0x1p-20f),
                    hn::Mul(width, hn::Set(d, 1.0f + 0x1p-20f)));
}

// bias: of the tile, or null.
template <size_t kStates>
HWY_INLINE void ScoreTile(const PlaneView& planes, const float* bias, const HiddenState* states,
                          const Intervals* intervals, int64_t tile) {
  const F32 d;
  for (int64_t first = 0; first < kTileRows; first += kRows) {
    ScoreAndSquare of_states[kStates];
    ScoreRows<kStates>(planes.Codes(tile), planes.Scales(tile), planes.groups, first, states,
                       of_states);
    const int64_t v = tile * kTileRows + first;
    const auto error = planes.errors == nullptr ? hn::Zero(d) : hn::LoadU(d, planes.errors + v);
    for (size_t s = 0; s < kStates; ++s) {
      auto score = of_states[s].score;
      if (bias != nullptr) score = hn::Add(score, hn::LoadU(d, bias + first));
      hn::StoreU(score, d, intervals[s].scores + v);
      hn::StoreU(HalfWidths(score, of_states[s].square, error, states[s].bound), d,
                 intervals[s].widths + v);
    }
  }
}

inline void Score(const PlaneView& planes, std::span<const float> bias,
                  std::span<const HiddenState> states, std::span<const Intervals> intervals,
                  int64_t begin_tile, int64_t end_tile) {
  HWY_ALIGN float last_bias[kTileRows];  // where the head ends within a tile
  for (int64_t tile = begin_tile; tile < end_tile; ++tile) {
    const float* of_tile = bias.empty() ? nullptr : bias.data() + tile * kTileRows;
    if (of_tile != nullptr && (tile + 1) * kTileRows > planes.vocab) {
      for (int64_t row = 0; row < kTileRows; ++row) {
        last_bias[row] = tile * kTileRows + row < planes.vocab ? of_tile[row] : 0.0f;
      }
      of_tile = last_bias;
    }
    size_t s = 0;
    for (; s + kMostStates <= states.size(); s += kMostStates) {
      ScoreTile<kMostStates>(planes, of_tile, &states[s], &intervals[s], tile);
    }
    for (; s < states.size(); ++s) {
      ScoreTile<1>(planes, of_tile, &states[s], &intervals[s], tile);
    }
  }
}

// One row: a lane is an element of a group, until the group's sum.
inline void Refine(const PlaneView& planes, const HiddenState& state, int64_t row,
                   const Intervals& intervals) {
  const F32 d;
  const I32 di;
  const auto low_half = hn::Set(di, 0x0f0f0f0f);
  const std::byte* codes = planes.LowCodes(row);
  const uint16_t* const scales = planes.Scales(row / kTileRows) + row % kTileRows;
  const auto elements = [&](const int8_t* first) HWY_ATTR {
    return hn::LoadU(di, reinterpret_cast<const int32_t*>(first));
  };
  auto low_score = hn::Zero(d);
  auto square = hn::Zero(d);
  for (int64_t g = 0; g < planes.groups; ++g, codes += kRowGroupBytes) {
    const HiddenGroup& hidden = state.groups[g];
    DotSum high;
    DotSum low;
    high.Start(0);
    low.Start(0);
    for (int64_t i = 0; i < kRowGroupBytes; i += HWY_MAX_BYTES) {
      const auto bytes = elements(reinterpret_cast<const int8_t*>(codes + i));
      const auto first_codes = hn::And(bytes, low_half);
      const auto second_codes = hn::And(hn::ShiftRight<4>(bytes), low_half);
      high.Add(first_codes, elements(hidden.high + i));
      low.Add(first_codes, elements(hidden.low + i));
      high.Add(second_codes, elements(hidden.high + 64 + i));
      low.Add(second_codes, elements(hidden.low + 64 + i));
    }
    high.Widen();
    low.Widen();
    const auto lanes = hn::Add(hn::ShiftLeft<7>(high.Get()), low.Get());
    const auto sum = hn::Add(hn::SumOfLanes(di, lanes), hn::Set(di, hidden.start));
    const auto scale = hn::Set(d, semantics::WidenBf16(scales[g * kTileRows]));
    const auto y =
        hn::MulAdd(hn::ConvertTo(d, sum), hn::Set(d, hidden.scale), hn::Set(d, hidden.dither));
    low_score = hn::MulAdd(hn::Mul(scale, hn::Set(d, 0x1p-4f)), y, low_score);
    square = hn::MulAdd(hn::Mul(scale, scale), hn::Set(d, hidden.square), square);
  }
  const auto score = hn::Add(hn::Set(d, intervals.scores[row]), low_score);
  const auto error = hn::Set(d, planes.low_errors[row]);
  intervals.scores[row] = hn::GetLane(score);
  intervals.widths[row] = hn::GetLane(HalfWidths(score, square, error, state.bound));
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_HEAD_SCORE_NAMESPACE
#if SLUICE_HEAD_VNNI
HWY_POP_ATTRIBUTES
#else
HWY_AFTER_NAMESPACE();
#endif
#undef SLUICE_HEAD_SCORE_NAMESPACE

#endif  // include guard per target
