// The adjustments: every rule by literal small examples, and their order.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/adjust/request.h"
#include "tests/support/any_cut.h"
#include "tests/support/first_difference.h"
#include "tests/support/guarded_row.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Adjust : public AdjustTest {};

TEST_P(Adjust, ChangesNothingWhenNothingIsAsked) {
  const Values values = {1, -2, 0.0f, -0.0f, -kInf, kInf, 0x1p-24f};
  EXPECT_TRUE(SameSequence(
      Adjusted(values, {.min_tokens = 9, .prompt = {0, 1, 2, 3}, .output = {4, 3, 2}}), values));
}

// Bit i of word w is token 32 w + i; bits behind the vocabulary mean nothing.
TEST_P(Adjust, BitmaskKeepsTheTokensOfItsSetBits) {
  Values expected(40, -kInf);
  expected[0] = expected[31] = expected[33] = 1;
  EXPECT_TRUE(SameSequence(
      Adjusted(Values(40, 1.0f),
               {.bitmask = {static_cast<int32_t>(0x80000001u), static_cast<int32_t>(0xffffff02u)}}),
      expected));
}

// Words of all ones, of zeros and of both, at every width, against the definition.
TEST_P(Adjust, MasksEqualTheDefinitionAtEveryWidth) {
  Random random(1);
  for (const int64_t vocab : kBlockWidths) {
    for (int i = 0; i < 20; ++i) {
      const Batch batch({AnyRow(vocab, random)}, dtype());
      Request request;
      for (int64_t w = 0; w < (vocab + 31) / 32; ++w) {
        const uint32_t words[] = {0, 0xffffffffu, static_cast<uint32_t>(random.Bits())};
        request.bitmask.push_back(static_cast<int32_t>(words[random.Below(3)]));
      }
      request.has_allowed = random.Coin();
      for (int32_t id = 0; id < vocab; ++id) {
        if (random.Coin(0.2)) request.allowed.push_back(id);
      }
      Values values;
      for (int64_t id = 0; id < vocab; ++id) values.push_back(batch.Get(0, id));
      Values expected = values;
      semantics::ApplyBitmask(expected, request.bitmask.data());
      if (request.has_allowed) semantics::ApplyAllowedIds(expected, request.allowed);
      ASSERT_TRUE(SameSequence(Adjusted(values, request), expected)) << vocab;
    }
  }
}

// Signalling NaN and subnormals included; nothing behind the row is read.
TEST_P(Adjust, WideningIsExactForEveryPattern) {
  const AdjustTable& table = AdjustTableFor(backend());
  std::vector<uint32_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(i);
    patterns[i] = dtype() == DType::kF32 ? bits << 16 | bits : bits;
  }
  for (const size_t size : {size_t{1}, size_t{15}, size_t{33}, patterns.size()}) {
    const GuardedRow row(Values(size), dtype(), GuardSide::kBack);
    void* data = row.mutable_view().data;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t bits = patterns[patterns.size() - size + i];
      std::memcpy(static_cast<std::byte*>(data) + i * SizeOf(dtype()), &bits, SizeOf(dtype()));
    }
    Values values(size);
    table.widen(data, dtype(), values);
    for (size_t i = 0; i < size; ++i) {
      const uint32_t bits = patterns[patterns.size() - size + i];
      const uint16_t half = static_cast<uint16_t>(bits);
      const float expected =
          dtype() == DType::kF32 ? semantics::FloatOf(bits) : Widened(half, dtype());
      ASSERT_TRUE(SameBits(values[i], expected)) << bits;
    }
  }
}

TEST_P(Adjust, AllowedIdsMaskAllOthers) {
  const Values values = {1, 2, 3, 4};
  EXPECT_TRUE(SameSequence(Adjusted(values, {.has_allowed = true, .allowed = {1, 3}}),
                           Values{-kInf, 2, -kInf, 4}));
}

