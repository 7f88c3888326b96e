// The parts of a layer with vectors: the order of every sum is the one of layer_table.h.
#include <algorithm>
#include <cmath>

#include "model/elementwise.h"
#include "model/layer_table.h"

#if defined(SLUICE_MODEL_LAYER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_MODEL_LAYER_INL_H_
#undef SLUICE_MODEL_LAYER_INL_H_
#else
#define SLUICE_MODEL_LAYER_INL_H_
#endif

#include "hwy/cache_control.h"
#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::model::HWY_NAMESPACE {

using sluice::HWY_NAMESPACE::F32;
using sluice::HWY_NAMESPACE::InRegister;
using sluice::HWY_NAMESPACE::VecF32;
namespace hn = hwy::HWY_NAMESPACE;

// elementwise.h, a vector at a time.
inline VecF32 Exp(VecF32 x) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const auto n = hn::Floor(hn::MulAdd(x, hn::Set(d, model::kLog2E), hn::Set(d, 0.5f)));
  const auto r =
      hn::MulAdd(n, hn::Set(d, -model::kLn2Low), hn::MulAdd(n, hn::Set(d, -model::kLn2High), x));
  auto p = hn::Zero(d);
  for (const float coefficient : model::kExpTaylor) p = hn::MulAdd(p, r, hn::Set(d, coefficient));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  auto y = hn::Mul(p, hn::BitCast(d, exponent));
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, model::kExpLow)), hn::Zero(d), y);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, model::kExpHigh)), hn::Set(d, semantics::Infinity()), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

inline VecF32 OnePlusExp(VecF32 x) { return hn::Add(hn::Set(F32(), 1.0f), Exp(x)); }

inline VecF32 Silu(VecF32 x) { return hn::Div(x, OnePlusExp(hn::Neg(x))); }

inline VecF32 GeluTanh(VecF32 x) {
  const F32 d;
  const auto cube = hn::Mul(hn::Mul(x, x), x);
  const auto u = hn::MulAdd(hn::Set(d, model::kGeluCube), cube, x);
  return hn::Div(x, OnePlusExp(hn::Mul(u, hn::Set(d, model::kGeluScale))));
}

inline VecF32 SoftCap(VecF32 x, VecF32 cap) {
  const F32 d;
  const auto one = hn::Set(d, 1.0f);
  const auto z = hn::Div(x, cap);
  const auto e = Exp(hn::Mul(hn::Set(d, -2.0f), hn::Abs(z)));
  return hn::CopySign(hn::Mul(cap, hn::Div(hn::Sub(one, e), hn::Add(one, e))), z);
}

// kLanes elements: one vector of 512 bits, or two of 256.
struct Sixteen {
  static constexpr size_t kVectors = kLanes * sizeof(float) / HWY_MAX_BYTES;
  VecF32 part[kVectors];

  static Sixteen Zero() {
    Sixteen all;
    for (auto& part : all.part) part = hn::Zero(F32());
    return all;
  }
  template <class Body>  // body(part, the first of its elements)
  void ForEach(Body&& body) {
    for (size_t v = 0; v < kVectors; ++v) body(part[v], v * hn::Lanes(F32()));
  }
  void Store(float* to) const {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(part[v], F32(), to + v * hn::Lanes(F32()));
  }
};

inline float TreeSum(float* lane) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return lane[0];
}

inline void RmsNorm(const float* x, const float* weight, size_t width, float eps, float* y) {
  const F32 d;
  const size_t whole = width / kLanes * kLanes;
  auto squares = Sixteen::Zero();
  for (size_t i = 0; i < whole; i += kLanes) {
    squares.ForEach([&](VecF32& sum, size_t lane) HWY_ATTR {
      const auto v = hn::LoadU(d, x + i + lane);
      sum = hn::MulAdd(v, v, sum);
    });
  }
  float lane[kLanes];
  squares.Store(lane);
  for (size_t i = whole; i < width; ++i) lane[i - whole] = Fma(x[i], x[i], lane[i - whole]);
  const float mean = TreeSum(lane) / static_cast<float>(width);
  const float factor = 1.0f / std::sqrt(mean + eps);
  const auto factors = hn::Set(d, factor);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= width; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), factors), hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < width; ++i) y[i] = x[i] * factor * weight[i];
}

