// What the top of a row and sums of the rest say of typical sampling is true of every row: the mean
// and the masses lie between their bounds, and a listed token that is told is told rightly. And it
// says enough: of most rows all listed tokens are told.
#include "select/typical_mean.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "semantics/filters/typical.h"
#include "tests/support/rows.h"

namespace sluice::test {
namespace {

struct Tail {
  const char* name;
  std::vector<float> (*row)(int64_t vocab, Random& random);
};

template <typename Value>
std::vector<float> Row(int64_t vocab, Value value) {
  std::vector<float> row;
  for (int64_t i = 0; i < vocab; ++i) row.push_back(static_cast<float>(value(i)));
  return row;
}

const Tail kTails[] = {
    {"mid", [](int64_t vocab, Random& random) { return MakeRow(RowKind::kMid, vocab, random); }},
    {"peaked",
     [](int64_t vocab, Random& random) { return MakeRow(RowKind::kPeaked, vocab, random); }},
    {"normal",
     [](int64_t vocab, Random& random) { return MakeRow(RowKind::kNormal, vocab, random); }},
    {"by rank",
     [](int64_t vocab, Random& random) {
       const double slope = 1.0 + 2.0 * random.Uniform();
       return Row(vocab, [=](int64_t i) { return -slope * std::log(static_cast<double>(i + 1)); });
     }},
    {"near a unit",  // of 2^-24, where weights are cut off
     [](int64_t vocab, Random& random) {
       const double depth = 12.0 + 6.0 * random.Uniform();
       return Row(vocab, [&](int64_t i) {
         return i < 40 ? -3.0 * random.Uniform() : -depth + 0.5 * random.Uniform();
       });
     }},
    {"uniform",
     [](int64_t vocab, Random& random) {
       const double depth = 4.0 + 20.0 * random.Uniform();
       return Row(vocab, [&](int64_t) { return -depth * random.Uniform(); });
     }},
};

constexpr float kShares[] = {0.2f, 0.5f, 0.9f, 0.95f, 0.99f};

// A row as the definition sees it, and as the read does that lists its top.
struct Read {
  std::vector<semantics::Token> sorted;
  std::vector<int64_t> surprises;
  std::vector<uint64_t> weights;
  size_t listed;
  cuda::UnlistedBounds unlisted;
  cuda::MeanBounds mean;

  Read(const std::vector<float>& row, float scale, Random& random) {
    for (size_t id = 0; id < row.size(); ++id)
      sorted.push_back({row[id], static_cast<int32_t>(id)});
    std::sort(sorted.begin(), sorted.end(), semantics::Before);
    for (const semantics::Token& token : sorted) {
      const float t = semantics::LogWeight(token.x, sorted[0].x, scale);
      surprises.push_back(semantics::Surprise(t));
      weights.push_back(semantics::WeightOf(t));
    }
    listed = std::min(sorted.size(), static_cast<size_t>(random.Between(30, 200)));

    // Partial sums of some threads, and weights as inexact as the instruction's.
    constexpr size_t kThreads = 64;
    const size_t sample = static_cast<size_t>(random.Below(std::ssize(sorted) / 20 + 1));
    const float offset = -sorted[sample].x * scale;
    std::vector<float> mass(kThreads), moment(kThreads);
    for (size_t i = listed; i < sorted.size(); ++i) {
      const float y = std::fma(sorted[i].x, scale, offset);
      const float noise = static_cast<float>((random.Uniform() - 0.5) * 0x1p-20);
      const float weight = std::exp2(y) * (1.0f + noise);
      const size_t thread = static_cast<size_t>(sorted[i].id) % kThreads;
      mass[thread] += weight;
      moment[thread] = std::fma(weight, y, moment[thread]);
    }
    float masses = 0.0f, moments = 0.0f;
    for (size_t t = 0; t < kThreads; ++t) {
      masses += mass[t];
      moments += moment[t];
    }
    const float of_max = std::fma(sorted[0].x, scale, offset);
    unlisted = cuda::BoundsOf({.mass = masses,
                               .moment = moments,
                               .replaced_mass = 0.0f,
                               .replaced_moment = 0.0f,
                               .addends = static_cast<int>(sorted.size() / kThreads + 64),
                               .of_max = of_max,
                               .of_unit = std::exp2(-of_max),
                               .tokens = static_cast<float>(sorted.size() - listed)});
    uint64_t upper_sum = 0, surprise_sum = 0;
    for (size_t i = 0; i < listed; ++i) {
      upper_sum += weights[i] >> 16;
      surprise_sum += (weights[i] >> 16) * static_cast<uint64_t>(surprises[i]);
    }
    mean = cuda::MeanOf(unlisted, upper_sum, surprise_sum);
  }