// Overlapping words (5 6 and 5 6 7), one word twice, one as long as the output, one longer, one of
// a single token, and one that only prompt and output together would match.
TEST_P(Adjust, BadWordsMaskTheTokenThatWouldCompleteThem) {
  const Words words = {{5, 6}, {5, 6, 7}, {6, 0}, {5, 6, 1}, {5, 6, 1}, {9, 5, 6, 2}, {3}};
  const Values values(10, 1.0f);
  auto masked = [&](const Ids& prompt, const Ids& output) {
    const Values x = Adjusted(values, {.bad_words = words, .prompt = prompt, .output = output});
    Ids ids;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == -kInf) ids.push_back(static_cast<int32_t>(i));
    }
    return ids;
  };
  EXPECT_EQ(masked({}, {}), Ids({3}));
  EXPECT_EQ(masked({9, 5}, {}), Ids({3}));            // the prompt is never matched
  EXPECT_EQ(masked({}, {5}), Ids({3, 6}));            // 5 6
  EXPECT_EQ(masked({9}, {5, 6}), Ids({0, 1, 3, 7}));  // 9 5 6 2 would start in the prompt
  EXPECT_EQ(masked({}, {9, 5, 6}), Ids({0, 1, 2, 3, 7}));
  EXPECT_EQ(masked({}, {5, 6, 4}), Ids({3}));  // only the last tokens count
}

TEST_P(Adjust, StopTokensAreMaskedUntilMinTokens) {
  const Values values = {1, 2, 3};
  Request request{.stop_ids = {0, 2}, .min_tokens = 2, .prompt = {1, 1, 1}};
  const Values masked = {-kInf, 2, -kInf};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), masked));
  request.output = {1};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), masked));
  request.output = {1, 1};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), values));
}

// Each entry is clamped by itself; entries of one id add up in order.
TEST_P(Adjust, BiasIsClampedToAHundred) {
  EXPECT_TRUE(SameSequence(
      Adjusted({1, 1, 1, 1, -kInf, 1},
               {.bias = {{0, 0.5f}, {1, 1e9f}, {2, -150}, {3, 100}, {3, 60}, {4, 100}}}),
      Values{1.5f, 101, -99, 161, -kInf, 1}));
}

// Tokens of the prompt or the output, once however often they were seen; zeros of both signs stay.
TEST_P(Adjust, RepetitionDividesPositiveAndMultipliesOtherLogits) {
  const Request request{
      .penalties = {.repetition = 4}, .prompt = {0, 0, 1}, .output = {1, 3, 4, 5}};
  EXPECT_TRUE(SameSequence(Adjusted({2, -1, 2, 0.0f, -0.0f, -kInf}, request),
                           Values{0.5f, -4, 2, 0.0f, -0.0f, -kInf}));
}

// A penalty below 1 rewards; an overflow is the row's business, not an error here.
TEST_P(Adjust, RepetitionBelowOneRaisesSeenTokens) {
  EXPECT_TRUE(
      SameSequence(Adjusted({2, -1, 2}, {.penalties = {.repetition = 0.5f}, .output = {0, 1}}),
                   Values{4, -0.5f, 2}));
  EXPECT_TRUE(
      SameSequence(Adjusted({2, -1}, {.penalties = {.repetition = 0x1p-149f}, .output = {0, 1}}),
                   Values{kInf, -0x1p-149f}));
}

TEST_P(Adjust, FrequencyCountsAndPresenceDoesNot) {
  Request request{.penalties = {.frequency = 0.5f}, .prompt = {0, 0, 1}, .output = {1, 1, 2}};
  const Values values = {1, 1, 1, 1};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{1, 0, 0.5f, 1}));
  request.penalties = {.presence = 2};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{1, -1, -1, 1}));
  request.penalties = {.frequency = -0.5f, .presence = -2};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{1, 4, 3.5f, 1}));
}

// The same request where prompt tokens count as well.
TEST_P(Adjust, FrequencyAndPresenceCountThePromptInProfilesThatDo) {
  Request request{.penalties = {.frequency = 0.5f},
                  .scope = PenaltyScope::kPromptAndOutput,
                  .prompt = {0, 0, 1},
                  .output = {1, 1, 2}};
  const Values values = {1, 1, 1, 1};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{0, -0.5f, 0.5f, 1}));
  request.penalties = {.presence = 2};
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{-1, -1, -1, 1}));
}

