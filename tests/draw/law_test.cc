// Do draws follow the law that the weights state? The exact set is fixed first; then ten million
// draws are counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "semantics/draw/draw.h"
#include "semantics/temperature.h"
#include "tests/support/chi_square.h"
#include "tests/support/run.h"

namespace sluice {
namespace {

constexpr int64_t kDraws = 10'000'000;

struct Law {
  std::vector<float> logits;
  SelectParams params;
  std::vector<int32_t> kept;          // the exact set
  std::vector<double> probabilities;  // of its tokens
};

// Probabilities .5 .3 .15 .05 with top-k 3 and top-p 0.9, and a longer tail at another temperature.
Law ShortLaw() {
  std::vector<float> logits;
  for (const double p : {0.5, 0.3, 0.15, 0.05}) logits.push_back(static_cast<float>(std::log(p)));
  return {logits, {.top_k = 3, .top_p = 0.9f}, {0, 1, 2}, {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95}};
}

Law LongLaw() {
  Law law{{}, {.temperature = 0.7f}, {}, {}};
  double total = 0.0;
  for (int32_t i = 0; i < 12; ++i) {
    const float x = -0.45f * static_cast<float>((i * 5) % 12);
    law.logits.push_back(x);
    law.kept.push_back(i);
    law.probabilities.push_back(std::exp(static_cast<double>(x) / 0.7));
    total += law.probabilities.back();
  }
  for (double& p : law.probabilities) p /= total;
  return law;
}

// Counts by token of draws at seeds and positions as a run has them: one seed for 4096 positions.
std::vector<int64_t> CountDraws(const Law& law, DrawMethod method) {
  const int64_t vocab = static_cast<int64_t>(law.logits.size());
  const LogitsView view{law.logits.data(), 1, vocab, vocab};
  const Cut cut = test::Selected({view, {&law.params, 1}}).cuts[0];
  EXPECT_EQ(test::KeptIds(view, {&cut, 1})[0], law.kept);

  const semantics::Row row{law.logits.data(), DType::kF32, vocab};
  const float max = *std::max_element(law.logits.begin(), law.logits.end());
  const float scale = semantics::ScalesOf(law.params).draw;
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::vector<int64_t>> counts(threads, std::vector<int64_t>(law.logits.size()));
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (int64_t i = t; i < kDraws; i += threads) {
        const NoiseKey key{.seed = static_cast<uint64_t>(i >> 12) * 0x9E3779B97F4A7C15u,
                           .position = static_cast<uint32_t>(i & 4095)};
        const int32_t id = semantics::DrawToken(row, cut, max, scale, method, key);
        ++counts[t][static_cast<size_t>(id)];
      }
    });
  }
  std::vector<int64_t> kept_counts(law.kept.size());
  int64_t inside = 0;
  for (unsigned t = 0; t < threads; ++t) {
    pool[t].join();
    for (size_t i = 0; i < law.kept.size(); ++i) {
      kept_counts[i] += counts[t][static_cast<size_t>(law.kept[i])];
      inside += counts[t][static_cast<size_t>(law.kept[i])];
    }
  }
  EXPECT_EQ(inside, kDraws);  // a dropped token is never drawn
  return kept_counts;
}

void ExpectLaw(const Law& law, DrawMethod method) {
  const test::ChiSquare result = test::ChiSquareOf(CountDraws(law, method), law.probabilities);
  EXPECT_LT(result.statistic, test::ChiSquareLimit(result.degrees_of_freedom));
}

TEST(DrawLaw, GumbelDrawsTheKeptTokensAtTheirRates) { ExpectLaw(ShortLaw(), DrawMethod::kGumbel); }
TEST(DrawLaw, CdfDrawsTheKeptTokensAtTheirRates) { ExpectLaw(ShortLaw(), DrawMethod::kCdf); }
TEST(DrawLaw, GumbelFollowsTemperature) { ExpectLaw(LongLaw(), DrawMethod::kGumbel); }
TEST(DrawLaw, CdfFollowsTemperature) { ExpectLaw(LongLaw(), DrawMethod::kCdf); }

// 10^11 draws would be needed to count a token of probability 1e-9. Instead the rare token's noise
// is integrated exactly: g never rises with N, so for the other token's noise the rare one wins for
// N below some bound, that is with probability bound / 2^48. The mean of 10^5 such probabilities
// has a relative standard deviation of 0.3 %; 2 % is six of them.
TEST(DrawLaw, ARareTokenAppearsAtItsRate) {
  for (const double rate : {1e-3, 1e-6, 1e-9}) {
    const float t = static_cast<float>(std::log2(rate / (1.0 - rate)));
    double sum = 0.0;
    constexpr int kSamples = 100'000;
    for (int i = 0; i < kSamples; ++i) {
      const NoiseKey key{.seed = 99, .position = static_cast<uint32_t>(i)};
      const float rival =
          semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, 0));
      uint64_t low = 0;  // wins below low
      uint64_t high = uint64_t{1} << 48;
      while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (t + semantics::Gumbel(middle) > rival) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      sum += static_cast<double>(low) * 0x1p-48;
    }
    EXPECT_NEAR(sum / kSamples / rate, 1.0, 0.02) << "rate " << rate;
  }
}

// Neighbours share Philox blocks: the 16-bit fields and the words of one block must not move
// together. Pairs of tokens' noise, binned 8 x 8, against independence.
TEST(DrawLaw, NoiseOfNeighboursIsIndependent) {
  constexpr int64_t kSamples = 400'000;
  for (const int32_t distance : {1, 2, 7, 8}) {
    std::vector<int64_t> counts(64);
    for (int64_t i = 0; i < kSamples; ++i) {
      const NoiseKey key{.seed = 7, .position = static_cast<uint32_t>(i)};
      const uint64_t a = semantics::NoiseBits(key, semantics::Stream::kTarget, 16);
      const uint64_t b = semantics::NoiseBits(key, semantics::Stream::kTarget, 16 + distance);
      ++counts[(a >> 45) * 8 + (b >> 45)];
    }
    const test::ChiSquare result = test::ChiSquareOf(counts, std::vector<double>(64, 1.0 / 64));
    EXPECT_LT(result.statistic, test::ChiSquareLimit(result.degrees_of_freedom)) << distance;
  }
}

}  // namespace
}  // namespace sluice