inline float Encode(const float* x, size_t width, int16_t* codes) {
  const F32 d;
  const hn::Rebind<int16_t, F32> d16;
  const size_t lanes = hn::Lanes(d), whole = width / lanes * lanes;
  auto largest_of = hn::Zero(d);
  auto finite = hn::Eq(largest_of, largest_of);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    finite = hn::And(finite, hn::IsFinite(v));
    largest_of = hn::Max(largest_of, hn::Abs(v));
  }
  float largest = hn::GetLane(hn::MaxOfLanes(d, largest_of));
  bool is_finite = hn::AllTrue(d, finite);
  for (size_t i = whole; i < width; ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  std::fill(codes + whole, codes + CodeStride(width), int16_t{0});
  if (!is_finite || largest < kLeastCoded) {
    std::fill_n(codes, whole, int16_t{0});
    return is_finite ? 0.0f : semantics::QuietNan();
  }
  const float factor = 127.0f / largest;
  const auto factors = hn::Set(d, factor);
  for (size_t i = 0; i < whole; i += lanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factors));
    hn::StoreU(hn::DemoteTo(d16, rounded), d16, codes + i);
  }
  for (size_t i = whole; i < width; ++i) {
    codes[i] = static_cast<int16_t>(std::nearbyint(x[i] * factor));
  }
  return largest / 127.0f;
}

// One state streams the matrix, and rows are too short for the processor to see where it goes on:
// so far ahead, 10 MB take 0.35 ms where they took 0.75 (AVX2, EPYC).
constexpr size_t kPrefetchBytes = 4096;

constexpr size_t kTileRows = 4;
#if HWY_TARGET == HWY_AVX2
constexpr size_t kTileStates = 3;  // 12 sums of 16 registers
#else
constexpr size_t kTileStates = 5;  // 20 of 32
#endif

using I32 = hn::ScalableTag<int32_t>;
using FourI32 = hn::FixedTag<int32_t, 4>;
using FourF32 = hn::FixedTag<float, 4>;

// The sum of a vector, as four lanes.
inline hn::Vec<FourI32> AddUp(hn::Vec<I32> sum) {
  const hn::Half<I32> half;
  const auto folded = hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
#if HWY_TARGET == HWY_AVX2
  return folded;
#else
  const FourI32 four;
  return hn::Add(hn::LowerHalf(four, folded), hn::UpperHalf(four, folded));
#endif
}

// The sums of four vectors' lanes.
inline hn::Vec<FourI32> SumsOf(hn::Vec<I32> v0, hn::Vec<I32> v1, hn::Vec<I32> v2, hn::Vec<I32> v3) {
  const FourI32 d;
  const auto a = AddUp(v0), b = AddUp(v1), c = AddUp(v2), e = AddUp(v3);
  const auto ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const auto ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  return hn::Add(hn::ConcatLowerLower(d, ce, ab), hn::ConcatUpperUpper(d, ce, ab));
}

// The products of four rows of the matrix with kStates rows of codes.
template <size_t kStates>
HWY_INLINE void MultiplyTile(const int8_t* const* rows, const int16_t* const* states, size_t width,
                             hn::Vec<FourI32>* products) {
  const hn::ScalableTag<int16_t> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const I32 d32;
  hn::Vec<I32> sum[kTileRows][kStates];
  for (auto& row : sum) {
    for (auto& one : row) one = hn::Zero(d32);
  }
  auto unused = hn::Zero(d32);
  for (size_t i = 0; i < width; i += hn::Lanes(d16)) {
    if constexpr (kStates == 1) {
      for (size_t byte = 0; byte < kTileRows * hn::Lanes(d16); byte += 64) {
        hwy::Prefetch(rows[0] + kPrefetchBytes + i * kTileRows + byte);
      }
    }
    hn::Vec<decltype(d16)> state[kStates];
    HWY_UNROLL(8)
    for (size_t s = 0; s < kStates; ++s) state[s] = hn::LoadU(d16, states[s] + i);
    HWY_UNROLL(8)
    for (size_t w = 0; w < kTileRows; ++w) {
      const auto row = hn::PromoteTo(d16, hn::LoadU(d8, rows[w] + i));
      HWY_UNROLL(8)
      for (size_t s = 0; s < kStates; ++s) {
        sum[w][s] = hn::ReorderWidenMulAccumulate(d32, row, state[s], sum[w][s], unused);
      }
    }
  }
  for (size_t s = 0; s < kStates; ++s) {
    products[s] = SumsOf(sum[0][s], sum[1][s], sum[2][s], sum[3][s]);
  }
}

