// The same tokens and the same text from every backend, head, batch and chunk, and every way in
// which a choice ends.
#include "sluice/generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sluice/detokenizer.hpp"
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

constexpr HeadChoice kHeads[] = {HeadChoice::kDense, HeadChoice::kDither4, HeadChoice::kStrict};

struct Generated {
  std::vector<std::vector<int32_t>> tokens;  // of each choice
  std::vector<std::string> texts;
  std::vector<GenerationEnd> ends;
  std::vector<Delta> deltas;
  GenerationStats stats;

  bool operator==(const Generated& other) const {
    return tokens == other.tokens && texts == other.texts && ends == other.ends;
  }
};

Generated Generate(const Checkpoint& checkpoint, const GenerationRequest& request,
                   const GeneratorOptions& options = {}) {
  Generator generator(checkpoint, request, options);
  const auto choices = static_cast<size_t>(request.choices);
  Generated result{{},
                   std::vector<std::string>(choices),
                   std::vector<GenerationEnd>(choices),
                   std::vector<Delta>(choices),
                   {}};
  for (auto steps = generator.Step(); !steps.empty(); steps = generator.Step()) {
    for (const ChoiceStep& step : steps) {
      const auto choice = static_cast<size_t>(step.choice);
      EXPECT_EQ(result.ends[choice], GenerationEnd::kNone) << "a step behind the end";
      result.texts[choice] += step.text;
      result.ends[choice] = step.end;
      result.deltas[choice] = step.delta;
    }
  }
  for (int32_t i = 0; i < request.choices; ++i) {
    const auto tokens = generator.OutputTokens(i);
    result.tokens.emplace_back(tokens.begin(), tokens.end());
  }
  result.stats = generator.stats();
  EXPECT_EQ(generator.live_choices(), 0);
  return result;
}

// Parameters that take every way through the head stage.
std::vector<SamplingParams> AllParams() {
  std::vector<SamplingParams> all(13);
  all[0].temperature = 0.0f;
  all[1].temperature = 0.8f;  // whole softmax
  all[2].top_k = 20;
  all[2].top_p = 0.9f;
  all[3].min_p = 0.05f;
  all[4].top_p = 0.8f;  // the mass of all tokens, as far as one of them asks
  all[5].top_k = 10;
  all[5].draw_method = DrawMethod::kCdf;
  all[6].top_k = 10;  // intervals of adjusted logits
  all[6].repetition_penalty = 1.3f;
  all[6].logit_bias = {{17, 3.0f}};
  all[7].top_k = 30;  // adjusted for five tokens, then not
  all[7].min_tokens = 5;
  all[7].stop_token_ids = {1, 2, 3, 4, 5, 6, 7, 8};
  all[8].top_k = 30;
  all[8].logprobs = 3;
  all[9].top_p = 0.9f;
  all[9].repetition_penalty = 0.8f;
  all[9].frequency_penalty = 0.5f;
  all[9].presence_penalty = -0.3f;
  all[10].allowed_token_ids = {{3, 5, 7, 11, 13, 200, 201, 202}};
  all[10].typical_p = 0.9f;
  all[11].dry_multiplier = 2.0f;
  all[11].dry_allowed_length = 1;
  all[11].bad_words = {{17}, {20, 21}};
  all[12].top_p = 0.7f;
  all[12].draw_method = DrawMethod::kCdf;
  return all;
}

class GeneratorOn : public ::testing::TestWithParam<Backend> {};

TEST_P(GeneratorOn, GivesTheDefinitionsTokensWithEveryHeadBatchAndSeed) {
  TinyFiles files;
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  const std::vector<int32_t> prompt = checkpoint.tokenizer().Encode("for you and me");
  uint64_t seed = 100;
  for (SamplingParams params : AllParams()) {
    params.seed = ++seed;
    const GenerationRequest request{
        .params = params, .prompt = prompt, .choices = 5, .max_tokens = 12};
    const Generated expected = Generate(checkpoint, request, {.backend = Backend::kRef});
    for (const HeadChoice head : kHeads) {
      const auto planes = HeadPlanesFor(head, checkpoint, {});
      ASSERT_EQ(planes.has_value(), head != HeadChoice::kDense);
      const Generated generated =
          Generate(checkpoint, request, {.planes = planes, .backend = GetParam()});
      EXPECT_TRUE(generated == expected) << Name(head) << ", seed " << seed;
    }
  }
}

