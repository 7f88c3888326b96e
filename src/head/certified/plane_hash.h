// The hashes of a file of planes. They notice accidents (another model, a damaged file), not
// malice: 64 bits, every step of which is invertible, so that one changed word always shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "sluice/execution.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

inline uint64_t MixedHash(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

// Four chains, so that it runs at the speed of memory.
inline uint64_t HashOf(std::span<const std::byte> bytes) {
  uint64_t chain[4] = {1, 2, 3, 4};
  size_t i = 0;
  const auto word = [&](size_t at, size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  for (; i + 32 <= bytes.size(); i += 32) {
    for (size_t c = 0; c < 4; ++c) chain[c] = MixedHash(chain[c], word(i + 8 * c, 8));
  }
  uint64_t hash = bytes.size();
  for (; i < bytes.size(); i += 8) {
    hash = MixedHash(hash, word(i, bytes.size() - i < 8 ? bytes.size() - i : 8));
  }
  for (const uint64_t c : chain) hash = MixedHash(hash, c);
  return hash;
}

// Of the elements, without the padding between rows. Both run on the caller's parallel-for.
uint64_t HashOfWeights(const MatrixView& weight, const ParallelFor& parallel);
uint64_t HashOfPlanes(std::span<const std::byte> sections, const ParallelFor& parallel);

}  // namespace sluice