struct Product {
  const Int8Matrix& matrix;
  const CodedRows& x;
  float* y;
  size_t stride;

  // A tile at an edge repeats its last row and forgets the result.
  template <size_t kStates>
  void Tile(int64_t r, int64_t states, int64_t v, int64_t rows) const {
    const size_t width = CodeStride(static_cast<size_t>(matrix.columns));
    const int8_t* row[kTileRows];
    const int16_t* state[kStates];
    hn::Vec<FourI32> products[kStates];
    for (size_t w = 0; w < kTileRows; ++w) {
      row[w] = matrix.codes +
               static_cast<size_t>(v + std::min(static_cast<int64_t>(w), rows - 1)) * width;
    }
    for (size_t s = 0; s < kStates; ++s) {
      state[s] =
          x.codes + static_cast<size_t>(r + std::min(static_cast<int64_t>(s), states - 1)) * width;
    }
    MultiplyTile<kStates>(row, state, width, products);

    const FourF32 d;
    const auto count = static_cast<size_t>(rows);
    HWY_ALIGN float scales[kTileRows] = {};
    std::copy_n(matrix.scales + v, count, scales);
    for (int64_t s = 0; s < states; ++s) {
      const auto scale = hn::Mul(hn::Set(d, x.scales[r + s]), hn::Load(d, scales));
      HWY_ALIGN float part[kTileRows];
      hn::Store(hn::Mul(hn::ConvertTo(d, products[s]), scale), d, part);
      std::copy_n(part, count, y + static_cast<size_t>(r + s) * stride + v);
    }
  }
};

// One state streams the matrix; several share each piece of it, which is widened once.
inline void Multiply(const Int8Matrix& matrix, const CodedRows& x, int64_t rows, int64_t begin,
                     int64_t end, float* y, size_t stride) {
  constexpr auto kRows = static_cast<int64_t>(kTileRows);
  constexpr auto kStates = static_cast<int64_t>(kTileStates);
  const Product product{matrix, x, y, stride};
  for (int64_t v = begin; v < end; v += kRows) {
    const int64_t some = std::min(kRows, end - v);
    int64_t r = 0;
    for (; r + 1 < rows; r += kStates) {
      product.Tile<kTileStates>(r, std::min(kStates, rows - r), v, some);
    }
    if (r < rows) product.Tile<1>(r, 1, v, some);
  }
}

inline void Rotate(float* head, size_t half, const float* cosines, const float* sines) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= half; i += hn::Lanes(d)) {
    const auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + i + half);
    const auto c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + i + half);
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

// The scores of kHeads heads and kPages pages from the one that holds position `first`: chains
// enough to hide the latency of fma, and each key is loaded once for all heads.
template <size_t kHeads, size_t kPages>
HWY_INLINE void ScorePages(const Attention& a, const float* queries, size_t first) {
  const F32 d;
  constexpr size_t kVectors = Sixteen::kVectors;
  const float* keys[kPages];
  VecF32 sum[kHeads][kPages][kVectors];
  for (size_t p = 0; p < kPages; ++p) {
    keys[p] = a.cache + static_cast<size_t>(a.pages[first / kPagePositions + p]) * a.page_stride;
  }
  for (auto& head : sum) {
    for (auto& page : head) {
      for (auto& one : page) one = hn::Zero(d);
    }
  }
  for (size_t i = 0; i < a.head_dim; ++i) {
    VecF32 element[kHeads];
    HWY_UNROLL(8)
    for (size_t h = 0; h < kHeads; ++h) element[h] = hn::Set(d, queries[h * a.head_dim + i]);
    HWY_UNROLL(8)
    for (size_t p = 0; p < kPages; ++p) {
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto key = InRegister(hn::LoadU(d, keys[p] + i * kPagePositions + v * hn::Lanes(d)));
        HWY_UNROLL(8)
        for (size_t h = 0; h < kHeads; ++h) {
          sum[h][p][v] = hn::MulAdd(element[h], key, sum[h][p][v]);
        }
      }
    }
  }
  const auto scale = hn::Set(d, a.scale);
  HWY_UNROLL(8)
  for (size_t h = 0; h < kHeads; ++h) {
    HWY_UNROLL(8)
    for (size_t p = 0; p < kPages; ++p) {
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        float* const to = a.scores + h * a.score_stride + first + p * kPagePositions;
        hn::StoreU(hn::Mul(sum[h][p][v], scale), d, to + v * hn::Lanes(d));
      }
    }
  }
}

