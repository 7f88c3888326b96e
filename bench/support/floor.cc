#include "bench/support/floor.h"

#include <algorithm>
#include <limits>

#include "bench/support/rows.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define SLUICE_BENCH_X86 1
#ifndef __clang__
// GCC 12's own headers start from a vector that is left undefined on purpose, and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace sluice::bench {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
// -inf: as a float nothing is below it, and without a sign no other negative number is above it.
[[maybe_unused]] constexpr auto kLowestBf16 = static_cast<int16_t>(0xff80);

// Elements [from, size), and all of a row where there are no vectors.
float ScalarMax(const void* row, DType dtype, int64_t from, int64_t size) {
  float max = kLowest;
  if (dtype == DType::kF32) {
    const float* const x = static_cast<const float*>(row);
    for (int64_t i = from; i < size; ++i) max = x[i] > max ? x[i] : max;
  } else {
    const uint16_t* const x = static_cast<const uint16_t*>(row);
    for (int64_t i = from; i < size; ++i) max = std::max(max, WidenBf16(x[i]));
  }
  return max;
}

#if SLUICE_BENCH_X86

bool HasAvx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }

// The largest of bf16 numbers, from the largest of them as signed integers and the smallest as
// unsigned ones.
float Bf16Max(int16_t largest, uint16_t smallest) {
  return WidenBf16(largest >= 0 ? static_cast<uint16_t>(largest) : smallest);
}

__attribute__((target("avx512f"))) float MaxF32Avx512(const void* row, int64_t size) {
  const float* const x = static_cast<const float*>(row);
  __m512 max[8];
  for (__m512& m : max) m = _mm512_set1_ps(kLowest);
  int64_t i = 0;
  for (; i + 8 * 16 <= size; i += 8 * 16) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) max[j] = _mm512_max_ps(max[j], _mm512_loadu_ps(x + i + 16 * j));
  }
  alignas(64) float lanes[8 * 16];
  for (int j = 0; j < 8; ++j) _mm512_store_ps(lanes + 16 * j, max[j]);
  return std::max(*std::max_element(lanes, lanes + 128), ScalarMax(row, DType::kF32, i, size));
}

__attribute__((target("avx512f,avx512bw"))) float MaxBf16Avx512(const void* row, int64_t size) {
  const uint16_t* const x = static_cast<const uint16_t*>(row);
  __m512i largest[4];
  __m512i smallest[4];
  for (int j = 0; j < 4; ++j) largest[j] = smallest[j] = _mm512_set1_epi16(kLowestBf16);
  int64_t i = 0;
  for (; i + 4 * 32 <= size; i += 4 * 32) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i next = _mm512_loadu_si512(x + i + 32 * j);
      largest[j] = _mm512_max_epi16(largest[j], next);
      smallest[j] = _mm512_min_epu16(smallest[j], next);
    }
  }
  alignas(64) int16_t high[4 * 32];
  alignas(64) uint16_t low[4 * 32];
  for (int j = 0; j < 4; ++j) {
    _mm512_store_si512(high + 32 * j, largest[j]);
    _mm512_store_si512(low + 32 * j, smallest[j]);
  }
  const float max = Bf16Max(*std::max_element(high, high + 128), *std::min_element(low, low + 128));
  return std::max(max, ScalarMax(row, DType::kBf16, i, size));
}

__attribute__((target("avx2"))) float MaxF32Avx2(const void* row, int64_t size) {
  const float* const x = static_cast<const float*>(row);
  __m256 max[8];
  for (__m256& m : max) m = _mm256_set1_ps(kLowest);
  int64_t i = 0;
  for (; i + 8 * 8 <= size; i += 8 * 8) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) max[j] = _mm256_max_ps(max[j], _mm256_loadu_ps(x + i + 8 * j));
  }
  alignas(32) float lanes[8 * 8];
  for (int j = 0; j < 8; ++j) _mm256_store_ps(lanes + 8 * j, max[j]);
  return std::max(*std::max_element(lanes, lanes + 64), ScalarMax(row, DType::kF32, i, size));
}

__attribute__((target("avx2"))) float MaxBf16Avx2(const void* row, int64_t size) {
  const uint16_t* const x = static_cast<const uint16_t*>(row);
  __m256i largest[4];
  __m256i smallest[4];
  for (int j = 0; j < 4; ++j) largest[j] = smallest[j] = _mm256_set1_epi16(kLowestBf16);
  int64_t i = 0;
  for (; i + 4 * 16 <= size; i += 4 * 16) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i next = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i + 16 * j));
      largest[j] = _mm256_max_epi16(largest[j], next);
      smallest[j] = _mm256_min_epu16(smallest[j], next);
    }
  }
  alignas(32) int16_t high[4 * 16];
  alignas(32) uint16_t low[4 * 16];
  for (int j = 0; j < 4; ++j) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(high + 16 * j), largest[j]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(low + 16 * j), smallest[j]);
  }
  const float max = Bf16Max(*std::max_element(high, high + 64), *std::min_element(low, low + 64));
  return std::max(max, ScalarMax(row, DType::kBf16, i, size));
}

#endif

}  // namespace

#if SLUICE_BENCH_X86

float RowMax(const void* row, DType dtype, int64_t size) {
  static const bool has_avx512 = HasAvx512();
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool is_f32 = dtype == DType::kF32;
  if (has_avx512) return is_f32 ? MaxF32Avx512(row, size) : MaxBf16Avx512(row, size);
  if (has_avx2) return is_f32 ? MaxF32Avx2(row, size) : MaxBf16Avx2(row, size);
  return ScalarMax(row, dtype, 0, size);
}

std::string_view RowMaxInstructions() {
  if (HasAvx512()) return "avx512";
  return __builtin_cpu_supports("avx2") ? "avx2" : "scalar";
}

#else

float RowMax(const void* row, DType dtype, int64_t size) { return ScalarMax(row, dtype, 0, size); }
std::string_view RowMaxInstructions() { return "whatever the compiler made of a loop"; }

#endif

}  // namespace sluice::bench