// Every operation rounds: above 1 a step of 2^-24 is lost twice, one of 2^-23 would not be.
TEST_P(Adjust, FrequencyAndPresenceRoundOneAfterTheOther) {
  const Request request{.penalties = {.frequency = -0x1p-24f, .presence = -0x1p-24f},
                        .output = {0}};
  EXPECT_TRUE(SameSequence(Adjusted({1}, request), Values{1}));
}

// ... 1 2 3 | 1 2: token 3 would extend a repeat of length 2, token 1 one of length 0.
TEST_P(Adjust, DryLowersTheTokenThatWouldExtendARepeat) {
  Request request{.dry = {.multiplier = 1, .base = 2, .allowed_length = 2},
                  .output = {1, 2, 3, 1, 2}};
  const Values values(6, 0.0f);
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{0, 0, 0, -1, 0, 0}));
  request.dry.allowed_length = 1;
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{0, 0, 0, -2, 0, 0}));
  request.dry.allowed_length = 3;
  EXPECT_TRUE(SameSequence(Adjusted(values, request), values));
  request.dry.multiplier = 0;
  EXPECT_TRUE(SameSequence(Adjusted(values, request), values));
}

// 1 2 3 0 2 3 | 1 2: token 3 follows 1 2 as well as 0 2; the repeat of two tokens counts, though
// the one of a single token is nearer.
TEST_P(Adjust, DryCountsTheLongestRepeatOfAToken) {
  EXPECT_TRUE(SameSequence(
      Adjusted(Values(4, 0.0f), {.dry = {.multiplier = 1, .base = 2, .allowed_length = 1},
                                 .output = {1, 2, 3, 0, 2, 3, 1, 2}}),
      Values{0, 0, 0, -2}));
}

// The repeat may lie in the prompt, reach over its end, and overlap itself.
TEST_P(Adjust, DryLooksAtPromptAndOutputAlike) {
  const semantics::Dry dry{.multiplier = 1, .base = 2, .allowed_length = 1};
  const Values values(6, 0.0f);
  EXPECT_TRUE(SameSequence(Adjusted(values, {.dry = dry, .prompt = {1, 2, 3, 1}, .output = {2}}),
                           Values{0, 0, 0, -2, 0, 0}));
  EXPECT_TRUE(SameSequence(Adjusted(values, {.dry = dry, .prompt = {4, 4}, .output = {4, 4}}),
                           Values{0, 0, 0, 0, -4, 0}));
}

TEST_P(Adjust, DryDoesNotReachAcrossABreaker) {
  const semantics::Dry dry{.multiplier = 1, .base = 2, .allowed_length = 1};
  const Values values(6, 0.0f);
  // 0 1 2 3 ... 0 1 2 with 1 a breaker: the repeat is the 2 alone.
  EXPECT_TRUE(
      SameSequence(Adjusted(values, {.dry = dry, .breakers = {1}, .output = {0, 1, 2, 3, 0, 1, 2}}),
                   Values{0, 0, 0, -1, 0, 0}));
  // Behind a breaker there is nothing to extend.
  EXPECT_TRUE(SameSequence(
      Adjusted(values, {.dry = dry, .breakers = {2}, .output = {0, 1, 2, 3, 0, 1, 2}}), values));
}

// The range counts tokens from the end; what lies before it does not exist.
TEST_P(Adjust, DryLooksAtTheLastTokensOfItsRangeOnly) {
  Request request{.dry = {.multiplier = 1, .base = 2, .allowed_length = 1},
                  .output = {1, 2, 3, 4, 1, 2}};
  const Values values(6, 0.0f);
  const float expected[] = {0, 0, 0, 0, 0, -1, -2, -2};
  for (int32_t range = 0; range < 8; ++range) {
    request.dry.range = range;
    EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{0, 0, 0, expected[range], 0, 0}))
        << range;
  }
  request.dry.range = -1;
  EXPECT_TRUE(SameSequence(Adjusted(values, request), Values{0, 0, 0, -2, 0, 0}));
}

