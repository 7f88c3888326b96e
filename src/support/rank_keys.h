// Tokens as integers that ascend in the total order, and sorting them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "semantics/order.h"

namespace sluice {

// x is not NaN. The sign of a zero is lost: the row has it.
inline uint64_t RankKey(semantics::Token token) {
  return static_cast<uint64_t>(~semantics::OrderKey(token.x)) << 32 |
         static_cast<uint32_t>(token.id);
}
inline int32_t IdOfRankKey(uint64_t key) {
  return static_cast<int32_t>(static_cast<uint32_t>(key));
}

// Sorts keys that are given by ascending id, with `scratch` of the same size; the answer lies in
// one of the two. Large lists are sorted by their values alone, digit by digit: each pass keeps the
// order that it finds, so ids stay ascending among equal values.
inline uint64_t* SortRankKeys(uint64_t* keys, uint64_t* scratch, size_t size) {
  if (size < 1024) {
    std::sort(keys, keys + size);
    return keys;
  }
  constexpr int kDigits = 3;
  static constexpr int kBits[kDigits] = {11, 11, 10};
  uint32_t counts[kDigits][1 << 11] = {};
  auto digit = [](uint64_t key, int d) {
    return static_cast<size_t>(key >> (32 + 11 * d)) & ((size_t{1} << kBits[d]) - 1);
  };
  for (size_t i = 0; i < size; ++i) {
    for (int d = 0; d < kDigits; ++d) ++counts[d][digit(keys[i], d)];
  }
  for (int d = 0; d < kDigits; ++d) {
    if (counts[d][digit(keys[0], d)] == size) continue;  // equal in all keys
    uint32_t before = 0;
    for (uint32_t& count : counts[d]) {
      const uint32_t own = count;
      count = before;
      before += own;
    }
    for (size_t i = 0; i < size; ++i) scratch[counts[d][digit(keys[i], d)]++] = keys[i];
    std::swap(keys, scratch);
  }
  return keys;
}

}  // namespace sluice