TEST_P(GeneratorOn, GivesAChoiceTheSameTokensInEveryBatch) {
  TinyFiles files;
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  const std::vector<int32_t> prompt = checkpoint.tokenizer().Encode("return 0;");
  GenerationRequest request{.prompt = prompt, .choices = 64, .max_tokens = 6};
  request.params.top_k = 40;
  request.params.seed = 7;
  const auto planes = HeadPlanesFor(HeadChoice::kDither4, checkpoint, {});
  const GeneratorOptions options{.planes = planes, .backend = GetParam()};
  const Generated all = Generate(checkpoint, request, options);
  EXPECT_NE(all.tokens[0], all.tokens[1]);
  for (const int32_t choices : {1, 2, 3, 17}) {
    request.choices = choices;
    const Generated some = Generate(checkpoint, request, options);
    for (size_t i = 0; i < some.tokens.size(); ++i) {
      EXPECT_EQ(some.tokens[i], all.tokens[i]) << i << " of " << choices;
      EXPECT_EQ(some.texts[i], all.texts[i]) << i << " of " << choices;
    }
  }
}

TEST_P(GeneratorOn, GivesTheSameTokensWhateverTheChunksOfThePrompt) {
  TinyFiles files;
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  const std::vector<int32_t> prompt =
      checkpoint.tokenizer().Encode("one prompt that has a few more tokens than a chunk");
  ASSERT_GT(prompt.size(), 18u);
  GenerationRequest request{.prompt = prompt, .choices = 3, .max_tokens = 20};
  request.params.seed = 3;
  const Generated expected = Generate(checkpoint, request, {.backend = GetParam()});
  for (const int64_t chunk : {1, 7, 16, 17}) {
    EXPECT_TRUE(Generate(checkpoint, request, {.prompt_chunk = chunk, .backend = GetParam()}) ==
                expected)
        << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GeneratorOn, ::testing::ValuesIn(AvailableBackends()),
                         [](const auto& param) { return TestNameOf(param.param); });

class GeneratorTest : public ::testing::Test {
 protected:
  static Checkpoint Make(const TinyOptions& options = {}) {
    static std::vector<std::unique_ptr<TinyFiles>> files;  // the weights outlive all checkpoints
    files.push_back(std::make_unique<TinyFiles>(options));
    return Checkpoint::FromFiles(files.back()->view());
  }
  static std::vector<int32_t> Prompt(const Checkpoint& checkpoint) {
    return checkpoint.tokenizer().Encode("It was a dark");
  }
};

TEST_F(GeneratorTest, CountsWhatTheCertifiedHeadServedAndWhyNotTheRest) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  const auto planes = HeadPlanesFor(HeadChoice::kDither4, checkpoint, {});
  const auto stats_of = [&](const SamplingParams& params, const GenerationReports& reports = {}) {
    return Generate(checkpoint, {.params = params, .prompt = prompt, .max_tokens = 12},
                    {.planes = planes, .reports = reports})
        .stats;
  };
  const auto rows_by = [](const GenerationStats& stats, DenseCause cause) {
    return stats.dense_rows[static_cast<size_t>(cause)];
  };
  SamplingParams params;
  params.seed = 1;  // one that draws no stop token
  params.top_k = 5;
  GenerationStats stats = stats_of(params);
  EXPECT_EQ(stats.certified.rows, 12);
  EXPECT_LT(stats.certified.bytes_read, stats.certified.dense_bytes);

  params.min_tokens = 5;
  params.stop_token_ids = {7};
  EXPECT_EQ(stats_of(params).certified.rows, 12);
  stats = stats_of(params, {.masses = true});
  EXPECT_EQ(rows_by(stats, DenseCause::kAdjustments), 5);
  EXPECT_EQ(stats.certified.rows, 7);

  params.repetition_penalty = 1.1f;
  params.logit_bias = {{17, 3.0f}};
  params.bad_words = {{20}};
  stats = stats_of(params);
  EXPECT_EQ(stats.certified.rows, 12);
  EXPECT_EQ(stats.certified.dense_rows, 0);

  params.logprobs = 2;
  stats = stats_of(params);
  EXPECT_EQ(rows_by(stats, DenseCause::kLogprobs), 12);
  EXPECT_EQ(stats.certified.rows, 0);

  params = {.seed = params.seed};
  params.top_p = 0.9f;
  EXPECT_EQ(stats_of(params).certified.rows, 12);
  EXPECT_EQ(rows_by(stats_of(params, {.cuts = true}), DenseCause::kMass), 12);
  params.draw_method = DrawMethod::kCdf;
  EXPECT_EQ(rows_by(stats_of(params), DenseCause::kMass), 12);
}

