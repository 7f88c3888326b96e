// Log-probabilities of prompts are those of a naive computation, one position after the other from
// an empty cache, whatever the chunks, the neighbours, the steps in flight and preemptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "engine/runner/aligned_bytes.h"
#include "semantics/draw/logprob.h"
#include "sluice/decoder.hpp"
#include "sluice/engine.hpp"
#include "sluice/generator.hpp"
#include "sluice/head.hpp"
#include "sluice/model_runner.hpp"
#include "sluice/runner_thread.hpp"
#include "sluice/script_runner.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/random_schedule.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

struct Scores {
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  std::vector<int32_t> ids;
  std::vector<float> values;

  friend bool operator==(const Scores&, const Scores&) = default;
};

Scores ScoresOf(const Received& received) {
  return {received.prompt_logprobs, received.prompt_ranks, received.prompt_ids,
          received.prompt_values};
}
Scores ScoresOf(const PromptLogprobs& prompt) {
  const auto all = [](auto span) { return std::vector(span.begin(), span.end()); };
  return {all(prompt.logprobs), all(prompt.ranks), all(prompt.ids), all(prompt.values)};
}

std::vector<int32_t> RandomPrompt(Random& random, int64_t length) {
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& id : prompt) id = static_cast<int32_t>(random.Below(427));
  return prompt;
}

// All logits behind the tokens, from an empty cache.
std::vector<float> LogitsBehind(const Checkpoint& checkpoint, std::span<const int32_t> tokens) {
  Decoder decoder(checkpoint.model(), {.backend = Backend::kRef});
  const int64_t dim = checkpoint.model().info().dim;
  std::vector<float> hidden(static_cast<size_t>(dim));
  const DecodeChunk chunk{.sequence = decoder.Add(), .tokens = tokens};
  decoder.Forward({&chunk, 1}, hidden);
  std::vector<float> logits(static_cast<size_t>(checkpoint.vocab()));
  const MutableLogitsView view{logits.data(), 1, checkpoint.vocab(), checkpoint.vocab()};
  const MatrixView state{hidden.data(), 1, dim, dim};
  engine::AlignedBytes workspace(ProjectWorkspaceBytes(checkpoint.head(), state, {Backend::kRef}));
  Project(checkpoint.head(), state, {}, view, {Backend::kRef, {}, workspace.span()});
  const float cap = checkpoint.model().info().logit_softcap;
  if (cap != 0.0f) CapLogits(cap, view, {Backend::kRef});
  return logits;
}

// By the definition in semantics/draw/logprob.h and the total order, nothing else.
Scores Naive(const Checkpoint& checkpoint, std::span<const int32_t> prompt, int32_t listed) {
  Scores scores;
  for (size_t place = 1; place < prompt.size(); ++place) {
    const std::vector<float> logits = LogitsBehind(checkpoint, prompt.first(place));
    const semantics::Normalizer normalizer =
        semantics::RawNormalizer({logits.data(), DType::kF32, std::ssize(logits)});
    const auto value = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
    const int32_t token = prompt[place];
    scores.logprobs.push_back(normalizer.Logprob(value(token)));
    scores.ranks.push_back(static_cast<int32_t>(
        std::ranges::count_if(logits, [&](float x) { return x >= value(token); })));
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return value(a) > value(b); });
    scores.ids.push_back(token);
    scores.values.push_back(scores.logprobs.back());
    for (int32_t n = 0; n < listed; ++n) {
      scores.ids.push_back(order[static_cast<size_t>(n)]);
      scores.values.push_back(normalizer.Logprob(value(scores.ids.back())));
    }
  }
  return scores;
}

struct Asked {
  EngineRequest request;
  Scores expected;
  std::vector<int32_t> ids = {};  // its output, as it is where nobody's prompt is scored
};

std::vector<int32_t> OutputOf(const Checkpoint& checkpoint, const EngineRequest& request) {
  Generator generator(checkpoint,
                      {.params = request.params,
                       .prompt = request.prompt,
                       .max_tokens = request.max_tokens,
                       .ignores_end = true},
                      {.backend = Backend::kRef});
  while (generator.live_choices() > 0) generator.Step();
  const std::span<const int32_t> ids = generator.OutputTokens(0);
  return {ids.begin(), ids.end()};
}

