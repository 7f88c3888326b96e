// What a sampler remembers: histories and their rollback, seeds, slots, and user processors.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "sluice/sampler.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

// What a step would do next for a request that nothing but its tokens are known of.
Stepped FreshStep(const LiteralRequest& literal, std::span<const int32_t> output,
                  const LogitsView& logits) {
  Sampler sampler({.vocab = logits.vocab, .max_requests = 1});
  const StepRequest request{.request = AddTo(sampler, literal)};
  sampler.Accept(request.request, output);
  return StepAll(sampler, logits, {&request, 1});
}

TEST(SamplerState, RollbackLeavesExactlyTheStateBefore) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t vocab = random.Between(5, 40);
    Sampler sampler({.vocab = vocab, .max_requests = 2});
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    literal.params.allowed_token_ids.reset();
    StepRequest request{.request = AddTo(sampler, literal)};
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 10; ++i) rows.push_back(MakeRow(RowKind::kMid, vocab, random));

    std::vector<Stepped> first;
    std::vector<int32_t> output;
    for (const auto& row : rows) {
      const Batch batch({row});
      first.push_back(StepAll(sampler, batch.view(), {&request, 1}));
      if (first.back().tokens[0].id >= 0) output.push_back(first.back().tokens[0].id);
    }
    ASSERT_EQ(output.size(), rows.size());
    const int64_t back = random.Between(1, 10);
    const size_t left = rows.size() - static_cast<size_t>(back);
    sampler.Rollback(request.request, back);
    EXPECT_EQ(sampler.Tokens(request.request).size(), literal.prompt.size() + left);
    for (size_t i = left; i < rows.size(); ++i) {
      const Batch batch({rows[i]});
      const Stepped again = StepAll(sampler, batch.view(), {&request, 1});
      EXPECT_TRUE(SameSequence(again.tokens, first[i].tokens));
      EXPECT_TRUE(SameSequence(again.adjusted, first[i].adjusted));
      EXPECT_EQ(again.masses, first[i].masses);
      const Stepped fresh = FreshStep(literal, std::span(output).first(i), batch.view());
      EXPECT_TRUE(SameSequence(again.tokens, fresh.tokens));
      EXPECT_TRUE(SameSequence(again.adjusted, fresh.adjusted));
    }
  }
}

TEST(SamplerState, RollbackTakesBackAcceptedDraftsToo) {
  Sampler sampler({.vocab = 4, .max_requests = 1});
  const SamplingParams params{.temperature = 0.0f, .frequency_penalty = 1.0f};
  const std::vector<float> row = {0.0f, 10.0f, 0.0f, 0.0f};
  const Batch rows({row, row, row});
  const std::vector<int32_t> drafts = {1, 1};
  const std::vector<int32_t> prompt = {1};
  StepRequest request{.request = sampler.Add({.params = params, .prompt = prompt}),
                      .drafts = drafts};
  StepTokens(sampler, rows.view(), {&request, 1});
  EXPECT_TRUE(SameSequence(sampler.Tokens(request.request), std::vector<int32_t>{1, 1, 1, 1}));
  sampler.Rollback(request.request, 2);
  request.drafts = {};
  const Stepped stepped = StepAll(sampler, rows.row(0), {&request, 1});
  EXPECT_EQ(stepped.adjusted[1], 9.0f);  // one token was generated; the prompt's is not counted
  sampler.Rollback(request.request, 2);
  sampler.Rollback(request.request, 0);
  EXPECT_EQ(StepAll(sampler, rows.row(0), {&request, 1}).adjusted[1], 10.0f);
  EXPECT_EQ(sampler.PromptLength(request.request), 1);
}

TEST(SamplerState, AcceptedTokensCountAsGeneratedOnes) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    const int64_t vocab = random.Between(5, 30);
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    std::vector<int32_t> output;
    for (int i = 0; i < 15; ++i) output.push_back(static_cast<int32_t>(random.Below(vocab)));
    const Batch batch({MakeRow(RowKind::kNormal, vocab, random)});
    const Stepped stepped = FreshStep(literal, output, batch.view());
    literal.output = output;
    std::vector<float> values;
    for (int64_t id = 0; id < vocab; ++id) values.push_back(batch.Get(0, id));
    const auto adjusted = literal.Adjusted(values, nullptr, -1);
    EXPECT_TRUE(SameSequence(stepped.adjusted, adjusted));
    EXPECT_EQ(stepped.tokens[0].id, literal.Sampled(adjusted).id);
  }
}

TEST(SamplerState, AnOutputMayGrowBeyondWhatWasReserved) {
  const SamplingParams params{
      .temperature = 0.0f, .presence_penalty = 1.0f, .dry_multiplier = 1.0f};
  std::vector<int32_t> tokens;
  for (int32_t id = 299; id >= 0; --id) tokens.push_back(id);
  tokens.insert(tokens.end(), {5, 4, 3});  // and 2 would extend the repeat
  const Batch batch({std::vector<float>(300, 0.0f)});
  for (const int32_t reserved : {0, 2}) {
    Sampler sampler({.vocab = 300, .max_requests = 1});
    const RequestHandle handle = sampler.Add({.params = params, .max_new_tokens = reserved});
    for (const int32_t token : tokens) sampler.Accept(handle, {&token, 1});
    EXPECT_TRUE(SameSequence(sampler.Tokens(handle), tokens));
    const StepRequest request{.request = handle};
    EXPECT_EQ(StepAll(sampler, batch.view(), {&request, 1}).adjusted[2], -1.0f - 1.75f);
  }
}