TEST_F(GeneratorTest, CapsLogitsOfModelsThatDo) {
  const Checkpoint checkpoint = Make({.is_gemma = true});
  ASSERT_EQ(checkpoint.model().info().logit_softcap, 2.0f);
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .max_tokens = 4};
  Generator generator(
      checkpoint, request,
      {.planes = HeadPlanesFor(HeadChoice::kStrict, checkpoint, {}), .reports = {.logits = true}});
  for (auto steps = generator.Step(); !steps.empty(); steps = generator.Step()) {
    const LogitsView logits = generator.logits();
    const std::span values(static_cast<const float*>(logits.data),
                           static_cast<size_t>(logits.vocab));
    EXPECT_LE(*std::max_element(values.begin(), values.end()), 2.0f);
    EXPECT_GT(*std::max_element(values.begin(), values.end()), 1.0f);
  }
  EXPECT_EQ(generator.stats().dense_rows[static_cast<size_t>(DenseCause::kSoftCap)], 4);
}

TEST_F(GeneratorTest, ReportsTheSameOfACertifiedRowAsOfADenseOne) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .choices = 3, .max_tokens = 8};
  request.params.top_k = 12;
  request.params.top_p = 0.9f;
  request.params.seed = 5;
  const GenerationReports reports{.logits = true, .kept = true, .masses = true};
  Generator dense(checkpoint, request, {.reports = reports});
  Generator certified(
      checkpoint, request,
      {.planes = HeadPlanesFor(HeadChoice::kDither4, checkpoint, {}), .reports = reports});
  for (auto steps = dense.Step(); !steps.empty(); steps = dense.Step()) {
    const auto same = certified.Step();
    ASSERT_EQ(steps.size(), same.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].token.cut, same[i].token.cut);
      EXPECT_EQ(steps[i].certificate.path, CertifiedPath::kNothing);
      EXPECT_EQ(same[i].certificate.path, CertifiedPath::kPlanes);
      EXPECT_EQ(dense.masses()[i], certified.masses()[i]);
    }
    EXPECT_TRUE(std::ranges::equal(dense.kept(), certified.kept()));
    const auto bytes = static_cast<size_t>(dense.logits().rows * dense.logits().vocab) * 4;
    EXPECT_EQ(std::memcmp(dense.logits().data, certified.logits().data, bytes), 0);
  }
}

TEST_F(GeneratorTest, TextIsWhatTheTokensSpellBehindThePrompt) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .choices = 4, .max_tokens = 40};
  request.params.seed = 11;
  const Generated generated = Generate(checkpoint, request);
  for (size_t i = 0; i < generated.texts.size(); ++i) {
    Detokenizer detokenizer(checkpoint.tokenizer(), {}, prompt);
    std::string text;
    detokenizer.Step(generated.tokens[i], text);
    detokenizer.Finish(text);
    EXPECT_EQ(generated.texts[i], text);
    EXPECT_EQ(generated.tokens[i].size(), 40u);
    EXPECT_EQ(generated.ends[i], GenerationEnd::kLength);
  }
}

TEST_F(GeneratorTest, EndsAtAStopStringAndShowsItOnlyWhenAsked) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .max_tokens = 40};
  request.params.seed = 11;
  const Generated all = Generate(checkpoint, request);
  const std::string& whole = all.texts[0];
  const std::string stop = checkpoint.tokenizer().Decode({&all.tokens[0][20], 1}) +
                           checkpoint.tokenizer().Decode({&all.tokens[0][21], 1});
  ASSERT_NE(whole.find(stop), std::string::npos);
  request.stops = {"never spelled", stop};
  Generated generated = Generate(checkpoint, request);
  EXPECT_EQ(generated.ends[0], GenerationEnd::kStopString);
  EXPECT_EQ(generated.deltas[0].stop, 1);
  EXPECT_EQ(generated.texts[0], whole.substr(0, whole.find(stop)));
  request.include_stop = true;
  EXPECT_EQ(Generate(checkpoint, request).texts[0], whole.substr(0, whole.find(stop)) + stop);
}

