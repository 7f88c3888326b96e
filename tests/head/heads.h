// Heads and hidden states to certify: shaped like a trained model's, and hostile ones.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "sluice/certified_head.hpp"
#include "tests/support/batch.h"
#include "tests/support/random.h"

namespace sluice::test {

using Rows = std::vector<std::vector<float>>;

enum class HeadKind : uint8_t {
  kNormal,
  kTrained,   // low rank and noise, heavy-tailed norms, outlier dimensions, a common mean
  kTies,      // every row four times
  kZeros,     // every third row and every fifth column
  kHugeNorm,  // a few rows a thousand times as large
  kOneHuge,   // one weight of 1e30 (of fp16: its largest)
  kTiny,      // subnormal, or nearly
};
inline constexpr HeadKind kAllHeadKinds[] = {
    HeadKind::kNormal,   HeadKind::kTrained, HeadKind::kTies, HeadKind::kZeros,
    HeadKind::kHugeNorm, HeadKind::kOneHuge, HeadKind::kTiny,
};

inline Rows MakeHead(HeadKind kind, int64_t vocab, int64_t dim, Random& random) {
  constexpr int64_t kRank = 24;
  Rows basis(kRank);
  for (auto& row : basis) {
    for (int64_t j = 0; j < dim; ++j) row.push_back(static_cast<float>(random.Normal()));
  }
  Rows rows(static_cast<size_t>(vocab));
  for (size_t v = 0; v < rows.size(); ++v) {
    auto& row = rows[v];
    if (kind == HeadKind::kTies && v % 4 != 0) {
      row = rows[v - 1];
      continue;
    }
    const double norm = std::exp(0.4 * random.Normal());
    float share[kRank];
    for (float& s : share) s = static_cast<float>(0.3 * random.Normal());
    for (size_t j = 0; j < static_cast<size_t>(dim); ++j) {
      double x = random.Normal();
      if (kind == HeadKind::kTrained) {
        x = 0.7 * x + 0.5 * static_cast<double>(basis[0][j]);
        for (size_t b = 1; b < kRank; ++b) x += static_cast<double>(share[b] * basis[b][j]);
        x *= norm * (j % 97 == 5 ? 10.0 : 1.0);
      }
      if (kind == HeadKind::kZeros && (v % 3 == 0 || j % 5 == 0)) x = 0.0;
      if (kind == HeadKind::kHugeNorm && v % 50 == 7) x *= 1000.0;
      row.push_back(static_cast<float>(kind == HeadKind::kTiny ? x * 0x1p-132 : 0.04 * x));
    }
  }
  if (kind == HeadKind::kOneHuge) rows[rows.size() / 2][static_cast<size_t>(dim) / 2] = 1e30f;
  return rows;
}

enum class HiddenKind : uint8_t {
  kNormal,
  kPeaked,   // along a row of the head
  kOutlier,  // a few elements a hundred times as large
  kZero,
  kTiny,    // subnormal
  kSparse,  // one element
};
inline constexpr HiddenKind kAllHiddenKinds[] = {
    HiddenKind::kNormal, HiddenKind::kPeaked, HiddenKind::kOutlier,
    HiddenKind::kZero,   HiddenKind::kTiny,   HiddenKind::kSparse,
};

inline std::vector<float> MakeHidden(HiddenKind kind, const Rows& head, Random& random) {
  const auto& along = random.Pick(head);
  double squares = 1e-30;
  for (const float w : along) squares += static_cast<double>(w) * static_cast<double>(w);
  const double root = std::sqrt(static_cast<double>(along.size()));
  std::vector<float> hidden;
  for (size_t j = 0; j < along.size(); ++j) {
    double x = random.Normal();
    if (kind == HiddenKind::kPeaked) {
      x += 0.5 * root * static_cast<double>(along[j]) / std::sqrt(squares);
    }
    if (kind == HiddenKind::kOutlier && j % 61 == 3) x *= 100.0;
    if (kind == HiddenKind::kZero) x = 0.0;
    if (kind == HiddenKind::kTiny) x *= 0x1p-135;
    if (kind == HiddenKind::kSparse && j != along.size() / 3) x = 0.0;
    hidden.push_back(static_cast<float>(x));
  }
  return hidden;
}

// Every other time none; else ordinary numbers, and now and then one that is all of the logit, or
// a negative zero.
inline std::vector<float> MakeBias(int64_t vocab, Random& random) {
  constexpr float kExtremes[] = {1e9f, -1e9f, -0.0f};
  std::vector<float> bias;
  if (random.Coin()) return bias;
  const double extremes = random.Coin() ? 0.02 : 0.0;
  for (int64_t v = 0; v < vocab; ++v) {
    const auto usual = static_cast<float>(random.Normal());
    bias.push_back(random.Coin(extremes) ? kExtremes[random.Below(3)] : usual);
  }
  return bias;
}

inline MatrixView Matrix(const Batch& batch) {
  const LogitsView view = batch.view();
  return {view.data, view.rows, view.vocab, view.stride, view.dtype, view.device};
}

// fp16 has no 1e30.
inline Rows Representable(Rows rows, DType dtype) {
  if (dtype != DType::kF16) return rows;
  for (auto& row : rows) {
    for (float& x : row) x = x > 60000.0f ? 60000.0f : x;
  }
  return rows;
}

}  // namespace sluice::test
