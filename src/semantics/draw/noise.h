// Noise: a pure function of (seed, position, choice, stream, token id). It does not depend on
// batches, rows or shards, so a request draws the same tokens wherever it runs.
//
// N = h * 2^32 + w has 48 bits: h is a 16-bit field of a block that eight tokens share, so
// one block screens eight tokens, and w is needed only where the bound reaches the best
// score.
#pragma once

#include "semantics/draw/log2.h"
#include "semantics/draw/philox.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

enum class Stream : uint32_t {
  kTarget = 0,
  kDraft = 1,
  kAcceptance = 2,
  kRecovered = 3,
  kXtc = 4,
  kCdf = 5,
};

// The stream of a token's Gumbel noise, and that of a row's cdf draw.
SLUICE_HD inline Stream GumbelStream(const NoiseKey& key) {
  return key.stream == DrawStream::kDraft ? Stream::kDraft : Stream::kTarget;
}

SLUICE_HD inline Stream CdfStream(const NoiseKey& key) {
  return key.stream == DrawStream::kDraft ? Stream::kDraft : Stream::kCdf;
}

// A choice shares its word of the counter with the stream.
SLUICE_HD inline bool IsValid(const NoiseKey& key) { return key.choice < 1u << 24; }

SLUICE_HD inline Block NoiseBlock(const NoiseKey& key, Stream stream, uint32_t index,
                                  uint32_t plane) {
  const uint32_t s = static_cast<uint32_t>(stream) | key.choice << 8;
  return Philox(key.seed, key.position, index, s, plane);
}

// The high 16 bits of N; they bound the noise of a token from above and below.
SLUICE_HD inline uint32_t NoiseHigh(const NoiseKey& key, Stream stream, int32_t id) {
  const uint32_t token = static_cast<uint32_t>(id);
  const Block block = NoiseBlock(key, stream, token >> 3, 0);
  return (block.Word((token & 7) >> 1) >> (16 * (token & 1))) & 0xffffu;
}

SLUICE_HD inline uint32_t NoiseLow(const NoiseKey& key, Stream stream, int32_t id) {
  const uint32_t token = static_cast<uint32_t>(id);
  return NoiseBlock(key, stream, token >> 2, 1).Word(token & 3);
}

SLUICE_HD inline uint64_t NoiseBits(const NoiseKey& key, Stream stream, int32_t id) {
  return static_cast<uint64_t>(NoiseHigh(key, stream, id)) << 32 | NoiseLow(key, stream, id);
}

// An exponential variate in units of ln 2: -log2(1 - U) with U = (N + 1/2) / 2^48. Relative error
// at most 2.8e-7: near 0 the series is used, so that the largest scores keep their precision.
SLUICE_HD inline float Exponential(uint64_t n) {
  if (n < uint64_t{1} << 46) {
    const float u = -(static_cast<float>(2 * n + 1) * 0x1p-49f);
    return -(u * Log2Quotient(u));
  }
  const uint64_t rest = (uint64_t{1} << 48) - 1 - n;
  return -Log2(static_cast<float>(2 * rest + 1) * 0x1p-49f);
}

// A Gumbel variate to base 2. Absolute error at most 2e-6; never rises with N.
SLUICE_HD inline float Gumbel(uint64_t n) { return -Log2(Exponential(n)); }

// A uniform 64-bit number for one row, and the coins of one row.
SLUICE_HD inline uint64_t Uniform64(const NoiseKey& key, Stream stream) {
  const Block block = NoiseBlock(key, stream, 0, 0);
  return static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
}

SLUICE_HD inline uint32_t Uniform32(const NoiseKey& key, Stream stream) {
  return NoiseBlock(key, stream, 0, 0).word[0];
}

SLUICE_HD inline bool XtcCoinFalls(const NoiseKey& key, float probability) {
  return Uniform32(key, Stream::kXtc) < Fixed32(probability);
}

}  // namespace sluice::semantics