// Prompts of all lengths, some scored and some not, with and without output.
std::vector<Asked> AllKinds(const Checkpoint& checkpoint) {
  Random random(7);
  std::vector<Asked> all;
  const int64_t lengths[] = {40, 1, 2, 17, 33, 9, 3, 50, 16, 23};
  for (size_t i = 0; i < std::size(lengths); ++i) {
    EngineRequest request = MakeRequest(RandomPrompt(random, lengths[i]), i % 3 == 0 ? 0 : 13);
    request.params.seed = i;
    if (i % 4 == 1) request.params.logprobs = 2;
    // What changes the logits of the output does not change the prompt's.
    if (i % 4 == 2) request.params.repetition_penalty = 1.5f;
    request.params.logprob_mode = LogprobMode::kProcessedLogprobs;
    if (i % 5 != 3) request.prompt_logprobs = static_cast<int32_t>(i % 4 == 0 ? 20 : i % 4 - 1);
    Scores expected;
    if (request.prompt_logprobs.has_value()) {
      expected = Naive(checkpoint, request.prompt, *request.prompt_logprobs);
    }
    all.push_back({request, expected, OutputOf(checkpoint, request)});
  }
  return all;
}

// A checkpoint looks at its files as long as it lives.
struct Tiny {
  explicit Tiny(const TinyOptions& options = {})
      : files(options), checkpoint(Checkpoint::FromFiles(files.view())) {}

  TinyFiles files;
  Checkpoint checkpoint;
};

void ExpectScored(const std::vector<Asked>& all, const Checkpoint& checkpoint,
                  const ModelRunnerOptions& options, int32_t steps_in_flight, bool is_threaded,
                  bool preempts) {
  SCOPED_TRACE(std::to_string(options.max_step_tokens) + " tokens a step, " +
               std::to_string(steps_in_flight) + " in flight, " +
               std::to_string(options.cache_tokens) + " in the cache");
  ModelRunner model(checkpoint, options);
  std::optional<RunnerThread> thread;
  if (is_threaded) thread.emplace(model);
  StepRunner& runner = is_threaded ? static_cast<StepRunner&>(*thread) : model;
  Engine engine(runner, std::nullopt, {.steps_in_flight = steps_in_flight});
  EngineClient client(engine, 20);
  std::vector<RequestAddress> addresses;
  for (const Asked& asked : all) addresses.push_back(client.Submit(asked.request));
  Drain(engine, {&client});
  for (size_t i = 0; i < all.size(); ++i) {
    const Received& received = client.Of(addresses[i]);
    EXPECT_EQ(received.end, GenerationEnd::kLength) << i << " " << received.message;
    EXPECT_EQ(received.ids, all[i].ids) << i;
    EXPECT_TRUE(ScoresOf(received) == all[i].expected) << i;
  }
  EXPECT_EQ(engine.counters().preemptions > 0, preempts);
}

TEST(PromptLogprobs, AreTheDefinitionsForEveryChunkBatchAndPreemption) {
  for (const bool is_gemma : {false, true}) {  // whose logits are capped
    const Tiny tiny({.is_gemma = is_gemma});
    const Checkpoint& checkpoint = tiny.checkpoint;
    const std::vector<Asked> all = AllKinds(checkpoint);
    for (const int64_t step_tokens : {1, 3, 16, 200}) {
      for (const int32_t in_flight : {0, 1}) {
        const ModelRunnerOptions options{
            .max_requests = 8, .max_step_tokens = step_tokens, .max_logprobs = 20};
        ExpectScored(all, checkpoint, options, in_flight, false, false);
      }
    }
    // A quarter of what all of them want.
    const ModelRunnerOptions small{.max_requests = 8, .max_step_tokens = 40, .cache_tokens = 80};
    ExpectScored(all, checkpoint, small, 0, false, true);
    ExpectScored(all, checkpoint, small, 1, true, true);
  }
}