TEST_F(GeneratorTest, EndsAtTheModelsEndTokenUnlessToldNotTo) {
  const Checkpoint plain = Make();
  const std::vector<int32_t> prompt = Prompt(plain);
  GenerationRequest request{.prompt = prompt, .max_tokens = 30};
  request.params.seed = 12;
  const Generated whole = Generate(plain, request);
  const int32_t end = whole.tokens[0][9];
  const Checkpoint ending = Make({.end_tokens = "[" + std::to_string(end) + "]"});
  Generated generated = Generate(ending, request);
  EXPECT_EQ(generated.ends[0], GenerationEnd::kStopToken);
  EXPECT_EQ(generated.deltas[0].stop_token, end);
  EXPECT_EQ(generated.tokens[0].back(), end);
  EXPECT_LE(generated.tokens[0].size(), 10u);
  request.ignores_end = true;
  EXPECT_TRUE(Generate(ending, request) == whole);
  request.ignores_end = false;
  request.params.min_tokens = 20;
  generated = Generate(ending, request);
  EXPECT_GE(generated.tokens[0].size(), 20u);
  EXPECT_EQ(std::count(generated.tokens[0].begin(), generated.tokens[0].begin() + 20, end), 0);
}

TEST_F(GeneratorTest, EndsWhereTheContextIsFull) {
  const Checkpoint checkpoint = Make({.context = 24});
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .choices = 3, .max_tokens = 1000};
  const Generated generated = Generate(checkpoint, request);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(generated.ends[i], GenerationEnd::kContext);
    EXPECT_EQ(generated.tokens[i].size(), 24 - prompt.size());
  }
  request.max_tokens = std::ssize(generated.tokens[0]);
  EXPECT_EQ(Generate(checkpoint, request).ends[0], GenerationEnd::kLength);
}

TEST_F(GeneratorTest, CancelGivesBackWhatWasHeld) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .max_tokens = 40};
  request.params.seed = 11;
  std::string begin;
  Generator free(checkpoint, request);
  for (int i = 0; i < 5; ++i) begin += free.Step()[0].text;
  ASSERT_GT(begin.size(), 0u);

  request.stops = {begin + "\x01"};  // which may still come
  Generator generator(checkpoint, request);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(generator.Step()[0].text, "");
  const auto steps = generator.Cancel();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].end, GenerationEnd::kCancelled);
  EXPECT_EQ(steps[0].text.substr(0, begin.size()), begin);
  EXPECT_TRUE(generator.Step().empty());
  EXPECT_TRUE(generator.Cancel().empty());
}

TEST_F(GeneratorTest, ReportsHaveARowForEachElementOfTheLastStep) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .choices = 4, .max_tokens = 40};
  request.params.seed = 11;
  request.params.logprobs = 2;
  const GeneratorOptions options{.reports = {.logits = true, .kept = true, .masses = true}};
  const auto expect_rows = [&](const Generator& generator, int64_t rows) {
    EXPECT_EQ(generator.hidden().rows, rows);
    EXPECT_EQ(generator.logits().rows, rows);
    EXPECT_EQ(std::ssize(generator.kept()), rows * ((checkpoint.vocab() + 31) / 32));
    EXPECT_EQ(std::ssize(generator.masses()), rows);
    EXPECT_EQ(std::ssize(generator.logprobs().ids), rows * 3);
    EXPECT_EQ(std::ssize(generator.logprobs().values), rows * 3);
  };
  // What one of the choices says, so that they end one after the other.
  Generator free(checkpoint, request);
  for (int i = 0; i < 4; ++i) free.Step();
  request.params.stop_token_ids = {free.OutputTokens(1)[2]};
  {
    Generator generator(checkpoint, request, options);
    expect_rows(generator, 0);
    generator.Prefill();
    expect_rows(generator, 0);
    expect_rows(generator, std::ssize(generator.Step()));
    while (generator.live_choices() == 4) expect_rows(generator, std::ssize(generator.Step()));
    ASSERT_GT(generator.live_choices(), 0);
    const auto rows = static_cast<int64_t>(generator.Step().size());
    ASSERT_LT(rows, 4);
    const std::vector<int32_t> kept(generator.kept().begin(), generator.kept().end());
    EXPECT_GT(generator.Cancel().size(), 0u);
    expect_rows(generator, rows);  // they are the last Step's still
    EXPECT_TRUE(std::ranges::equal(kept, generator.kept()));
    EXPECT_TRUE(generator.Step().empty());
    expect_rows(generator, 0);
  }
  Generator generator(checkpoint, request, options);
  while (!generator.Step().empty()) {
  }
  expect_rows(generator, 0);
}

TEST_F(GeneratorTest, RefusesStopsBeforeItTakesMemory) {
  // A cache of 250 GB.
  const Checkpoint checkpoint = Make({.context = 1 << 20});
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  const GenerationRequest request{
      .prompt = prompt, .choices = 1024, .max_tokens = INT32_MAX, .stops = {"fine", ""}};
  ExpectError([&] { Generator(checkpoint, request); }, "stops[1].size()", "0", "[1, 1024]");
}

