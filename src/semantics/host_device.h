// The few words that let this folder compile for the host and, unchanged, for the device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define SLUICE_HD __host__ __device__
#else
#define SLUICE_HD
#endif

namespace sluice::semantics {

__extension__ typedef unsigned __int128 uint128_t;

// Bits and rounding. Every operation below rounds once, to nearest even, with subnormals; the
// compiler may not fuse or reorder (-ffp-contract=off, --fmad=false, no fast-math).
SLUICE_HD inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }
SLUICE_HD inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
SLUICE_HD inline uint64_t BitsOf(double x) { return std::bit_cast<uint64_t>(x); }
SLUICE_HD inline double DoubleOf(uint64_t bits) { return std::bit_cast<double>(bits); }

SLUICE_HD inline float Fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

SLUICE_HD inline double Fma(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

SLUICE_HD inline bool IsNan(float x) { return x != x; }
SLUICE_HD inline float Infinity() { return FloatOf(0x7f800000u); }
SLUICE_HD inline float QuietNan() { return FloatOf(0x7fc00000u); }

// floor(x * 2^32), exact, for x in [0, 1].
SLUICE_HD inline uint64_t Fixed32(float x) {
  return static_cast<uint64_t>(static_cast<double>(x) * 4294967296.0);
}

// floor(x * 2^40), exact, for x in [0, 1].
SLUICE_HD inline uint64_t Fixed40(float x) {
  return static_cast<uint64_t>(static_cast<double>(x) * 1099511627776.0);
}

}  // namespace sluice::semantics