// An engine preempts nobody whose prompt is not there yet; a runner must take it all the same.
TEST(PromptLogprobs, AreNeitherLostNorTwiceWhereAPromptIsReadAgain) {
  const Tiny tiny;
  const std::vector<Asked> all = AllKinds(tiny.checkpoint);
  int64_t preempted = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::vector<Job> jobs;
    std::vector<Scores> expected;
    for (const Asked& asked : all) {
      const auto listed = asked.request.prompt_logprobs;
      jobs.push_back({.params = asked.request.params,
                      .prompt = asked.request.prompt,
                      .max_tokens = asked.request.max_tokens + 1,
                      .prompt_logprob_width = listed.has_value() ? 1 + *listed : 0});
      expected.push_back(asked.expected);
    }
    ModelRunner runner(tiny.checkpoint,
                       {.max_requests = 5, .max_step_tokens = 12, .cache_tokens = 160});
    RandomSchedule schedule(runner, jobs, static_cast<int>(seed % 2), seed);
    schedule.Run();
    preempted += schedule.preempted_scoring();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Job& job = jobs[i];
      EXPECT_EQ(job.failure, "");
      const Scores scores = {job.prompt_logprobs, job.prompt_ranks, job.prompt_ids,
                             job.prompt_values};
      EXPECT_TRUE(scores == expected[i]) << "seed " << seed << ", " << i;
    }
  }
  EXPECT_GT(preempted, 10);
}

TEST(PromptLogprobs, AreTheSameUnderEveryHead) {
  const Tiny tiny;
  const Checkpoint& checkpoint = tiny.checkpoint;
  const ModelRunnerOptions options{.max_requests = 3,
                                   .max_step_tokens = 50,
                                   .planes = HeadPlanesFor(HeadChoice::kDither4, checkpoint, {})};
  ExpectScored(AllKinds(checkpoint), checkpoint, options, 1, false, false);
}

TEST(PromptLogprobs, AGeneratorHasThem) {
  const Tiny tiny;
  const Checkpoint& checkpoint = tiny.checkpoint;
  Random random(3);
  for (const int64_t length : {1, 2, 30}) {
    const std::vector<int32_t> prompt = RandomPrompt(random, length);
    const Scores expected = Naive(checkpoint, prompt, 4);
    for (const int64_t chunk : {1, 7, 512}) {
      for (const int64_t max_tokens : {0, 5}) {
        GenerationRequest request{
            .prompt = prompt, .choices = 2, .max_tokens = max_tokens, .ignores_end = true};
        request.params.seed = 5;
        Generator plain(checkpoint, request, {.prompt_chunk = chunk});
        request.prompt_logprobs = 4;
        Generator scored(checkpoint, request, {.prompt_chunk = chunk});
        while (scored.Prefill() > 0) {
        }
        EXPECT_TRUE(ScoresOf(scored.prompt_logprobs()) == expected) << length << " " << chunk;
        while (plain.live_choices() > 0) {
          const auto steps = plain.Step();
          const auto same = scored.Step();
          ASSERT_EQ(steps.size(), same.size());
          for (size_t i = 0; i < steps.size(); ++i) {
            EXPECT_EQ(steps[i].token.id, same[i].token.id);
            EXPECT_EQ(steps[i].end, same[i].end);
          }
        }
        EXPECT_EQ(scored.live_choices(), 0);
        EXPECT_EQ(std::ssize(scored.OutputTokens(1)), max_tokens);
        EXPECT_EQ(plain.stats().prompt_tokens, max_tokens == 0 ? 0 : length);
      }
    }
  }
}

// More entries than a step may give: the prompt comes in shorter chunks.
TEST(PromptLogprobs, ListsOfTheWholeVocabularyComeInShortPieces) {
  CheckingOptions options;
  options.info.vocab = 40'000;
  options.info.max_logprobs = -1;
  options.info.max_step_tokens = 64;
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt);
  EngineClient client(engine, 4);
  std::vector<EngineRequest> requests;
  for (const int32_t listed : {40'000, 30'000, 0, 700}) {
    requests.push_back(MakeRequest({1, 2, 3, 4, 5, 6, 7, 8}, 2));
    requests.back().prompt_logprobs = listed;
  }
  std::vector<RequestAddress> addresses;
  for (const EngineRequest& request : requests) addresses.push_back(client.Submit(request));
  Drain(engine, {&client});
  for (size_t i = 0; i < requests.size(); ++i) {
    const Received expected = ExpectedOf(requests[i], options);
    EXPECT_TRUE(ScoresOf(client.Of(addresses[i])) == ScoresOf(expected)) << i;
    EXPECT_EQ(client.Of(addresses[i]).ids, expected.ids);
  }
  EXPECT_GT(runner.most_prompt_entries, 1 << 15);
  EXPECT_EQ(client.Of(addresses[0]).prompt_pieces, 7);  // one at a time
  ExpectIdle(engine, runner);
}