// Scores of whole pages; those of positions that are not seen become -inf.
template <size_t kHeads>
HWY_INLINE void ScoreAll(const Attention& a, const float* queries) {
  const F32 d;
  constexpr size_t kPages = (kHeads == 1 ? 8 : kHeads == 2 ? 6 : 4) / Sixteen::kVectors;
  const auto begin = static_cast<size_t>(a.begin), end = static_cast<size_t>(a.end);
  const size_t first = begin / kPagePositions * kPagePositions;
  const size_t behind = (end + kPagePositions - 1) / kPagePositions * kPagePositions;
  size_t p = first;
  for (; p + kPages * kPagePositions <= behind; p += kPages * kPagePositions) {
    ScorePages<kHeads, kPages>(a, queries, p);
  }
  for (; p < behind; p += kPagePositions) ScorePages<kHeads, 1>(a, queries, p);
  for (size_t h = 0; h < kHeads; ++h) {
    float* const scores = a.scores + h * a.score_stride;
    if (a.softcap > 0.0f) {
      const auto cap = hn::Set(d, a.softcap);
      for (size_t i = first; i < behind; i += hn::Lanes(d)) {
        hn::StoreU(SoftCap(hn::LoadU(d, scores + i), cap), d, scores + i);
      }
    }
    std::fill(scores + first, scores + begin, -semantics::Infinity());
    std::fill(scores + end, scores + behind, -semantics::Infinity());
  }
}

// Scores to weights exp(score - largest); answers their sum.
inline float WeighAll(const Attention& a, float* scores) {
  const F32 d;
  const size_t first = static_cast<size_t>(a.begin) / kPagePositions * kPagePositions;
  const size_t end = static_cast<size_t>(a.end);
  auto largest = hn::Set(d, -semantics::Infinity());
  for (size_t p = first; p < end; p += hn::Lanes(d)) {
    largest = hn::Max(largest, hn::LoadU(d, scores + p));
  }
  largest = hn::MaxOfLanes(d, largest);
  auto sums = Sixteen::Zero();
  for (size_t p = first; p < end; p += kPagePositions) {
    sums.ForEach([&](VecF32& sum, size_t lane) HWY_ATTR {
      float* const at = scores + p + lane;
      const auto weight = Exp(hn::Sub(hn::LoadU(d, at), largest));
      hn::StoreU(weight, d, at);
      sum = hn::Add(sum, weight);
    });
  }
  float lane[kLanes];
  sums.Store(lane);
  return TreeSum(lane);
}

// kVectors vectors of the outputs of kHeads heads, from element `from`; out: a head after the
// other.
template <size_t kHeads, size_t kVectors>
HWY_INLINE void MixValues(const Attention& a, size_t from, const float* inverse, float* out,
                          size_t out_stride) {
  const F32 d;
  VecF32 sum[kHeads][kVectors];
  for (auto& head : sum) {
    for (auto& one : head) one = hn::Zero(d);
  }
  for (int64_t p = a.begin; p < a.end;) {
    const size_t slot = static_cast<size_t>(p) % kPagePositions;
    const float* values =
        a.cache + static_cast<size_t>(a.pages[p / int64_t{kPagePositions}]) * a.page_stride +
        a.head_dim * kPagePositions + slot * a.value_stride + from;
    const int64_t page_end = std::min(a.end, p + static_cast<int64_t>(kPagePositions - slot));
    for (; p < page_end; ++p, values += a.value_stride) {
      VecF32 weight[kHeads];
      HWY_UNROLL(8)
      for (size_t h = 0; h < kHeads; ++h) {
        weight[h] = hn::Set(d, a.scores[h * a.score_stride + static_cast<size_t>(p)]);
      }
      HWY_UNROLL(8)
      for (size_t v = 0; v < kVectors; ++v) {
        const auto value = InRegister(hn::LoadU(d, values + v * hn::Lanes(d)));
        HWY_UNROLL(8)
        for (size_t h = 0; h < kHeads; ++h) {
          sum[h][v] = hn::MulAdd(weight[h], value, sum[h][v]);
        }
      }
    }
  }
  HWY_UNROLL(8)
  for (size_t h = 0; h < kHeads; ++h) {
    HWY_UNROLL(8)
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::Mul(sum[h][v], hn::Set(d, inverse[h])), d,
                 out + h * out_stride + v * hn::Lanes(d));
    }
  }
}

