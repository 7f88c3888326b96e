// Steps with draft tokens: `match` gives the tokens of steps without, `reject` is Verify on the
// adjusted rows; in both, the adjustments of a row see the drafts accepted before it.
#include <gtest/gtest.h>

#include "sluice/sampler.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

class StepDrafts : public BackendTest {
 protected:
  Sampler NewSampler(int64_t vocab) const {
    return Sampler({.vocab = vocab, .max_requests = 4, .backend = backend()});
  }
};

constexpr size_t kPositions = 24;

// Logits and grammar as functions of the position, as a model and a grammar would give them.
struct World {
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<int32_t>> bitmasks;

  World(int64_t vocab, bool masked, Random& random) {
    for (size_t i = 0; i < kPositions; ++i) {
      rows.push_back(MakeRow(kAllRowKinds[random.Bits() % 8], vocab, random));
      bitmasks.push_back(masked ? RandomBitmask(vocab, 1, random) : std::vector<int32_t>{});
    }
  }

  Batch Rows(size_t first, size_t count, DType dtype) const {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
    return Batch({begin, begin + static_cast<std::ptrdiff_t>(count)}, dtype);
  }
  std::vector<int32_t> Bitmask(size_t first, size_t count) const {
    std::vector<int32_t> words;
    for (size_t i = first; i < first + count; ++i) {
      words.insert(words.end(), bitmasks[i].begin(), bitmasks[i].end());
    }
    return words;
  }
};

TEST_P(StepDrafts, MatchGivesTheTokensOfStepsWithoutDrafts) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t vocab = random.Between(8, 40);
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    literal.params.allowed_token_ids.reset();  // an empty support would end the story
    const World world(vocab, random.Coin(), random);

    std::vector<int32_t> undrafted;
    {
      Sampler sampler = NewSampler(vocab);
      StepRequest request{.request = AddTo(sampler, literal)};
      for (size_t i = 0; i < kPositions; ++i) {
        const Batch row = world.Rows(i, 1, dtype());
        const auto bitmask = world.Bitmask(i, 1);
        request.bitmask = bitmask;
        const int32_t id = StepTokens(sampler, row.view(), {&request, 1})[0].id;
        if (id < 0) break;
        undrafted.push_back(id);
      }
    }

    for (const double share_of_right : {0.0, 0.5, 1.0}) {
      Sampler sampler = NewSampler(vocab);
      StepRequest request{.request = AddTo(sampler, literal)};
      std::vector<int32_t> output;
      while (output.size() < undrafted.size()) {
        const size_t at = output.size();
        const size_t most = std::min<size_t>(4, undrafted.size() - at - 1);
        const size_t count = static_cast<size_t>(random.Below(static_cast<int64_t>(most) + 1));
        std::vector<int32_t> drafts;
        for (size_t d = 0; d < count; ++d) {
          const int32_t any = static_cast<int32_t>(random.Below(vocab));
          drafts.push_back(random.Coin(share_of_right) ? undrafted[at + d] : any);
        }
        const Batch rows = world.Rows(at, count + 1, dtype());
        const auto bitmask = world.Bitmask(at, count + 1);
        request.drafts = drafts;
        request.bitmask = bitmask;
        std::vector<int32_t> emitted;
        const auto tokens = StepTokens(sampler, rows.view(), {&request, 1}, &emitted);
        ASSERT_GE(emitted[0], 1);
        size_t right = 0;
        while (right < count && drafts[right] == undrafted[at + right]) ++right;
        EXPECT_EQ(emitted[0], static_cast<int32_t>(right) + 1);
        for (size_t d = 0; d <= count; ++d) {
          const bool is_emitted = d < static_cast<size_t>(emitted[0]);
          EXPECT_EQ(tokens[d].id, is_emitted ? undrafted[at + d] : -1);
          if (is_emitted) output.push_back(tokens[d].id);
        }
      }
      EXPECT_EQ(output, undrafted);
      EXPECT_TRUE(
          SameSequence(sampler.Tokens(request.request).subspan(literal.prompt.size()), undrafted));
    }
  }
}

enum class Source { kCertain, kGiven, kSluice };

