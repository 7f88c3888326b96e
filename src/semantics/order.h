// The total order: a before b iff x_a > x_b, or x_a == x_b and id_a < id_b. +0 equals -0.
//
// The one order for greedy, top-k, top-p, logprob lists and shard merges. It is defined for values
// that are not NaN.
#pragma once

#include "semantics/host_device.h"

namespace sluice::semantics {

inline constexpr float kLowestValue = -0x1.fffffep+127f;  // of those that are not masked

struct Token {
  float x;
  int32_t id;
};

SLUICE_HD inline bool Before(const Token& a, const Token& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
}

// Maps values to integers that compare alike, so that values can be bisected, bucketed and merged
// as integers: OrderKey(a) < OrderKey(b) iff a < b. Adding +0 turns -0 into +0.
SLUICE_HD inline uint32_t OrderKey(float x) {
  const uint32_t bits = BitsOf(x + 0.0f);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

SLUICE_HD inline float ValueOfKey(uint32_t key) {
  return FloatOf((key & 0x80000000u) ? key & 0x7fffffffu : ~key);
}

// The least value in [low, high] for which `holds`, which is false up to some value, true from it
// on, and true for `high`.
template <typename Predicate>
SLUICE_HD inline float LeastValue(float low, float high, Predicate holds) {
  uint32_t low_key = OrderKey(low);
  uint32_t high_key = OrderKey(high);
  while (low_key < high_key) {
    const uint32_t middle = low_key + (high_key - low_key) / 2;
    if (holds(ValueOfKey(middle))) {
      high_key = middle;
    } else {
      low_key = middle + 1;
    }
  }
  return ValueOfKey(low_key);
}

// Heapsort: in place, O(n log n) for every input, and it compiles for the device.
SLUICE_HD inline void SortByOrder(Token* tokens, int64_t n) {
  // Restores the heap (last in the order on top) below `root` among the first `size` tokens.
  auto sift_down = [tokens](int64_t root, int64_t size) {
    const Token moved = tokens[root];
    for (int64_t child = 2 * root + 1; child < size; child = 2 * root + 1) {
      if (child + 1 < size && Before(tokens[child], tokens[child + 1])) ++child;
      if (!Before(moved, tokens[child])) break;
      tokens[root] = tokens[child];
      root = child;
    }
    tokens[root] = moved;
  };
  for (int64_t root = n / 2 - 1; root >= 0; --root) sift_down(root, n);
  for (int64_t last = n - 1; last > 0; --last) {
    const Token top = tokens[0];
    tokens[0] = tokens[last];
    tokens[last] = top;
    sift_down(0, last);
  }
}

}  // namespace sluice::semantics
