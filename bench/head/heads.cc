#include "bench/head/heads.h"

#include <cmath>
#include <utility>

#include "bench/support/rows.h"

namespace sluice::bench {
namespace {

constexpr double kProduct = 120.0;  // ||w|| ||h||
constexpr double kCosine = 0.2;
constexpr double kMeanShare = 0.4;  // of a row's norm
constexpr int64_t kRelated = 64;    // tokens near the most likely one
constexpr size_t kBranches = 16;    // of a node of the tree

// Nearly normal numbers, two a step: sums of four 16-bit fields.
class Normals {
 public:
  explicit Normals(uint64_t seed) : state_(seed) {}
  float Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const uint64_t sum =
        (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48 & 0xffff);
    return (static_cast<float>(sum) - 131070.0f) * (1.0f / 37837.0f);
  }
  uint64_t Below(uint64_t bound) {
    Next();
    return (state_ >> 16) % bound;
  }

 private:
  uint64_t state_;
};

// The directions of the leaves, each with those of its branch and its bough in it; the variance of
// an element is 1.
std::vector<float> Leaves(int64_t vocab, size_t width, Normals& normals) {
  std::vector<float> above;  // the level before
  for (const int64_t rows : {int64_t{8192}, int64_t{512}, int64_t{32}}) {
    const auto nodes = static_cast<size_t>((vocab + rows - 1) / rows);
    std::vector<float> level(nodes * width);
    for (size_t i = 0; i < level.size(); ++i) {
      const size_t parent = i / width / kBranches * width + i % width;
      level[i] = std::sqrt(1.0f / 3.0f) * normals.Next() + (above.empty() ? 0.0f : above[parent]);
    }
    above = std::move(level);
  }
  return above;
}

}  // namespace

MadeHead::MadeHead(int64_t vocab, int64_t dim, int64_t states, double tree_share)
    : vocab_(vocab),
      dim_(dim),
      states_(states),
      weight_(static_cast<size_t>(vocab * dim)),
      hidden_(static_cast<size_t>(2 * states * dim)) {
  const auto width = static_cast<size_t>(dim);
  Normals normals(2024);
  std::vector<float> mean(width);
  for (float& m : mean) m = normals.Next();
  const std::vector<float> leaves =
      tree_share > 0.0 ? Leaves(vocab, width, normals) : std::vector<float>(width);
  const auto of_leaf = static_cast<float>(std::sqrt(tree_share));
  const auto of_row = static_cast<float>(std::sqrt(1.0 - tree_share));
  const double norm_of_row = 1.0 / std::sqrt(static_cast<double>(dim));
  for (size_t v = 0; v < static_cast<size_t>(vocab); ++v) {
    const double norm = norm_of_row * std::exp(0.15 * static_cast<double>(normals.Next()));
    const auto of_mean = static_cast<float>(kMeanShare * norm);
    const auto of_own = static_cast<float>(std::sqrt(1.0 - kMeanShare * kMeanShare) * norm);
    const float* const leaf = &leaves[v % (leaves.size() / width) * width];
    for (size_t j = 0; j < width; ++j) {
      const float own = of_leaf * leaf[j] + of_row * normals.Next();
      weight_[v * width + j] = RoundToBf16(of_mean * mean[j] + of_own * own);
    }
  }
  std::vector<double> state(width);
  for (int64_t r = 0; r < states; ++r) {
    double squares = 0.0;
    for (double& h : state) {
      h = static_cast<double>(normals.Next());
      squares += h * h;
    }
    // The noise is across; along the related rows falling shares of the cosine.
    const double length = std::sqrt(squares);
    for (int64_t n = 0; n < kRelated; ++n) {
      const double share = kCosine * length / (1.0 + 0.25 * static_cast<double>(n));
      const auto v = static_cast<size_t>(normals.Below(static_cast<uint64_t>(vocab)));
      for (size_t j = 0; j < width; ++j) {
        state[j] += share * static_cast<double>(WidenBf16(weight_[v * width + j]));
      }
    }
    squares = 0.0;
    for (const double h : state) squares += h * h;
    for (size_t j = 0; j < width; ++j) {
      const auto h = static_cast<float>(kProduct / std::sqrt(squares) * state[j]);
      const size_t at = static_cast<size_t>(r) * width + j;
      hidden_[at] = RoundToBf16(h);
      hidden_[static_cast<size_t>(states) * width + at] = RoundToBf16(h);
    }
  }
}

MatrixView MadeHead::hidden(int64_t first, int64_t rows) const {
  return {hidden_.data() + first % states_ * dim_, rows, dim_, dim_, DType::kBf16, {}};
}

}  // namespace sluice::bench
