// Products of several rows of codes with AVX-512 VNNI, which multiplies unsigned by signed bytes
// and adds up four products: the matrix is the unsigned side, 128 more than its codes, and each sum
// starts at -128 times the sum of the row's codes. What wraps on the way wraps back, so the
// products are exact as ever.
//
// 64 rows of the matrix are transposed first, four columns in a lane, so that a lane is an output
// and no sum of lanes is needed; with two rows of codes that has paid.
#include <algorithm>
#include <cstring>

#include "model/layer_table.h"

#if defined(SLUICE_MODEL_MULTIPLY_VNNI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_MODEL_MULTIPLY_VNNI_INL_H_
#undef SLUICE_MODEL_MULTIPLY_VNNI_INL_H_
#else
#define SLUICE_MODEL_MULTIPLY_VNNI_INL_H_
#endif

#include "model/layer-inl.h"

// The include guards count on every target.
#if HWY_TARGET == HWY_AVX3

HWY_PUSH_ATTRIBUTES("avx512vnni," HWY_TARGET_STR)
namespace sluice::model::HWY_NAMESPACE::vnni {

constexpr size_t kVectorBytes = 64;
constexpr size_t kOutputs = 16;  // of a vector
constexpr size_t kVectors = 4;   // of outputs
constexpr size_t kStates = 6;    // 24 sums of 32 registers
constexpr size_t kDepth = 512;   // columns at a time, so that what is packed stays in the cache

constexpr size_t kPackedRows = kVectors * kOutputs;
constexpr size_t kPackedBytes = kPackedRows * kDepth;

// 64 columns of 16 rows: vector k of the output, kVectors vectors after the one before it, has
// columns 4 k ... 4 k + 3 of each row.
HWY_INLINE void Transpose(const int8_t* const* rows, size_t column, uint8_t* to) {
  __m512i a[16], b[16];
  for (size_t r = 0; r < 16; r += 2) {
    const __m512i even = _mm512_loadu_si512(rows[r] + column);
    const __m512i odd = _mm512_loadu_si512(rows[r + 1] + column);
    a[r] = _mm512_unpacklo_epi32(even, odd);
    a[r + 1] = _mm512_unpackhi_epi32(even, odd);
  }
  for (size_t r = 0; r < 16; r += 4) {
    b[r] = _mm512_unpacklo_epi64(a[r], a[r + 2]);
    b[r + 1] = _mm512_unpackhi_epi64(a[r], a[r + 2]);
    b[r + 2] = _mm512_unpacklo_epi64(a[r + 1], a[r + 3]);
    b[r + 3] = _mm512_unpackhi_epi64(a[r + 1], a[r + 3]);
  }
  const __m512i more = _mm512_set1_epi8(-128);
  const auto store = [&](size_t k, __m512i codes) HWY_ATTR {
    _mm512_storeu_si512(to + k * kVectors * kVectorBytes, _mm512_xor_si512(codes, more));
  };
  for (size_t k = 0; k < 4; ++k) {
    const __m512i even_low = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x88);
    const __m512i even_high = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xdd);
    const __m512i odd_high = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xdd);
    store(k, _mm512_shuffle_i32x4(even_low, even_high, 0x88));
    store(4 + k, _mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
    store(8 + k, _mm512_shuffle_i32x4(even_low, even_high, 0xdd));
    store(12 + k, _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd));
  }
}

// Of rows v ... v + count - 1; the last one stands for those after it.
inline void Pack(const Int8Matrix& matrix, int64_t v, int64_t count, size_t first, size_t depth,
                 uint8_t* packed) {
  const size_t width = CodeStride(static_cast<size_t>(matrix.columns));
  for (size_t vector = 0; vector < kVectors; ++vector) {
    const int8_t* rows[kOutputs];
    for (size_t i = 0; i < kOutputs; ++i) {
      const auto row = static_cast<int64_t>(vector * kOutputs + i);
      rows[i] = matrix.codes + static_cast<size_t>(v + std::min(row, count - 1)) * width + first;
    }
    for (size_t column = 0; column < depth; column += kVectorBytes) {
      // The next 64 rows: sixteen streams are too many for the processor to see where they go on.
      for (const int8_t* const row : rows) {
        _mm_prefetch(reinterpret_cast<const char*>(row) + column + kPackedRows * width,
                     _MM_HINT_T1);
      }
      Transpose(rows, column, packed + column * kPackedRows + vector * kVectorBytes);
    }
  }
}

// As InRegister.
HWY_INLINE __m512i LoadOnce(const uint8_t* from) {
  __m512i vector = _mm512_loadu_si512(from);
  asm("" : "+v"(vector));
  return vector;
}

struct Product {
  const Int8Matrix& matrix;
  const CodedRows& x;
  float* y;
  size_t stride;