// 1000 times token 1: 1.75^998 is far above the cap. Base 1 never grows.
TEST_P(Adjust, DryPenaltyIsCapped) {
  Request request{.dry = {.multiplier = 0.5f, .base = 1.75f}, .output = Ids(1000, 1)};
  EXPECT_TRUE(SameSequence(Adjusted({0, 0}, request), Values{0, -static_cast<float>(0.5 * 1e30)}));
  request.dry.base = 1;
  EXPECT_TRUE(SameSequence(Adjusted({0, 0}, request), Values{0, -0.5f}));
}

TEST_P(Adjust, ForcedTokenIsZeroAndAllOthersAreMasked) {
  EXPECT_TRUE(SameSequence(Adjusted({1, kNan, kInf, 4}, {}, 1), Values{-kInf, 0, -kInf, -kInf}));
}

// Stages in their order, each pair such that the other order gives another value.
TEST_P(Adjust, BiasComesBeforeRepetition) {
  EXPECT_TRUE(SameSequence(
      Adjusted({1}, {.bias = {{0, 3}}, .penalties = {.repetition = 2}, .output = {0}}), Values{2}));
}

TEST_P(Adjust, RepetitionComesBeforeFrequencyAndPresence) {
  EXPECT_TRUE(
      SameSequence(Adjusted({4}, {.penalties = {.repetition = 2, .frequency = 1, .presence = 0.5f},
                                  .output = {0, 0}}),
                   Values{-0.5f}));
}

TEST_P(Adjust, RepetitionComesBeforeDry) {
  EXPECT_TRUE(SameSequence(Adjusted({4}, {.penalties = {.repetition = 2},
                                          .dry = {.multiplier = 1, .base = 2, .allowed_length = 1},
                                          .output = {0, 0}}),
                           Values{1}));
}

TEST_P(Adjust, NothingBringsAMaskedTokenBack) {
  const Request request{.bitmask = {0b0110},
                        .bias = {{0, 100}},
                        .penalties = {.repetition = 0.5f, .frequency = -2, .presence = -2},
                        .prompt = {0},
                        .output = {0, 3}};
  EXPECT_TRUE(SameSequence(Adjusted({1, 2, 3, 4}, request), Values{-kInf, 2, 3, -kInf}));
}

// Status is decided behind the adjustments: a NaN that every way of masking removes is none, one
// that is left is; and -inf + bias is not NaN.
TEST_P(Adjust, MaskedNanAndInfinityAreNoStatus) {
  const Values values = {kNan, 1, kInf, 2, -kInf};
  auto status = [&](const Request& request, int32_t forced = -1) {
    const Batch batch({Adjusted(values, request, forced)});
    const SelectParams params;
    return Selected({batch.view(), {&params, 1}}).cuts[0].status;
  };
  EXPECT_EQ(status({}), RowStatus::kNanInput);
  EXPECT_EQ(status({.bitmask = {0b11110}}), RowStatus::kPosInfInput);
  EXPECT_EQ(status({.bitmask = {0b11010}}), RowStatus::kOk);
  EXPECT_EQ(status({.has_allowed = true, .allowed = {1, 4}}), RowStatus::kOk);
  EXPECT_EQ(status({.bad_words = {{0}, {2}}}), RowStatus::kOk);
  EXPECT_EQ(status({.stop_ids = {0, 2}, .min_tokens = 1}), RowStatus::kOk);
  EXPECT_EQ(status({.has_allowed = true, .allowed = {4}, .bias = {{4, 100}}}),
            RowStatus::kEmptySupport);
}

TEST_P(Adjust, ForcedTokenWinsOverEveryMask) {
  const Request request{.bitmask = {0}, .bad_words = {{1}}, .stop_ids = {1}, .min_tokens = 1};
  EXPECT_TRUE(SameSequence(Adjusted({1, 2, 3}, request, 1), Values{-kInf, 0, -kInf}));
}

// Comparing every suffix with every other would take minutes here.
TEST_P(Adjust, DryIsLinearOnARepetitiveHistory) {
  Request request;
  request.dry = {.multiplier = 1.0f, .base = 1.0f};
  request.prompt = Ids(500'000, 3);
  EXPECT_EQ(Adjusted({0, 0, 0, 5}, request), (Values{0, 0, 0, 4}));
}

SLUICE_FOR_EACH_BACKEND(Adjust);

}  // namespace
}  // namespace sluice::test
