// The steps of the automaton, and whether a short text can go out without them, as almost all can.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "sluice/stop.hpp"

namespace sluice {

// Amortised constant time: a link leads at least one byte up, an edge exactly one down.
inline uint16_t StopList::Next(uint16_t node, uint8_t byte) const {
  while (node != 0) {
    const Node& at = nodes_[node];
    const Edge* edge = edges_.data() + at.first_edge;
    for (const Edge* end = edge + at.edges; edge != end; ++edge) {
      if (edge->byte == byte) return edge->target;
    }
    node = at.fail;
  }
  return root_[byte];
}

// Which of the first `size` bytes begin a stop, at most 16, where 16 can be read: 0xFF or 0 for
// each. No branch depends on the size, which is hard to predict.
inline StopList::Block StopList::BeginningsIn(const char* padded, size_t size) const {
  static constexpr auto kMasks = [] {
    std::array<uint8_t, 32> masks = {};
    for (size_t i = 0; i < 16; ++i) masks[i] = 0xFF;
    return masks;
  }();
  Block bytes;
  Block mask;
  std::memcpy(bytes.data(), padded, bytes.size());
  std::memcpy(mask.data(), kMasks.data() + mask.size() - size, mask.size());
  Block hits = {};
  for (const Block& first : firsts_) {
    for (size_t i = 0; i < hits.size(); ++i) {
      hits[i] = static_cast<uint8_t>(hits[i] | (bytes[i] == first[i] ? 0xFF : 0));
    }
  }
  for (size_t i = 0; i < hits.size(); ++i) hits[i] &= mask[i];
  return hits;
}

// Bit i is set where byte i is 0xFF and not 0.
inline uint32_t BitsOf(uint64_t bytes) {
  return static_cast<uint32_t>((bytes & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

// kinds: those of the token's bytes.
inline uint32_t StopScanner::BeginningsIn(const char* padded, size_t size, uint8_t kinds) const {
  if ((kinds & first_kinds_) == 0) return 0;
  const StopList& list = *stops_;
  if (list.firsts_.empty()) return (1u << size) - 1;
  const auto hits = std::bit_cast<std::array<uint64_t, 2>>(list.BeginningsIn(padded, size));
  if ((hits[0] | hits[1]) == 0) return 0;
  return BitsOf(hits[0]) | BitsOf(hits[1]) << 8;
}

}  // namespace sluice
