// Rows of scores to rank: fifteen distributions, kind and unkind, equal on every machine.
//
// Uniform, a trend to recent positions, -inf padding and bf16 rounding are what indexers give; the
// others are what broke peers: ties by the thousand, narrow ranges, long tails, ordered rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "semantics/draw/philox.h"
#include "semantics/host_device.h"
#include "semantics/order.h"

namespace sluice::bench {

enum class Scores : uint8_t {
  kNormal,       // N(0, 1)
  kNarrow,       // 5 + 1e-3 N
  kNarrowest,    // 5 + 1e-6 N: two steps of fp32 a deviation
  kUniform,      // (0, 1)
  kAscending,    // N, sorted
  kDescending,   //
  kRelu,         // max(N, 0)
  kRelu99,       // all but 0.6 % are 0
  kExponential,  // exp(4 N)
  kPadded,       // nine of ten are -inf
  kBig,          // 1e6 N
  kConstant,     //
  kNegative,     // -exp(N)
  kRounded,      // N, rounded to bf16
  kRecency,      // 0.5 N and a quadratic ramp to 6
};

struct NamedScores {
  Scores scores;
  std::string_view name;
};
inline constexpr NamedScores kScores[] = {
    {Scores::kNormal, "normal"},
    {Scores::kNarrow, "narrow"},
    {Scores::kNarrowest, "narrowest"},
    {Scores::kUniform, "uniform"},
    {Scores::kAscending, "ascending"},
    {Scores::kDescending, "descending"},
    {Scores::kRelu, "relu"},
    {Scores::kRelu99, "relu99"},
    {Scores::kExponential, "exp"},
    {Scores::kPadded, "padded"},
    {Scores::kBig, "big"},
    {Scores::kConstant, "constant"},
    {Scores::kNegative, "negative"},
    {Scores::kRounded, "rounded"},
    {Scores::kRecency, "recency"},
};

// Row `index` of a distribution, in fp32.
inline std::vector<float> MakeScores(Scores scores, int64_t count, uint32_t index) {
  std::vector<float> row(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const semantics::Block block =
        semantics::Philox(17, index, static_cast<uint32_t>(i), static_cast<uint32_t>(scores), 2);
    const double u = (block.word[0] + 0.5) * 0x1p-32;
    const double n = std::sqrt(-2.0 * std::log(u)) *
                     std::cos(6.283185307179586 * static_cast<double>(block.word[1]) * 0x1p-32);
    const double share = static_cast<double>(i + 1) / static_cast<double>(count);
    double x = n;
    switch (scores) {
      case Scores::kNarrow:
        x = 5 + 1e-3 * n;
        break;
      case Scores::kNarrowest:
        x = 5 + 1e-6 * n;
        break;
      case Scores::kUniform:
        x = u;
        break;
      case Scores::kRelu:
        x = std::max(n, 0.0);
        break;
      case Scores::kRelu99:
        x = n > 2.512 ? n : 0.0;
        break;
      case Scores::kExponential:
        x = std::exp(4 * n);
        break;
      case Scores::kPadded:
        x = block.word[2] % 10 == 0 ? n : -std::numeric_limits<double>::infinity();
        break;
      case Scores::kBig:
        x = 1e6 * n;
        break;
      case Scores::kConstant:
        x = 1.5;
        break;
      case Scores::kNegative:
        x = -std::exp(n);
        break;
      case Scores::kRecency:
        x = 0.5 * n + 6 * share * share;
        break;
      default:
        break;
    }
    float& to = row[static_cast<size_t>(i)];
    to = static_cast<float>(x);
    if (scores == Scores::kRounded) {
      const uint32_t bits = semantics::BitsOf(to);
      to = semantics::FloatOf((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
    }
  }
  if (scores == Scores::kAscending) std::sort(row.begin(), row.end());
  if (scores == Scores::kDescending) std::sort(row.begin(), row.end(), std::greater<>());
  return row;
}

// The indices of the first k in the total order, ascending.
inline std::vector<int32_t> FirstIds(std::span<const float> row, int32_t k) {
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    return semantics::Before({row[static_cast<size_t>(a)], a}, {row[static_cast<size_t>(b)], b});
  };
  const auto count = std::min<size_t>(row.size(), static_cast<size_t>(k));
  const auto end = ids.begin() + static_cast<ptrdiff_t>(count);
  std::nth_element(ids.begin(), end - 1, ids.end(), before);
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// As many indices, of which about so many percent are those of the answer; the rest are any.
inline std::vector<int32_t> MakeHint(std::span<const int32_t> answer, int64_t columns,
                                     double percent, uint32_t index) {
  std::vector<int32_t> hint(answer.begin(), answer.end());
  for (size_t i = 0; i < hint.size(); ++i) {
    const semantics::Block block = semantics::Philox(19, index, static_cast<uint32_t>(i), 0, 2);
    const bool is_hit = block.word[0] * 0x1p-32 * 100 < percent;
    if (!is_hit) hint[i] = static_cast<int32_t>(block.word[1] % static_cast<uint32_t>(columns));
  }
  return hint;
}

}  // namespace sluice::bench