template <size_t kHeads>
HWY_NOINLINE void AttendHeads(const Attention& a, size_t g) {
#if HWY_TARGET == HWY_AVX2
  constexpr size_t kVectors = kHeads <= 3 ? 4 : 3;
#else
  constexpr size_t kVectors = 4;
#endif
  constexpr size_t kPart = HWY_MAX_BYTES / sizeof(float);
  const size_t lanes = hn::Lanes(F32());
  float* const out = a.out + g * a.head_dim;
  ScoreAll<kHeads>(a, a.queries + g * a.head_dim);
  float inverse[kHeads];
  for (size_t h = 0; h < kHeads; ++h) {
    inverse[h] = 1.0f / WeighAll(a, a.scores + h * a.score_stride);
  }
  size_t i = 0;
  for (; i + kVectors * lanes <= a.head_dim; i += kVectors * lanes) {
    MixValues<kHeads, kVectors>(a, i, inverse, out + i, a.head_dim);
  }
  for (; i < a.head_dim; i += lanes) {
    float part[kHeads * kPart];
    MixValues<kHeads, 1>(a, i, inverse, part, kPart);
    for (size_t h = 0; h < kHeads; ++h) {
      std::copy_n(part + h * kPart, std::min(lanes, a.head_dim - i), out + h * a.head_dim + i);
    }
  }
}

// Heads of a group share what is loaded of their keys and values.
inline void Attend(const Attention& a) {
  static_assert(kHeadsAtOnce == 4);
  for (size_t g = 0; g < a.group;) {
    const size_t heads = std::min(kHeadsAtOnce, a.group - g);
    switch (heads) {
      case 1:
        AttendHeads<1>(a, g);
        break;
      case 2:
        AttendHeads<2>(a, g);
        break;
      case 3:
        AttendHeads<3>(a, g);
        break;
      default:
        AttendHeads<4>(a, g);
    }
    g += heads;
  }
}

// gate = f(gate) * up for a vector f, with the last few elements likewise.
template <class F>
HWY_INLINE void ActivateBy(F f, float* gate, const float* up, size_t count) {
  const F32 d;
  const size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
  for (size_t i = 0; i < whole; i += lanes) {
    hn::StoreU(hn::Mul(f(hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, gate + i);
  }
  if (whole == count) return;
  float part[HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy(gate + whole, gate + count, part);
  hn::StoreU(f(hn::LoadU(d, part)), d, part);
  for (size_t i = whole; i < count; ++i) gate[i] = part[i - whole] * up[i];
}

inline void Activate(Activation activation, float* gate, const float* up, size_t count) {
  if (activation == Activation::kSilu) {
    ActivateBy([](VecF32 x) HWY_ATTR { return Silu(x); }, gate, up, count);
  } else {
    ActivateBy([](VecF32 x) HWY_ATTR { return GeluTanh(x); }, gate, up, count);
  }
}

inline void Add(float* x, const float* y, size_t count) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
  for (; i < count; ++i) x[i] += y[i];
}

inline void SoftCapAll(float cap, float* x, size_t count) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::StoreU(SoftCap(hn::LoadU(d, x + i), hn::Set(d, cap)), d, x + i);
  }
  for (; i < count; ++i) x[i] = model::SoftCap(x[i], cap);
}

}  // namespace sluice::model::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
