// The rules of a row, one token at a time: as AdjustRow has them, and monotone.
#include "semantics/adjust/token_adjust.h"

#include <gtest/gtest.h>

#include <cmath>

#include "semantics/adjust/token_mask.h"
#include "tests/sampler/stepping.h"

namespace sluice::test {
namespace {

using semantics::TokenAdjust;

std::vector<float> Values(int64_t vocab, Random& random) {
  std::vector<float> x;
  for (int64_t v = 0; v < vocab; ++v) x.push_back(static_cast<float>(4.0 * random.Normal()));
  x[0] = NAN;
  x[1] = -INFINITY;
  x[2] = INFINITY;
  x[3] = -0.0f;
  return x;
}

// Calls check(input, literal) with requests of many kinds, the bias of their input ascending.
template <typename Check>
void ForRequests(int count, int64_t vocab, Random& random, const Check& check) {
  for (int n = 0; n < count; ++n) {
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    for (int64_t i = random.Below(9); i > 0; --i) {
      literal.output.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
    if (random.Coin(0.2)) literal.params.logit_bias.assign(3, {7, 0.3f});
    std::stable_sort(literal.params.logit_bias.begin(), literal.params.logit_bias.end(),
                     [](const BiasEntry& a, const BiasEntry& b) { return a.id < b.id; });
    literal.WithInput([&](semantics::AdjustInput& in) { check(in, literal); });
  }
}

TEST(TokenAdjust, AndTheMaskAreAdjustRowOfEveryToken) {
  Random random(1);
  const int64_t vocab = 75;
  int64_t changed = 0, masked = 0;
  ForRequests(3000, vocab, random, [&](semantics::AdjustInput& in, const LiteralRequest& literal) {
    const std::vector<int32_t> bitmask = RandomBitmask(vocab, 1, random);
    in.bitmask = random.Coin() ? bitmask.data() : nullptr;
    const std::vector<float> x = Values(vocab, random);
    const std::vector<float> expected = literal.Adjusted(x, in.bitmask, -1);
    std::vector<int32_t> words(bitmask.size());
    semantics::MaskTokens(in, words);
    const TokenAdjust adjust(in);
    std::vector<float> found = x;
    int32_t last = -1;
    adjust.ForEach([&](int32_t id, const TokenAdjust::OfToken& token) {
      EXPECT_GT(id, last);
      last = id;
      found[static_cast<size_t>(id)] = adjust.Adjusted(x[static_cast<size_t>(id)], token);
      ++changed;
    });
    for (int32_t id = 0; id < vocab; ++id) {
      const auto at = static_cast<size_t>(id);
      const float alone = adjust.Adjusted(x[at], adjust.Find(id));
      const bool is_allowed = semantics::BitmaskAllows(words.data(), id);
      masked += is_allowed ? 0 : 1;
      const float wanted = expected[at];
      if (!is_allowed) {
        EXPECT_EQ(wanted, -INFINITY) << id;
      } else if (wanted != wanted) {
        EXPECT_TRUE(std::isnan(found[at]) && std::isnan(alone)) << id;
      } else {
        EXPECT_EQ(found[at], wanted) << id;
        EXPECT_EQ(alone, wanted) << id;
      }
      if (in.bitmask == nullptr && !is_allowed) {
        EXPECT_TRUE(semantics::MasksTokens(in));
      }
    }
  });
  EXPECT_GT(changed, 10000);
  EXPECT_GT(masked, 10000);
}

// Steps of one unit in the last place around 0 and around where penalties round, and far ones.
TEST(TokenAdjust, NeverFallsAsTheLogitRises) {
  Random random(2);
  std::vector<float> rising;
  for (const float near : {0.0f, 0.1f, 1.0f, 7.3f, 1e4f, 0x1.fffff8p+127f}) {
    for (const float from : {near, -near}) {
      float x = from;
      for (int i = 0; i < 40; ++i, x = std::nextafter(x, INFINITY)) rising.push_back(x);
    }
  }
  for (int i = 0; i < 200; ++i) rising.push_back(static_cast<float>(random.Normal()));
  std::sort(rising.begin(), rising.end());
  ForRequests(400, 40, random, [&](semantics::AdjustInput& in, const LiteralRequest&) {
    const std::vector<float> penalties = {1.3f, 0.7f, 0x1p-100f, 3e38f, 1.0f};
    in.penalties.repetition = random.Pick(penalties);
    const TokenAdjust adjust(in);
    adjust.ForEach([&](int32_t, const TokenAdjust::OfToken& token) {
      float last = -INFINITY;
      for (const float x : rising) {
        const float y = adjust.Adjusted(x, token);
        ASSERT_LE(last, y) << x;
        last = y;
      }
    });
  });
}

}  // namespace
}  // namespace sluice::test