TEST_P(StepDrafts, RejectIsVerifyOnTheAdjustedRows) {
  Random random(2);
  int64_t accepted_drafts = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t vocab = random.Between(4, 30);
    const size_t n = static_cast<size_t>(vocab);
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    literal.params.draft_mode = DraftMode::kReject;
    literal.params.allowed_token_ids.reset();
    const World world(vocab, random.Coin(0.3), random);
    const size_t count = static_cast<size_t>(random.Between(1, 4));
    const Batch rows = world.Rows(0, count + 1, dtype());
    const auto bitmask = world.Bitmask(0, count + 1);

    // The draft model sees nearly the same logits, or the drafts would never be accepted.
    std::vector<std::vector<float>> draft_rows(
        world.rows.begin(), world.rows.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<std::vector<float>> given(count, std::vector<float>(n));
    for (size_t d = 0; d < count; ++d) {
      draft_rows[d][random.Bits() % n] += 1.0f;
      for (float& q : given[d]) q = static_cast<float>(random.Uniform() / static_cast<double>(n));
    }
    const Batch draft_model(draft_rows, dtype());
    const Batch probabilities(given);
    const SelectParams draft_params{.top_k = 5};
    std::vector<NoiseKey> draft_keys(count);
    for (size_t d = 0; d < count; ++d) {
      draft_keys[d] = literal.Key();
      draft_keys[d].position += static_cast<uint32_t>(d);
    }
    const SelectInput draft_input{draft_model.view(), {&draft_params, 1}, draft_keys};
    const auto draft_results = sluice::test::Sampled(draft_input);
    std::vector<int32_t> drafts;
    std::vector<Cut> draft_cuts;
    for (const TokenResult& result : draft_results) {
      drafts.push_back(result.status == RowStatus::kOk ? result.id : 0);
      draft_cuts.push_back(result.cut);
    }

    for (const Source source : {Source::kCertain, Source::kGiven, Source::kSluice}) {
      Sampler sampler = NewSampler(vocab);
      StepRequest request{.request = AddTo(sampler, literal), .drafts = drafts, .bitmask = bitmask};
      const LogitsView q = probabilities.view();
      if (source == Source::kGiven) {
        request.draft_probabilities = {q.data, q.rows, q.vocab, q.stride, q.dtype, q.device};
      } else if (source == Source::kSluice) {
        request.draft_model = draft_input;
        request.draft_cuts = draft_cuts;
      }
      const Stepped stepped = StepAll(sampler, rows.view(), {&request, 1});

      LiteralRequest expected = literal;
      bool goes_on = true;
      int32_t emitted = 0;
      for (size_t d = 0; d <= count; ++d) {
        const int64_t r = static_cast<int64_t>(d);
        if (!goes_on) {
          EXPECT_TRUE(SameBits(stepped.tokens[d], TokenResult{}));
          continue;
        }
        std::vector<float> values;
        for (int64_t id = 0; id < vocab; ++id) values.push_back(rows.Get(r, id));
        const size_t words = (n + 31) / 32;
        const auto adjusted =
            expected.Adjusted(values, bitmask.empty() ? nullptr : bitmask.data() + d * words, -1);
        TokenResult result = expected.Sampled(adjusted);
        if (d < count) {
          // One request with this one draft; its bonus row is not looked at here.
          const Batch two({adjusted, std::vector<float>(n, 0.0f)}, DType::kF32);
          const SelectParams select = literal.params.Select();
          const NoiseKey key = expected.Key();
          const std::vector<int64_t> first_row = {0, 2};
          const std::vector<int32_t> ids = {drafts[d], -1};
          Drafts one{.first_row = first_row, .ids = ids};
          const Batch two_q({given[d], given[d]});
          const Batch two_draft_rows({draft_rows[d], draft_rows[d]}, dtype());
          const std::vector<Cut> two_cuts(2, draft_cuts[d]);
          const LogitsView own_q = two_q.view();
          if (source == Source::kGiven) {
            one.probabilities = {own_q.data,   own_q.rows,  own_q.vocab,
                                 own_q.stride, own_q.dtype, own_q.device};
          } else if (source == Source::kSluice) {
            one.model = {two_draft_rows.view(), {&draft_params, 1}, {&key, 1}};
            one.model_cuts = two_cuts;
          }
          std::vector<TokenResult> results(2);
          std::vector<int32_t> counts(1);
          const Workspace workspace(VerifyWorkspaceBytes(two.view(), {backend()}));
          Verify({two.view(), {&select, 1}, {&key, 1}}, one, DraftMode::kReject,
                 literal.params.draw_method, results, counts, {backend(), {}, workspace.span()});
          result = results[0];
          goes_on = counts[0] == 2;
          accepted_drafts += goes_on ? 1 : 0;
        }
        result.logprob = stepped.tokens[d].logprob;  // see sampler_test.cc
        result.rank = stepped.tokens[d].rank;
        ASSERT_TRUE(SameBits(stepped.tokens[d], result))
            << ::testing::PrintToString(stepped.tokens[d]) << " instead of "
            << ::testing::PrintToString(result);
        if (result.id < 0) break;
        expected.output.push_back(result.id);
        ++emitted;
      }
      EXPECT_EQ(stepped.emitted[0], emitted);
      EXPECT_TRUE(SameSequence(sampler.Tokens(request.request).subspan(literal.prompt.size()),
                               expected.output));
    }
  }
  EXPECT_GT(accepted_drafts, 200);
}