// Drafts found in the history itself, as prompt lookup does, stay readable while it grows.
TEST(SamplerState, DraftsMayBePartOfTheHistory) {
  const std::vector<int32_t> prompt(40, 2);
  const Batch batch(std::vector(31, std::vector<float>{0, 0, 9, 0}));
  Sampler sampler({.vocab = 4});
  const RequestHandle handle =
      sampler.Add({.params = {.temperature = 0.0f}, .prompt = prompt, .max_new_tokens = 0});
  const StepRequest request{.request = handle, .drafts = sampler.Tokens(handle).first(30)};
  StepTokens(sampler, batch.view(), {&request, 1});
  EXPECT_TRUE(SameSequence(sampler.Tokens(handle), std::vector<int32_t>(71, 2)));
}

// "Unlimited" is not a reservation of gigabytes.
TEST(SamplerState, AVeryLongOutputReservesLittle) {
  Sampler sampler({.vocab = 100});
  const RequestHandle handle = sampler.Add({.max_new_tokens = INT32_MAX});
  EXPECT_EQ(sampler.Tokens(handle).size(), 0u);
}

TEST(SamplerState, AnUnseededRequestReportsTheSeedThatReplaysIt) {
  const std::vector<float> flat(200, 0.0f);
  const Batch batch({flat});
  std::set<uint64_t> seeds;
  for (int round = 0; round < 8; ++round) {
    std::vector<int32_t> runs[2];
    SamplingParams params;
    for (std::vector<int32_t>& run : runs) {
      Sampler sampler({.vocab = 200, .max_requests = 1});
      const StepRequest request{.request = sampler.Add({.params = params})};
      params.seed = sampler.Seed(request.request);
      for (int i = 0; i < 10; ++i) StepTokens(sampler, batch.view(), {&request, 1});
      const auto tokens = sampler.Tokens(request.request);
      run.assign(tokens.begin(), tokens.end());
    }
    EXPECT_EQ(runs[0], runs[1]);
    seeds.insert(*params.seed);
  }
  EXPECT_EQ(seeds.size(), 8u);
}

TEST(SamplerState, CompletionsOfOnePromptDifferByTheirChoice) {
  const Batch batch({std::vector<float>(500, 0.0f)});
  Sampler sampler({.vocab = 500, .max_requests = 64});
  SamplingParams params;
  params.seed = 5;
  std::set<int32_t> ids;
  for (uint32_t choice = 0; choice < 64; ++choice) {
    const StepRequest request{.request = sampler.Add({.params = params, .choice = choice})};
    ids.insert(StepTokens(sampler, batch.view(), {&request, 1})[0].id);
  }
  EXPECT_GT(ids.size(), 48u);
}

TEST(SamplerState, ASlotKeepsNothingOfTheRequestBefore) {
  Random random(3);
  const int64_t vocab = 20;
  Sampler sampler({.vocab = vocab, .max_requests = 1});
  for (int round = 0; round < 30; ++round) {
    const LiteralRequest literal = RandomLiteralRequest(vocab, random);
    const StepRequest request{.request = AddTo(sampler, literal)};
    const Batch batch({MakeRow(RowKind::kMid, vocab, random)});
    const Stepped stepped = StepAll(sampler, batch.view(), {&request, 1});
    const Stepped fresh = FreshStep(literal, {}, batch.view());
    EXPECT_TRUE(SameSequence(stepped.tokens, fresh.tokens));
    EXPECT_TRUE(SameSequence(stepped.adjusted, fresh.adjusted));
    sampler.Remove(request.request);
  }
}

TEST(SamplerState, AStepOfNoRequestsIsFine) {
  Sampler sampler({.vocab = 8, .max_requests = 1});
  sampler.Step({{nullptr, 0, 8, 8}, {}}, {});
  Sampler moved = std::move(sampler);
  moved.Step({{nullptr, 0, 8, 8}, {}}, {});
}

// What a processor was called with, and what it does.
struct Recorder {
  std::vector<int32_t> tokens = {};
  size_t prompt_length = 0;
  std::vector<float> seen = {};
  int calls = 0;
  int32_t boosted = 0;
  float boost = 0.0f;

  static void Apply(void* context, std::span<const int32_t> tokens, size_t prompt_length,
                    std::span<float> logits) {
    auto* self = static_cast<Recorder*>(context);
    self->tokens.assign(tokens.begin(), tokens.end());
    self->prompt_length = prompt_length;
    self->seen.assign(logits.begin(), logits.end());
    ++self->calls;
    logits[static_cast<size_t>(self->boosted)] += self->boost;
  }
};

