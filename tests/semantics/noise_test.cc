// The noise over (nearly) all of its domain: one N for each value that fp32 can tell apart.
#include "semantics/draw/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

namespace sluice::semantics {
namespace {

constexpr uint64_t kEnd = uint64_t{1} << 48;
constexpr uint64_t kSeriesEnd = uint64_t{1} << 46;

// Exact enough: log1p and log in fp64.
double ExactExponential(uint64_t n) {
  const double above = (static_cast<double>(n) + 0.5) * 0x1p-48;
  const double below = (static_cast<double>(kEnd - 1 - n) + 0.5) * 0x1p-48;
  return -(above < 0.5 ? std::log1p(-above) : std::log(below)) / std::log(2.0);
}

struct Findings {
  int64_t values = 0;
  int64_t rises = 0;  // g(N) > g(the N checked before, which is smaller)
  double exponential_error = 0.0;
  double gumbel_error = 0.0;
};

// Every `step`-th of the numbers below 2^47 that have 24 significant bits, ascending: number(i) for
// i in [begin, end) gives all values of fl(2 N + 1) on either branch.
uint64_t NumberWith24Bits(uint64_t i) {
  const uint64_t octave = i >> 23;
  const uint64_t significand = (uint64_t{1} << 23) | (i & 0x7fffff);
  return octave >= 24 ? significand << (octave - 24) : significand >> (24 - octave);
}
constexpr uint64_t kNumbers = uint64_t{48} << 23;

Findings Check(uint64_t begin, uint64_t end, uint64_t step) {
  Findings found;
  float previous = Infinity();
  auto visit = [&](uint64_t n) {
    const float e = Exponential(n);
    const float g = Gumbel(n);
    found.rises += g > previous ? 1 : 0;
    previous = g;
    ++found.values;
    if (found.values % 16 != 0) return;  // libm is what takes the time
    const double exact = ExactExponential(n);
    found.exponential_error =
        std::max(found.exponential_error, std::abs(static_cast<double>(e) - exact) / exact);
    found.gumbel_error =
        std::max(found.gumbel_error, std::abs(static_cast<double>(g) + std::log2(exact)));
  };
  // The first half of the numbers is N itself (series), the second the distance from the end.
  for (uint64_t i = begin; i < end; i += step) {
    const bool series = i < kNumbers;
    const uint64_t number = NumberWith24Bits(series ? i : 2 * kNumbers - 1 - i);
    const uint64_t n = series ? number >> 1 : kEnd - 1 - (number >> 1);
    if (series == (n < kSeriesEnd)) visit(n);
  }
  return found;
}

TEST(Noise, NeverRisesAndIsAccurateOverTheWholeDomain) {
  constexpr uint64_t kStep = 3;
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Findings> parts(threads);
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      parts[t] = Check(2 * kNumbers * t / threads, 2 * kNumbers * (t + 1) / threads, kStep);
    });
  }
  Findings all;
  for (unsigned t = 0; t < threads; ++t) {
    pool[t].join();
    all.values += parts[t].values;
    all.rises += parts[t].rises;
    all.exponential_error = std::max(all.exponential_error, parts[t].exponential_error);
    all.gumbel_error = std::max(all.gumbel_error, parts[t].gumbel_error);
  }
  EXPECT_GT(all.values, 200'000'000);
  EXPECT_EQ(all.rises, 0);
  EXPECT_LE(all.exponential_error, 2.8e-7);
  EXPECT_LE(all.gumbel_error, 2e-6);
}

// The two branches meet: no step down where the series ends.
TEST(Noise, BranchesMeetInOrder) {
  for (uint64_t n = kSeriesEnd - 100'000; n < kSeriesEnd + 100'000; ++n) {
    ASSERT_GE(Gumbel(n), Gumbel(n + 1)) << n;
  }
}

TEST(Noise, IsFiniteAtBothEnds) {
  EXPECT_NEAR(Gumbel(0), 48.47, 0.01);  // tolerance: a sanity check of the scale
  EXPECT_NEAR(Gumbel(kEnd - 1), -5.61, 0.01);
}

// Known answers of Random123's kat_vectors for philox4x32 with ten rounds.
TEST(Philox, GivesTheKnownAnswers) {
  const Block zero = Philox(0, 0, 0, 0, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const Block ones =
      Philox(0xffffffffffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu);
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
  const Block pi = Philox(0x299f31d0a4093822u, 0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u);
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

// Written out from the layout in the definition: 16-bit field id & 7 of the block id >> 3, word id
// & 3 of the block id >> 2 of plane 1.
TEST(Noise, EightTokensShareAScreeningBlock) {
  const NoiseKey key{.seed = 0x0123456789abcdefu, .position = 77, .choice = 5};
  const uint32_t s = 0 | 5 << 8;
  for (int32_t id = 0; id < 64; ++id) {
    const uint32_t token = static_cast<uint32_t>(id);
    const Block screen = Philox(key.seed, 77, token / 8, s, 0);
    const uint32_t pair = screen.word[token % 8 / 2];
    const uint64_t high = token % 2 == 0 ? pair & 0xffff : pair >> 16;
    const uint64_t low = Philox(key.seed, 77, token / 4, s, 1).word[token % 4];
    EXPECT_EQ(NoiseBits(key, Stream::kTarget, id), high << 32 | low) << id;
  }
}

}  // namespace
}  // namespace sluice::semantics
