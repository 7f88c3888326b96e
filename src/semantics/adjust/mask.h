// Stage 3 and stage 5: tokens that must not be drawn become -inf.
//
//   bitmask      one bit a token, int32 words, bit i of word w is token 32 w + i; 0 masks it
//   allowed ids  every other token is masked
//   min-tokens   while fewer than min_tokens were generated, every stop token is masked
#pragma once

#include <span>

#include "semantics/host_device.h"

namespace sluice::semantics {

SLUICE_HD inline bool BitmaskAllows(const int32_t* bitmask, int64_t id) {
  return (static_cast<uint32_t>(bitmask[id >> 5]) >> (id & 31)) & 1u;
}

SLUICE_HD inline void ApplyBitmask(std::span<float> x, const int32_t* bitmask) {
  for (size_t id = 0; id < x.size(); ++id) {
    if (!BitmaskAllows(bitmask, static_cast<int64_t>(id))) x[id] = -Infinity();
  }
}

// allowed: ascending, without duplicates, inside the vocabulary.
SLUICE_HD inline void ApplyAllowedIds(std::span<float> x, std::span<const int32_t> allowed) {
  size_t next = 0;
  for (size_t id = 0; id < x.size(); ++id) {
    if (next < allowed.size() && static_cast<size_t>(allowed[next]) == id) {
      ++next;
    } else {
      x[id] = -Infinity();
    }
  }
}

SLUICE_HD inline bool MasksStops(int32_t min_tokens, int64_t generated) {
  return generated < min_tokens;
}

SLUICE_HD inline void ApplyMinTokens(std::span<float> x, std::span<const int32_t> stop_ids,
                                     int32_t min_tokens, int64_t generated) {
  if (!MasksStops(min_tokens, generated)) return;
  for (const int32_t id : stop_ids) x[static_cast<size_t>(id)] = -Infinity();
}

}  // namespace sluice::semantics