  // The columns from `first` on. The sums of all but the last ones wait in y.
  template <size_t kRows>
  void Tile(const uint8_t* packed, int64_t r, int64_t v, int64_t count, size_t first,
            size_t depth) const {
    const F32 d;
    const I32 di;
    const size_t width = CodeStride(static_cast<size_t>(matrix.columns));
    const auto lanes = [count](size_t vector) HWY_ATTR {
      const auto before = static_cast<int64_t>(vector * kOutputs);
      return hn::FirstN(F32(), static_cast<size_t>(std::max<int64_t>(count - before, 0)));
    };
    const auto at = [&](size_t s, size_t vector) HWY_ATTR {
      return y + (static_cast<size_t>(r) + s) * stride + static_cast<size_t>(v) + vector * kOutputs;
    };
    const int8_t* const states = x.bytes + static_cast<size_t>(r) * width + first;
    __m512i sum[kRows][kVectors];
    for (size_t s = 0; s < kRows; ++s) {
      for (size_t vector = 0; vector < kVectors; ++vector) {
        sum[s][vector] = first == 0
                             ? _mm512_set1_epi32(-128 * x.sums[r + static_cast<int64_t>(s)])
                             : hn::BitCast(di, hn::MaskedLoad(lanes(vector), d, at(s, vector))).raw;
      }
    }
    for (size_t column = 0; column < depth; column += 4) {
      __m512i weights[kVectors];
      HWY_UNROLL(8)
      for (size_t vector = 0; vector < kVectors; ++vector) {
        weights[vector] = LoadOnce(packed + column * kPackedRows + vector * kVectorBytes);
      }
      HWY_UNROLL(8)
      for (size_t s = 0; s < kRows; ++s) {
        int32_t four;
        std::memcpy(&four, states + s * width + column, sizeof four);
        const __m512i state = _mm512_set1_epi32(four);
        HWY_UNROLL(8)
        for (size_t vector = 0; vector < kVectors; ++vector) {
          sum[s][vector] = _mm512_dpbusd_epi32(sum[s][vector], weights[vector], state);
        }
      }
    }
    const bool is_last = first + depth == width;
    HWY_UNROLL(8)
    for (size_t vector = 0; vector < kVectors; ++vector) {
      const auto some = lanes(vector);
      const auto scales =
          hn::MaskedLoad(some, d, matrix.scales + v + static_cast<int64_t>(vector * kOutputs));
      HWY_UNROLL(8)
      for (size_t s = 0; s < kRows; ++s) {
        const hn::Vec<I32> exact{sum[s][vector]};
        const auto scale = hn::Mul(hn::Set(d, x.scales[r + static_cast<int64_t>(s)]), scales);
        hn::BlendedStore(is_last ? hn::Mul(hn::ConvertTo(d, exact), scale) : hn::BitCast(d, exact),
                         some, d, at(s, vector));
      }
    }
  }

  template <size_t kRows = kStates>
  void Rows(int64_t rows, const uint8_t* packed, int64_t r, int64_t v, int64_t count, size_t first,
            size_t depth) const {
    if constexpr (kRows > 0) {
      if (rows == static_cast<int64_t>(kRows)) {
        return Tile<kRows>(packed, r, v, count, first, depth);
      }
      Rows<kRows - 1>(rows, packed, r, v, count, first, depth);
    }
  }
};

inline void Multiply(const Int8Matrix& matrix, const CodedRows& x, int64_t rows, int64_t begin,
                     int64_t end, float* y, size_t stride) {
  if (rows == 1) return HWY_NAMESPACE::Multiply(matrix, x, rows, begin, end, y, stride);
  constexpr auto kHeight = static_cast<int64_t>(kPackedRows);
  constexpr auto kAtOnce = static_cast<int64_t>(kStates);
  const size_t width = CodeStride(static_cast<size_t>(matrix.columns));
  const Product product{matrix, x, y, stride};
  alignas(kVectorBytes) uint8_t packed[kPackedBytes];
  for (int64_t v = begin; v < end; v += kHeight) {
    const int64_t count = std::min(kHeight, end - v);
    for (size_t first = 0; first < width; first += kDepth) {
      const size_t depth = std::min(kDepth, width - first);
      Pack(matrix, v, count, first, depth, packed);
      for (int64_t r = 0; r < rows; r += kAtOnce) {
        product.Rows(std::min(kAtOnce, rows - r), packed, r, v, count, first, depth);
      }
    }
  }
}

inline int32_t Narrow(const int16_t* codes, size_t width, int8_t* bytes) {
  const hn::ScalableTag<int16_t> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const I32 d32;
  auto sum = hn::Zero(d32), unused = hn::Zero(d32);
  const auto one = hn::Set(d16, int16_t{1});
  for (size_t i = 0; i < CodeStride(width); i += hn::Lanes(d16)) {
    const auto some = hn::LoadU(d16, codes + i);
    hn::StoreU(hn::DemoteTo(d8, some), d8, bytes + i);
    sum = hn::ReorderWidenMulAccumulate(d32, some, one, sum, unused);
  }
  return hn::GetLane(hn::SumOfLanes(d32, sum));
}

}  // namespace sluice::model::HWY_NAMESPACE::vnni
HWY_AFTER_NAMESPACE();

#endif  // HWY_AVX3

#endif  // include guard per target