TEST(PromptLogprobs, WithoutOutputTheModelReadsWhatItMust) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt);
  EngineClient client(engine, 10);
  EngineRequest request = MakeRequest({1, 2, 3, 4, 5}, 0);
  const RequestAddress nothing = client.Submit(request);
  EXPECT_TRUE(engine.HasWork());
  client.Take(engine.Step());
  EXPECT_EQ(client.Of(nothing).end, GenerationEnd::kLength);
  EXPECT_EQ(engine.counters().prompt_tokens, 0);
  EXPECT_EQ(engine.counters().rejected, 0);

  request.prompt_logprobs = 1;
  const RequestAddress scored = client.Submit(request);
  request.prompt = {1};
  const RequestAddress single = client.Submit(request);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(scored).end, GenerationEnd::kLength);
  EXPECT_EQ(client.Of(scored).prompt_logprobs.size(), 4u);
  EXPECT_TRUE(client.Of(scored).ids.empty());
  EXPECT_EQ(client.Of(single).end, GenerationEnd::kLength);
  EXPECT_TRUE(client.Of(single).prompt_logprobs.empty());
  EXPECT_EQ(engine.counters().prompt_tokens, 4);  // nobody follows the last one
  EXPECT_EQ(runner.begun, 1);
  ExpectIdle(engine, runner);
}

TEST(PromptLogprobs, NoMoreThanTheEngineListsAreTaken) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt);
  EngineClient client(engine, 10);
  for (const int32_t listed : {-1, 6, INT32_MAX}) {
    EngineRequest request = MakeRequest({1, 2});
    request.prompt_logprobs = listed;
    const RequestAddress address = client.Submit(request);
    Drain(engine, {&client});
    EXPECT_EQ(client.Of(address).end, GenerationEnd::kRejected);
    EXPECT_EQ(client.Of(address).parameter, "prompt_logprobs");
    EXPECT_EQ(client.Of(address).message,
              "prompt_logprobs = " + std::to_string(listed) + " is not allowed: [0, 5]");
  }
}

TEST(PromptLogprobs, ARunnerThatBreaksItsPromiseIsTheEndOfTheEngine) {
  static constexpr float kMore[16] = {};
  static constexpr int32_t kIds[16] = {};
  const std::function<void(StepRowResult&)> spoilt[] = {
      [](StepRowResult& row) { row.prompt.logprobs = {}; },
      [](StepRowResult& row) { row.prompt.logprobs = kMore; },
      [](StepRowResult& row) { row.prompt.ranks = std::span(kIds).first(1); },
      [](StepRowResult& row) { ++row.prompt.first_token; },
      [](StepRowResult& row) { row.prompt.width = 1; },
      [](StepRowResult& row) { row.prompt.ids = kIds; },
      [](StepRowResult& row) { row.prompt.values = {}; },
  };
  for (size_t i = 0; i < std::size(spoilt); ++i) {
    CheckingOptions options;
    options.spoil = spoilt[i];
    CheckingRunner runner(options);
    Engine engine(runner, std::nullopt);
    EngineClient client(engine, 2);
    EngineRequest request = MakeRequest({1, 2, 3});
    request.prompt_logprobs = 2;
    client.Submit(request);
    EXPECT_THROW(engine.Step(), Error) << i;
  }
}

