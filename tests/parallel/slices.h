// How tests split a vocabulary among ranks.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace sluice::test
