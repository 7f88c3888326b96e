// Rows and Cuts that fit each other well or badly, for what has to equal the definition on both.
#pragma once

#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "sluice/cut.hpp"
#include "tests/support/random.h"
#include "tests/support/rows.h"

namespace sluice::test {

// Widths around the blocks and vectors that a backend may work in.
inline constexpr int64_t kBlockWidths[] = {1,   2,   7,   15,  16,  17,  31,  32,   33,  63,
                                           64,  65,  95,  96,  127, 128, 129, 191,  192, 193,
                                           255, 256, 257, 511, 513, 640, 999, 1024, 1500};

// A model's row, ties everywhere, one value only, both zeros; some with NaN and infinities.
inline std::vector<float> AnyRow(int64_t vocab, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> row =
      MakeRow(kAllRowKinds[random.Below(std::size(kAllRowKinds))], vocab, random);
  const int64_t shape = random.Below(5);
  for (float& x : row) {
    if (shape == 0) x = 1.5f;
    if (shape == 1) x = random.Coin() ? 0.0f : -0.0f;
    if (shape == 2) x = static_cast<float>(random.Below(3)) - 1.0f;
    if (shape == 2 && x == 0.0f && random.Coin()) x = -0.0f;
  }
  if (random.Coin(0.3)) {
    for (int i = 0; i < 3; ++i) random.Pick(row) = -infinity;
  }
  if (random.Coin(0.1)) random.Pick(row) = infinity;
  if (random.Coin(0.1)) random.Pick(row) = std::numeric_limits<float>::quiet_NaN();
  return row;
}

// Boundaries at values of the row or anywhere, ties of any number: Cuts as rules make them, and
// those of some other row.
inline Cut AnyCut(const std::vector<float>& row, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const int64_t vocab = static_cast<int64_t>(row.size());
  auto value = [&] {
    if (random.Coin(0.05)) return random.Coin() ? infinity : -infinity;
    if (random.Coin(0.02)) return std::numeric_limits<float>::quiet_NaN();
    return random.Coin(0.8) ? random.Pick(row) : static_cast<float>(random.Normal());
  };
  auto ties = [&] {
    if (random.Coin(0.1)) return std::numeric_limits<int32_t>::max();
    if (random.Coin(0.05)) return std::numeric_limits<int32_t>::min();
    return static_cast<int32_t>(random.Coin() ? random.Below(4) : random.Below(vocab + 1));
  };
  Cut cut;
  cut.lower = value();
  cut.ties_kept = ties();
  if (random.Coin()) {
    cut.upper = random.Coin(0.2) ? cut.lower : value();
    cut.ties_dropped = ties();
  }
  if (cut.upper < cut.lower && random.Coin(0.9)) std::swap(cut.upper, cut.lower);
  cut.count = static_cast<int32_t>(random.Below(vocab + 1));
  if (random.Coin(0.05)) cut.status = RowStatus::kNanInput;
  return cut;
}

}  // namespace sluice::test
