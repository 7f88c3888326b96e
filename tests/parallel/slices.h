// How tests split a vocabulary among ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "semantics/adjust/mask.h"
#include "sluice/shards.hpp"
#include "tests/support/rows.h"

namespace sluice::test {

// Uneven, by rank, of a token or more each.
inline std::vector<ShardSlice> FilledSlices(int64_t vocab, int32_t ranks, Random& random) {
  std::vector<ShardSlice> slices;
  int64_t first = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    const int64_t left = vocab - first - (ranks - 1 - r);  // a token for each of the others
    const int64_t tokens = r + 1 == ranks ? left : random.Between(1, left);
    slices.push_back({vocab, first, tokens});
    first += tokens;
  }
  return slices;
}

// The slice's columns of the rows and, behind them, padding that must not be read: larger than all.
inline std::vector<std::vector<float>> OwnColumns(const std::vector<std::vector<float>>& rows,
                                                  const ShardSlice& slice, int64_t padding) {
  std::vector<std::vector<float>> own;
  for (const auto& row : rows) {
    own.emplace_back(row.begin() + slice.first_id, row.begin() + slice.first_id + slice.tokens);
    own.back().insert(own.back().end(), static_cast<size_t>(padding), 1e4f);
  }
  return own;
}

// Of rows of allowed tokens: none, a few, half or nearly all of them.
inline std::vector<int32_t> RandomBitmask(size_t rows, int64_t vocab, Random& random) {
  std::vector<int32_t> words(rows * static_cast<size_t>((vocab + 31) / 32));
  const std::vector<double> shares = {0.0, 0.01, 0.5, 0.99};
  const double share = random.Pick(shares);
  for (int32_t& word : words) {
    uint32_t bits = 0;
    for (int b = 0; b < 32; ++b) bits |= (random.Coin(share) ? 1u : 0u) << b;
    word = static_cast<int32_t>(bits);
  }
  return words;
}

// The slice's part of a bitmask of whole rows; none of none.
inline std::vector<int32_t> OwnBits(const std::vector<int32_t>& bitmask, const ShardSlice& slice) {
  const int64_t words = (slice.vocab + 31) / 32;
  const int64_t own_words = (slice.tokens + 31) / 32;
  const int64_t rows = std::ssize(bitmask) / words;
  std::vector<int32_t> own(static_cast<size_t>(rows * own_words));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < slice.tokens; ++v) {
      const bool is_allowed =
          semantics::BitmaskAllows(bitmask.data() + r * words, slice.first_id + v);
      own[static_cast<size_t>(r * own_words + v / 32)] |=
          static_cast<int32_t>((is_allowed ? 1u : 0u) << (v % 32));
    }
  }
  return own;
}

}  // namespace sluice::test