TEST_F(GeneratorTest, TakesNoMemoryOnceItIsMade) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{
      .prompt = prompt, .choices = 4, .max_tokens = 30, .stops = {"never spelled"}};
  request.params.top_k = 20;
  for (const HeadChoice head : kHeads) {
    for (const bool is_adjusted : {false, true}) {
      request.params.repetition_penalty = is_adjusted ? 1.1f : 1.0f;
      Generator generator(checkpoint, request, {.planes = HeadPlanesFor(head, checkpoint, {})});
      const int64_t before = AllocationCount();
      while (generator.live_choices() > 0) generator.Step();
      EXPECT_EQ(AllocationCount() - before, 0) << Name(head) << (is_adjusted ? ", adjusted" : "");
    }
  }
}

TEST_F(GeneratorTest, TellsTheSeedThatItHasChosen) {
  const Checkpoint checkpoint = Make();
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  GenerationRequest request{.prompt = prompt, .choices = 2, .max_tokens = 8};
  Generator generator(checkpoint, request);
  while (!generator.Step().empty()) {
  }
  request.params.seed = generator.params().seed;
  ASSERT_TRUE(request.params.seed.has_value());
  const Generated again = Generate(checkpoint, request);
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(
        std::ranges::equal(generator.OutputTokens(i), again.tokens[static_cast<size_t>(i)]));
  }
}

TEST_F(GeneratorTest, NeverDrawsTheVocabularysPadding) {
  const Checkpoint checkpoint = Make({.vocab = 512, .first_loud_row = 427});
  EXPECT_EQ(checkpoint.vocab(), 427);
  const std::vector<int32_t> prompt = Prompt(checkpoint);
  for (const HeadChoice head : kHeads) {
    const Generated generated =
        Generate(checkpoint, {.prompt = prompt, .choices = 4, .max_tokens = 20},
                 {.planes = HeadPlanesFor(head, checkpoint, {})});
    for (const auto& tokens : generated.tokens) {
      EXPECT_LT(*std::max_element(tokens.begin(), tokens.end()), 427);
    }
  }
}

TEST_F(GeneratorTest, RefusesWhatDoesNotFit) {
  const Checkpoint checkpoint = Make({.context = 16});
  const std::vector<int32_t> prompt = {1, 2, 3};
  const std::vector<int32_t> long_prompt(16, 1);
  const std::vector<int32_t> unknown = {1, 427};
  const auto refuse = [&](GenerationRequest request, const std::string& parameter,
                          const std::string& value, const std::string& allowed) {
    if (request.prompt.empty()) request.prompt = prompt;
    ExpectError([&] { Generator(checkpoint, request); }, parameter, value, allowed);
  };
  refuse({.prompt = long_prompt}, "prompt", "16 tokens",
         "1 to 15, so that one more fits into the context");
  refuse({.prompt = unknown}, "prompt", "427", "[0, 426]");
  refuse({.choices = 0}, "choices", "0", "[1, 1024]");
  refuse({.max_tokens = -1}, "max_tokens", "-1", "[0, 2147483647]");
  refuse({.prompt_logprobs = 428}, "prompt_logprobs", "428", "[0, 427]");
  GenerationRequest request;
  request.params.top_p = 1.5f;
  refuse(request, "top_p", "1.5", "(0, 1]");
}

TEST(TruncatePrompt, LeavesOutTheBeginningButItsFirstTokens) {
  std::vector<int32_t> prompt(20);
  for (int32_t i = 0; i < 20; ++i) prompt[static_cast<size_t>(i)] = i;
  EXPECT_EQ(TruncatePrompt(prompt, 30, 5, 1), prompt);
  EXPECT_EQ(TruncatePrompt(prompt, 12, 4, 0), std::vector<int32_t>(prompt.end() - 8, prompt.end()));
  EXPECT_EQ(TruncatePrompt(prompt, 8, 4, 1), (std::vector<int32_t>{0, 17, 18, 19}));
  // Half a context stays for the prompt, however many tokens are asked for.
  EXPECT_EQ(TruncatePrompt(prompt, 8, 1000, 0), (std::vector<int32_t>{16, 17, 18, 19}));
}

TEST_F(GeneratorTest, BuildsNoPlanesByItselfForASmallHead) {
  for (const HeadChoice choice : kHeads) EXPECT_EQ(HeadChoiceByName(Name(choice)), choice);
  ExpectError([] { HeadChoiceByName("big"); }, "head", "\"big\"",
              "auto, dense, dither4, strict or clusters");
  EXPECT_FALSE(HeadPlanesFor(HeadChoice::kAuto, Make(), {}).has_value());
}

}  // namespace
}  // namespace sluice::test