TEST(LogitsProcessor, RunsBehindTheAdjustmentsAndBeforeAForcedToken) {
  Sampler sampler({.vocab = 4, .max_requests = 1});
  Recorder first{.boosted = 2, .boost = 3.0f};
  Recorder second{.boosted = 2, .boost = 4.0f};
  const LogitsProcessor processors[] = {{&first, Recorder::Apply}, {&second, Recorder::Apply}};
  SamplingParams params{.temperature = 0.0f, .presence_penalty = 0.5f};
  params.logit_bias = {{3, 1.0f}};
  const std::vector<int32_t> prompt = {1, 1};
  StepRequest request{
      .request = sampler.Add({.params = params, .prompt = prompt, .processors = processors})};
  const std::vector<int32_t> generated = {0};
  sampler.Accept(request.request, generated);
  const Batch batch({{0.0f, 1.0f, 0.0f, 0.0f}}, DType::kBf16);
  const Stepped stepped = StepAll(sampler, batch.view(), {&request, 1});
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{1, 1, 0}));
  EXPECT_EQ(first.prompt_length, 2u);
  EXPECT_EQ(first.seen, (std::vector<float>{-0.5f, 1.0f, 0.0f, 1.0f}));
  EXPECT_EQ(second.seen, (std::vector<float>{-0.5f, 1.0f, 3.0f, 1.0f}));
  EXPECT_EQ(stepped.adjusted, (std::vector<float>{-0.5f, 1.0f, 7.0f, 1.0f}));
  EXPECT_EQ(stepped.tokens[0].id, 2);

  request.forced = 1;
  const Stepped forced = StepAll(sampler, batch.view(), {&request, 1});
  EXPECT_EQ(forced.tokens[0].id, 1);
  EXPECT_EQ(forced.adjusted[1], 0.0f);
  EXPECT_EQ(forced.adjusted[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(first.calls, 2);
}

TEST(LogitsProcessor, ThatCannotMoveTheArgmaxIsSkippedOnGreedyRowsOnly) {
  Sampler sampler({.vocab = 2, .max_requests = 2});
  const Batch batch({{0.0f, 1.0f}});
  for (const bool reports : {false, true}) {
    for (const float temperature : {0.0f, 1.0f}) {
      Recorder invariant;
      Recorder other;
      const LogitsProcessor processors[] = {{&invariant, Recorder::Apply, true},
                                            {&other, Recorder::Apply, false}};
      for (const size_t count : {size_t{1}, size_t{2}}) {
        const SamplingParams params{.temperature = temperature};
        const StepRequest request{
            .request =
                sampler.Add({.params = params, .processors = std::span(processors).first(count)})};
        if (reports) {
          StepAll(sampler, batch.view(), {&request, 1});
        } else {
          StepTokens(sampler, batch.view(), {&request, 1});
        }
        sampler.Remove(request.request);
      }
      EXPECT_EQ(invariant.calls, temperature == 0.0f ? 0 : 2);
      EXPECT_EQ(other.calls, 1);
    }
  }
}

TEST(LogitsProcessor, MayGiveTheRowAStatus) {
  Sampler sampler({.vocab = 2, .max_requests = 1});
  const Batch batch({{0.0f, 1.0f}});
  const std::pair<float, RowStatus> cases[] = {
      {std::numeric_limits<float>::quiet_NaN(), RowStatus::kNanInput},
      {std::numeric_limits<float>::infinity(), RowStatus::kPosInfInput}};
  for (const auto& [boost, status] : cases) {
    Recorder recorder{.boosted = 1, .boost = boost};
    const LogitsProcessor processor{&recorder, Recorder::Apply};
    const StepRequest request{.request = sampler.Add({.processors = {&processor, 1}})};
    EXPECT_EQ(StepTokens(sampler, batch.view(), {&request, 1})[0].status, status);
    EXPECT_TRUE(sampler.Tokens(request.request).empty());
    sampler.Remove(request.request);
  }
}

TEST(LogitsProcessor, ItsExceptionLeavesTheStepAndItsRequestIsUnchanged) {
  Sampler sampler({.vocab = 2, .max_requests = 2});
  bool throws = true;
  const LogitsProcessor processor{
      &throws, [](void* context, std::span<const int32_t>, size_t, std::span<float>) {
        if (*static_cast<bool*>(context)) throw std::runtime_error("no such grammar");
      }};
  const SamplingParams params{.temperature = 0.0f};
  const StepRequest request{.request =
                                sampler.Add({.params = params, .processors = {&processor, 1}})};
  const Batch batch({{0.0f, 1.0f}});
  for (int i = 0; i < 2; ++i) {  // the second time it must not be the first one's exception
    EXPECT_THROW(StepTokens(sampler, batch.view(), {&request, 1}), std::runtime_error);
    EXPECT_TRUE(sampler.Tokens(request.request).empty());
  }
  throws = false;
  EXPECT_EQ(StepTokens(sampler, batch.view(), {&request, 1})[0].id, 1);
}

}  // namespace
}  // namespace sluice::test