// The rows that a plan may not have; the runner goes on behind them.
TEST(PromptLogprobs, ARunnerRefusesARowThatScoresWhatItCannot) {
  ScriptRunner runner({.vocab = 10, .tokens = {1}, .max_step_tokens = 1 << 20});
  const SamplingParams params{.seed = 1};
  const std::vector<int32_t> prompt = {1, 2, 3, 4};
  const std::vector<int32_t> long_prompt(70'000, 1);
  std::vector<RunnerRequest> begun = {
      {.slot = 0, .params = &params, .prompt = prompt, .max_tokens = 1, .prompt_logprob_width = 2},
      {.slot = 1, .params = &params, .prompt = prompt, .max_tokens = 1},
      {.slot = 2, .params = &params, .prompt = long_prompt, .prompt_logprob_width = 1}};
  runner.Launch({.begun = begun});
  runner.Await();
  const auto refuses = [&](const StepRow& row) {
    EXPECT_THROW(runner.Launch({.rows = {&row, 1}}), Error) << row.first_scored << row.scored;
  };
  const auto tokens = std::span(prompt).first(2);
  refuses({.slot = 0, .tokens = tokens, .samples = false, .first_scored = 0, .scored = 1});
  refuses({.slot = 0, .tokens = tokens, .samples = false, .first_scored = 1, .scored = 3});
  refuses({.slot = 0, .tokens = tokens, .samples = false, .first_scored = 3, .scored = 1});
  refuses({.slot = 0, .tokens = tokens, .samples = false, .first_scored = 1, .scored = -1});
  refuses({.slot = 0, .tokens = tokens, .samples = false, .first_scored = 2, .scored = INT64_MAX});
  refuses({.slot = 0, .tokens = prompt, .first_scored = 1, .scored = 4});
  refuses({.slot = 1, .tokens = tokens, .samples = false, .first_scored = 1, .scored = 1});
  refuses({.slot = 2,
           .tokens = std::span(long_prompt).first(69'999),
           .samples = false,
           .first_scored = 1,
           .scored = 69'999});  // too many entries
  const StepRow good{.slot = 0, .tokens = prompt, .first_scored = 1, .scored = 3};
  runner.Launch({.rows = {&good, 1}});
  const PromptLogprobs& scored = runner.Await().rows[0].prompt;
  EXPECT_EQ(ScoresOf(scored).logprobs,
            (std::vector{ScriptLogprob(2), ScriptLogprob(3), ScriptLogprob(4)}));
  EXPECT_EQ(ScoresOf(scored).ids, (std::vector<int32_t>{2, 3, 3, 4, 4, 5}));
}

// An embedding is no number, and so is the logit of its token everywhere.
TEST(PromptLogprobs, ARequestWhosePromptGivesNoNumbersFails) {
  TinyFiles files;
  uint64_t header = 0;
  std::memcpy(&header, files.weights.data(), sizeof(header));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(files.weights.data() + sizeof(header) + header, &nan, sizeof(nan));
  const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  ModelRunner runner(checkpoint, {.max_requests = 4});
  Engine engine(runner, std::nullopt);
  EngineClient client(engine, 4);
  EngineRequest request = MakeRequest({1, 2, 3}, 0);
  request.prompt_logprobs = 1;
  for (const int64_t max_tokens : {0, 3}) {
    request.max_tokens = max_tokens;
    const RequestAddress address = client.Submit(request);
    Drain(engine, {&client});
    EXPECT_EQ(client.Of(address).end, GenerationEnd::kRejected);
    EXPECT_EQ(client.Of(address).code, ErrorCode::kUnavailable);
    EXPECT_EQ(client.Of(address).message,
              "the model's logits after a token of its prompt are no numbers");
    EXPECT_TRUE(client.Of(address).prompt_logprobs.empty());
    EXPECT_TRUE(client.Of(address).ids.empty());
  }
}

TEST(PromptLogprobs, StepsThatScoreTakeNoMemory) {
  const Tiny tiny;
  const Checkpoint& checkpoint = tiny.checkpoint;
  ModelRunner runner(checkpoint, {.max_requests = 4, .max_step_tokens = 8});
  Engine engine(runner, std::nullopt);
  const ClientId client = engine.AddClient();
  Random random(1);
  const auto submit = [&](int32_t slot, uint32_t generation) {
    EngineRequest request = MakeRequest(RandomPrompt(random, 60), 1);
    request.address = {slot, generation};
    request.prompt_logprobs = 20;
    engine.Submit(client, request);
  };
  for (const uint32_t generation : {1u, 2u}) {
    submit(0, generation);
    submit(1, generation);
    engine.Step();  // takes the requests in
    const int64_t before = AllocationCount();
    while (engine.counters().running == 2) engine.Step();
    const int64_t taken = AllocationCount() - before;
    EXPECT_TRUE(generation == 1 || taken == 0) << taken;
    while (engine.HasWork()) engine.Step();
  }
}

}  // namespace
}  // namespace sluice::test