  uint64_t MassOf(size_t begin, size_t end) const {
    uint64_t mass = 0;
    for (size_t i = begin; i < end; ++i) mass += weights[i];
    return mass;
  }
  uint64_t ListedIn(const cuda::NearerTokens::Range& range) const {
    uint64_t mass = 0;
    for (size_t i = 0; i < listed; ++i) {
      if (surprises[i] >= range.from && surprises[i] < range.end) mass += weights[i];
    }
    return mass;
  }
};

TEST(TypicalMean, WhatIsToldOfARowIsTrueAndNearlyAlwaysEnough) {
  Random random(83);
  int64_t rows = 0, known = 0, certain = 0;
  for (const Tail& tail : kTails) {
    SCOPED_TRACE(tail.name);
    for (int round = 0; round < 150; ++round) {
      SCOPED_TRACE(round);
      const int64_t vocab = random.Between(1000, 8000);
      const float temperature = random.Coin() ? 1.0f : 0.7f;
      const float scale = semantics::TemperatureScale(temperature);
      const Read read(tail.row(vocab, random), scale, random);
      const semantics::SortedRow row{read.sorted.data(), std::ssize(read.sorted)};
      const semantics::Interval all{0, row.size};
      const semantics::TypicalMoments moments = semantics::TypicalMomentsOf(row, all, scale);
      ++rows;
      if (!read.mean.are_known) continue;
      ++known;
      ASSERT_LE(read.mean.low, moments.mean);
      ASSERT_GE(read.mean.high, moments.mean);
      const double rest = static_cast<double>(read.MassOf(read.listed, read.sorted.size()));
      ASSERT_LE(static_cast<double>(read.unlisted.least_mass), rest);
      ASSERT_GE(static_cast<double>(read.unlisted.most_mass), rest);

      const float p = kShares[random.Below(std::ssize(kShares))];
      const semantics::Interval kept = semantics::Typical(row, all, p, scale);
      const uint64_t listed = read.MassOf(0, read.listed);
      const auto most_rest = static_cast<uint64_t>(read.unlisted.most_mass) + 1;
      const uint64_t least_target =
          semantics::TargetMass(p, listed + static_cast<uint64_t>(read.unlisted.least_mass));
      const uint64_t most_target = semantics::TargetMass(p, listed + most_rest);
      bool is_certain = true;
      for (size_t i = 0; i < read.listed; ++i) {
        if (read.weights[i] == 0) continue;
        const auto surprise = static_cast<int32_t>(read.surprises[i]);
        const cuda::NearerTokens nearer = cuda::NearerThan(surprise, read.mean);
        uint64_t perhaps = read.ListedIn(nearer.perhaps);
        if (nearer.perhaps.end > read.surprises[read.listed - 1]) perhaps += most_rest;
        const bool is_kept = perhaps < least_target;
        const bool is_dropped = read.ListedIn(nearer.sure) >= most_target;
        const auto place = static_cast<int64_t>(i);
        const bool is_in = place >= kept.begin && place < kept.end;
        ASSERT_FALSE(is_kept && !is_in) << i;
        ASSERT_FALSE(is_dropped && is_in) << i;
        is_certain = is_certain && (is_kept || is_dropped);
      }
      certain += is_certain ? 1 : 0;
    }
  }
  EXPECT_GE(known, rows * 9 / 10);
  EXPECT_GE(certain, known / 2);
  RecordProperty("certain", std::to_string(certain) + " of " + std::to_string(known));
}

}  // namespace
}  // namespace sluice::test
