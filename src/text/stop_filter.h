// Whether a short text can go out without a look at the automaton, as almost all can.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "sluice/stop.hpp"

namespace sluice {

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

// kinds: those of the token's bytes.
inline bool StopScanner::LetsOut(const char* padded, size_t size, uint8_t kinds) const {
  if (!is_idle_) return false;
  const StopList& list = *stops_;
  if ((kinds & list.first_kinds_) == 0) return true;
  if (list.firsts_.empty()) return false;
  const auto hits = std::bit_cast<std::array<uint64_t, 2>>(list.BeginningsIn(padded, size));
  return (hits[0] | hits[1]) == 0;
}

}  // namespace sluice