TEST_P(StepDrafts, PenaltiesSeeTheDraftsAcceptedBefore) {
  // Each token wins until it has been generated once.
  Sampler sampler = NewSampler(3);
  const SamplingParams params{.temperature = 0.0f, .presence_penalty = 2.0f};
  const std::vector<float> row = {3.0f, 2.0f, 1.5f};
  const Batch rows({row, row, row}, dtype());
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    SamplingParams own = params;
    own.draft_mode = mode;
    const std::vector<int32_t> drafts = {0, 1};
    const StepRequest request{.request = sampler.Add({.params = own}), .drafts = drafts};
    std::vector<int32_t> emitted;
    const auto tokens = StepTokens(sampler, rows.view(), {&request, 1}, &emitted);
    EXPECT_EQ(emitted[0], 3);
    EXPECT_EQ(tokens[0].id, 0);
    EXPECT_EQ(tokens[1].id, 1);
    EXPECT_EQ(tokens[2].id, 2);
  }
}

TEST_P(StepDrafts, AForcedTokenIsTheFirstRowsAlone) {
  const std::vector<float> row = {0.0f, 1.0f, 0.0f, 0.0f};
  const Batch rows({row, row}, dtype());
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    for (const int32_t draft : {1, 3}) {
      Sampler sampler = NewSampler(4);
      SamplingParams params{.temperature = 0.0f};
      params.draft_mode = mode;
      const StepRequest request{
          .request = sampler.Add({.params = params}), .drafts = {&draft, 1}, .forced = 3};
      std::vector<int32_t> emitted;
      const auto tokens = StepTokens(sampler, rows.view(), {&request, 1}, &emitted);
      EXPECT_EQ(tokens[0].id, 3);
      EXPECT_EQ(emitted[0], draft == 3 ? 2 : 1);
      EXPECT_EQ(tokens[1].id, draft == 3 ? 1 : -1);
    }
  }
}

TEST_P(StepDrafts, RowsBehindARejectionAreBlankInEveryOutput) {
  Sampler sampler = NewSampler(4);
  const SamplingParams params{.temperature = 0.0f, .logprobs = 1};
  const std::vector<float> row = {0.0f, 1.0f, 0.0f, 0.0f};
  const Batch rows({row, row, row}, dtype());
  const std::vector<int32_t> drafts = {3, 1};  // the first is wrong
  const StepRequest request{.request = sampler.Add({.params = params}), .drafts = drafts};
  const Stepped stepped = StepAll(sampler, rows.view(), {&request, 1}, 2);
  EXPECT_EQ(stepped.emitted[0], 1);
  EXPECT_EQ(stepped.kept, (std::vector<int32_t>{0b0010, 0, 0}));
  for (size_t r = 1; r < 3; ++r) {
    EXPECT_TRUE(SameBits(stepped.tokens[r], TokenResult{}));
    EXPECT_EQ(stepped.masses[r], CutMass{});
    EXPECT_EQ(stepped.ids[2 * r], -1);
    EXPECT_TRUE(stepped.values[2 * r] != stepped.values[2 * r]);
  }
}

TEST_P(StepDrafts, AStatusEndsTheTokensOfARequest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> good = {0.0f, 1.0f};
  const Batch rows({good, {nan, 1.0f}, good}, dtype());
  const std::vector<int32_t> drafts = {1, 1};
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    Sampler sampler = NewSampler(2);
    SamplingParams params{.temperature = 0.0f};
    params.draft_mode = mode;
    const StepRequest request{.request = sampler.Add({.params = params}), .drafts = drafts};
    std::vector<int32_t> emitted;
    const auto tokens = StepTokens(sampler, rows.view(), {&request, 1}, &emitted);
    EXPECT_EQ(emitted[0], 1);
    EXPECT_EQ(tokens[1].status, RowStatus::kNanInput);
    EXPECT_TRUE(SameBits(tokens[2], TokenResult{}));
    EXPECT_EQ(sampler.Tokens(request.request).size(), 1u);
  }
}

SLUICE_FOR_EACH_BACKEND(StepDrafts);

}  // namespace
}  // namespace sluice::test
