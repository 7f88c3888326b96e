// A thinking budget: where reasoning ends, for every way to cut its markers into tokens.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/thinking/thinking_mask.h"
#include "sluice/runner_thread.hpp"
#include "sluice/sampler.hpp"
#include "sluice/script_runner.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/tiny_runner.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

using engine::SpelledEnd;
using engine::ThinkingMask;
using Texts = std::vector<std::string>;
constexpr std::string_view kBegin = "<think>";
constexpr std::string_view kEnd = "</think>";

// Every part of the markers but the whole, and text around them. Tokens are found by their text.
struct Vocabulary {
  explicit Vocabulary(std::vector<TestToken> added = {}) : tokens(std::move(added)) {
    for (const std::string_view marker : {kEnd, kBegin}) {
      for (size_t size = 1; size < marker.size(); ++size) {
        for (size_t at = 0; at + size <= marker.size(); ++at) Add(marker.substr(at, size));
      }
    }
    for (const char* text : {"a", "b", "c", "\n", ">c", "k>\nb", "b<", "z"}) Add(text);
    tokenizer.emplace(ByteLevelTokenizer(tokens));
  }
  void Add(std::string_view text) {
    for (const TestToken& token : tokens) {
      if (token.text == text) return;
    }
    tokens.push_back({std::string(text)});
  }
  int32_t Id(std::string_view text) const {
    for (size_t id = 0; id < tokens.size(); ++id) {
      if (tokens[id].text == text) return static_cast<int32_t>(id);
    }
    ADD_FAILURE() << text;
    return -1;
  }
  std::vector<int32_t> Ids(const Texts& texts) const {
    std::vector<int32_t> ids;
    for (const std::string& text : texts) ids.push_back(Id(text));
    return ids;
  }
  std::string Text(const std::vector<int32_t>& ids) const { return tokenizer->Decode(ids, false); }

  std::vector<TestToken> tokens;
  std::optional<Tokenizer> tokenizer;
};

const Vocabulary& Plain() {
  static const Vocabulary vocabulary;
  return vocabulary;
}

// All ways to cut a text into parts.
std::vector<Texts> Partitions(std::string_view text) {
  std::vector<Texts> all;
  for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    Texts parts = {std::string(1, text[0])};
    for (size_t i = 1; i < text.size(); ++i) {
      if (cuts >> (i - 1) & 1) {
        parts.emplace_back();
      }
      parts.back() += text[i];
    }
    if (parts.size() > 1) all.push_back(std::move(parts));  // the whole is no token
  }
  return all;
}

Texts Joined(Texts left, const Texts& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

struct Asked {
  std::optional<int64_t> budget = {};
  bool is_open = true;
  Texts stops = {};
  int64_t max_tokens = 24;
  int64_t burst = 1;
  int32_t steps_in_flight = 1;
};

// What a script gives that has these tokens, and then "c" for ever.
Received OutputOf(const Vocabulary& vocabulary, const Texts& script, const Asked& asked) {
  std::vector<int32_t> ids = vocabulary.Ids(script);
  ids.resize(200, vocabulary.Id("c"));
  ScriptRunner runner({.vocab = std::ssize(vocabulary.tokens),
                       .tokens = ids,
                       .from_prompt = false,
                       .burst = asked.burst});
  Engine engine(runner, vocabulary.tokenizer, {.steps_in_flight = asked.steps_in_flight});
  EngineClient client(engine, 4);
  EngineRequest request = MakeRequest({vocabulary.Id("z")}, asked.max_tokens);
  request.text.stops = asked.stops;
  if (asked.budget.has_value()) {
    request.thinking = ThinkingBudget{.tokens = *asked.budget, .is_open = asked.is_open};
  }
  const RequestAddress address = client.Submit(std::move(request));
  Drain(engine, {&client});
  return client.Of(address);
}

std::string TextOf(const Vocabulary& vocabulary, const Received& received) {
  return vocabulary.Text(received.ids);
}

TEST(ThinkingBudget, EndsReasoningAfterAsManyTokens) {
  const Texts script = {"a", "b", "a", "b", "a"};
  for (const int64_t burst : {1, 3}) {
    EXPECT_EQ(
        TextOf(Plain(), OutputOf(Plain(), script, {.budget = 0, .max_tokens = 10, .burst = burst})),
        "</think>ab");
    EXPECT_EQ(
        TextOf(Plain(), OutputOf(Plain(), script, {.budget = 1, .max_tokens = 11, .burst = burst})),
        "a</think>ba");
    EXPECT_EQ(
        TextOf(Plain(), OutputOf(Plain(), script, {.budget = 5, .max_tokens = 14, .burst = burst})),
        "ababa</think>c");
  }
}

// The model's own end, in whatever tokens, and one that the budget cuts: the text has one end, at
// most that number of tokens before it, and the answer is what the script goes on with.
TEST(ThinkingBudget, HoldsForEveryPartitionOfTheEnd) {
  for (const Texts& parts : Partitions(kEnd)) {
    const Texts script = Joined({"a", "b"}, parts);
    const auto own_end = std::ssize(script);
    const std::string free = TextOf(Plain(), OutputOf(Plain(), script, {}));
    for (int64_t budget = 0; budget <= own_end + 1; ++budget) {
      const Received received = OutputOf(Plain(), script, {.budget = budget});
      const std::string text = TextOf(Plain(), received);
      SCOPED_TRACE(::testing::PrintToString(parts) + " and " + std::to_string(budget));
      if (budget >= own_end) {
        EXPECT_EQ(text, free);
        continue;
      }
      const std::string reasoning = std::string("ab").substr(0, static_cast<size_t>(budget));
      ASSERT_TRUE(text.starts_with(reasoning + std::string(kEnd))) << text;
      // The script goes on where the budget has cut it.
      const std::string rest = Plain().Text(Plain().Ids({script.begin() + budget, script.end()}));
      EXPECT_TRUE(text.substr(reasoning.size() + kEnd.size()).starts_with(rest)) << text;
    }
  }
}

TEST(ThinkingBudget, CountsFromTheBeginThatTheModelWrites) {
  for (const Texts& parts : Partitions(kBegin)) {
    const Texts script = Joined(Joined({"\n"}, parts), {"a", "b", "a"});
    for (const int64_t budget : {0, 2}) {
      const Received received = OutputOf(Plain(), script, {.budget = budget, .is_open = false});
      EXPECT_TRUE(
          TextOf(Plain(), received)
              .starts_with(std::string("\n<think>")
                               .append(std::string("ab").substr(0, static_cast<size_t>(budget)))
                               .append(kEnd)))
          << ::testing::PrintToString(parts) << TextOf(Plain(), received);
    }
  }
}

TEST(ThinkingBudget, LeavesAnswersWithoutReasoningAlone) {
  for (const Texts& script : {Texts{"a", "<th", "ink", ">", "b"}, Texts{"<th", "a", "b"},
                              Texts{"\n", "<", "<think", ">", "a"}}) {
    EXPECT_EQ(OutputOf(Plain(), script, {.budget = 0, .is_open = false}).ids,
              OutputOf(Plain(), script, {}).ids);
  }
}

// Where the end is a token it is drawn whole, and recognised whether it is shown or not.
TEST(ThinkingBudget, TakesTheTokenThatIsTheEnd) {
  for (const bool is_special : {false, true}) {
    const auto added = [&](std::string_view text) {
      return is_special ? Special(std::string(text)) : Added(std::string(text));
    };
    const Vocabulary vocabulary({added(kEnd), added(kBegin)});
    const int32_t end = vocabulary.Id(kEnd);
    std::vector<int32_t> ids =
        OutputOf(vocabulary, {"a", "b", "a"}, {.budget = 2, .max_tokens = 5}).ids;
    EXPECT_EQ(ids, vocabulary.Ids({"a", "b", std::string(kEnd), "a", "c"}));
    ids = OutputOf(vocabulary, {"a", std::string(kEnd), "b"}, {.budget = 2, .max_tokens = 4}).ids;
    EXPECT_EQ(ids, vocabulary.Ids({"a", std::string(kEnd), "b", "c"}));
    // Begun in letters, which the token does not go on with.
    ids = OutputOf(vocabulary, {"a", "</th", "b"}, {.budget = 2, .max_tokens = 4}).ids;
    EXPECT_EQ(ids, (std::vector<int32_t>{vocabulary.Id("a"), vocabulary.Id("</th"), end,
                                         vocabulary.Id("b")}));
    ids = OutputOf(vocabulary, {std::string(kBegin), "a", "b"},
                   {.budget = 1, .is_open = false, .max_tokens = 4})
              .ids;
    EXPECT_EQ(ids, vocabulary.Ids({std::string(kBegin), "a", std::string(kEnd), "b"}));
  }
}

TEST(ThinkingBudget, LetsStopsEndTheAnswerAlone) {
  for (const Texts& parts : Partitions(kEnd)) {
    SCOPED_TRACE(::testing::PrintToString(parts));
    const Texts script = Joined(Joined({"a", "b", "c"}, parts), {"a", "a", "b", "c"});
    const Received received = OutputOf(Plain(), script, {.budget = 20, .stops = {"bc", "think>a"}});
    EXPECT_EQ(received.end, GenerationEnd::kStopString);
    EXPECT_EQ(TextOf(Plain(), received), "abc</think>aabc");
  }
  // A token that ends the reasoning and begins the answer.
  Received received =
      OutputOf(Plain(), {"c", "</thin", "k>\nb", "c"}, {.budget = 20, .stops = {"\nb", "k"}});
  EXPECT_EQ(TextOf(Plain(), received), "c</think>\nb");
  EXPECT_EQ(received.end, GenerationEnd::kStopString);
  // Without reasoning all of it is the answer, what may have become the begin included.
  received =
      OutputOf(Plain(), {"\n", "<th", "b"}, {.budget = 20, .is_open = false, .stops = {"<thb"}});
  EXPECT_EQ(TextOf(Plain(), received), "\n<thb");
  EXPECT_EQ(received.end, GenerationEnd::kStopString);
  // What a stop may have begun with comes out when it was the begin of reasoning.
  received = OutputOf(Plain(), {"<", "think", ">", "b", "<", "/think", ">", "b"},
                      {.budget = 20, .is_open = false, .stops = {"<thx", "b"}});
  EXPECT_EQ(TextOf(Plain(), received), "<think>b</think>b");
  EXPECT_EQ(received.end, GenerationEnd::kStopString);
}

// The text of a stream is that of its tokens up to a stop in the answer, however it is cut.
TEST(ThinkingBudget, LeavesTheTextOfAStreamWhole) {
  const auto stops =
      std::make_shared<const StopList>(std::vector<std::string>{"<thx", "b<", "k>c", "ca", "\nb"});
  for (const Texts& begin : Partitions(kBegin)) {
    for (const Texts& end : {Texts{"</", "think", ">"}, Texts{"<", "/thin", "k>\nb"},
                             Texts{"</think", ">c"}, Texts{"</thin", "k>"}}) {
      const Texts script = Joined(Joined(Joined({"\n"}, begin), {"a", "b<", "c", "a"}),
                                  Joined(end, {"c", "a", "z"}));
      const std::vector<int32_t> ids = Plain().Ids(script);
      std::string expected;
      for (const std::string& token : script) expected += token;
      const size_t answer = expected.find(kEnd) + kEnd.size();
      const size_t stop = std::min(expected.find("ca", answer), expected.find("\nb", answer));
      expected.resize(stop);
      for (const size_t size : {size_t{1}, size_t{2}, ids.size()}) {
        TextStream stream(*Plain().tokenizer, {.stops = stops, .thinking = ThinkingBudget{}});
        std::string text;
        int64_t released = 0;
        for (size_t at = 0; at < ids.size(); at += size) {
          const Delta& delta =
              stream.Step(std::span(ids).subspan(at, std::min(size, ids.size() - at)), text);
          EXPECT_EQ(delta.first_token, released);
          EXPECT_LE(delta.last_token, delta.tokens);
          released = delta.last_token;
        }
        const Delta& delta = stream.Finish(text);
        EXPECT_EQ(text, expected) << ::testing::PrintToString(script) << " by " << size;
        EXPECT_EQ(delta.finish, FinishReason::kStopString);
        EXPECT_EQ(delta.last_token, delta.tokens);
      }
    }
  }
}

TEST(ThinkingBudget, ComesBeforeRulesThatForbidTheEnd) {
  SamplingParams params;
  params.seed = 1;
  params.logprobs = 0;
  params.logprob_mode = LogprobMode::kProcessedLogprobs;
  params.allowed_token_ids = TokenIds{Plain().Id("a")};
  const auto vocab = std::ssize(Plain().tokens);
  Sampler sampler({.vocab = vocab, .max_requests = 1});
  const RequestHandle handle = sampler.Add({.params = params, .max_new_tokens = 100});
  ThinkingMask mask(*Plain().tokenizer, {.budget = {.tokens = 2, .is_open = true},
                                         .end = std::make_shared<const SpelledEnd>(
                                             ReasoningFormat::kDeepSeek, *Plain().tokenizer)});
  const std::vector<float> logits(static_cast<size_t>(vocab), 0.5f);
  std::vector<int32_t> ids;
  for (int i = 0; i < 11; ++i) {
    StepRequest step = {.request = handle, .bitmask = mask.Await(), .forced = mask.forced()};
    EXPECT_EQ(mask.open_draws() > 0, step.forced < 0);
    TokenResult result;
    int32_t emitted = 0;
    sampler.Step({.logits = {logits.data(), 1, vocab, vocab, DType::kF32}, .requests = {&step, 1}},
                 {.tokens = {&result, 1}, .emitted = {&emitted, 1}});
    ASSERT_EQ(result.status, RowStatus::kOk);
    EXPECT_EQ(result.logprob, 0.0f);  // of one token that is allowed
    mask.Drew(result.id);
    ids.push_back(result.id);
  }
  EXPECT_EQ(Plain().Text(ids), "aa</think>a");
}

// Allows one token, and notes what was drawn.
class OneToken final : public DrawMask {
 public:
  OneToken(int32_t token, size_t vocab) : words((vocab + 31) / 32) {
    words[static_cast<size_t>(token) / 32] |= static_cast<int32_t>(uint32_t{1} << (token % 32));
  }
  std::span<const int32_t> Await() override { return words; }
  void Drew(int32_t token) override { drawn.push_back(token); }
  void Flush() override { ++flushes; }

  std::vector<int32_t> words;
  std::vector<int32_t> drawn;
  int flushes = 0;
};

struct MaskedThinking {
  MaskedThinking(const Vocabulary& its, ThinkingBudget budget)
      : vocabulary(its),
        answer(its.Id("a"), its.tokens.size()),
        stop(its.Id("z")),
        mask(*its.tokenizer,
             {.budget = budget,
              .end = std::make_shared<const SpelledEnd>(budget.format, *its.tokenizer),
              .answer = &answer,
              .stop_tokens = {&stop, 1},
              .vocab = std::ssize(its.tokens)}) {}

  bool Allows(std::string_view text) {
    const auto id = static_cast<size_t>(vocabulary.Id(text));
    return (static_cast<uint32_t>(mask.Await()[id / 32]) >> (id % 32) & 1) != 0;
  }
  void Draw(std::string_view text) { mask.Drew(vocabulary.Id(text)); }

  const Vocabulary& vocabulary;
  OneToken answer;
  int32_t stop;
  ThinkingMask mask;
};

TEST(ThinkingBudget, GivesTheGrammarTheAnswerAlone) {
  const Vocabulary vocabulary({Added(std::string(kEnd)), Added(std::string(kBegin))});
  MaskedThinking thinking(vocabulary, {.tokens = 2});
  EXPECT_TRUE(thinking.Allows("a") && thinking.Allows(kBegin));
  EXPECT_FALSE(thinking.Allows("b"));
  EXPECT_EQ(thinking.mask.open_draws(), 0);
  thinking.Draw(kBegin);
  EXPECT_TRUE(thinking.Allows("a") && thinking.Allows("b") && thinking.Allows(kEnd));
  EXPECT_FALSE(thinking.Allows("z"));  // the stop token
  thinking.Draw("b");
  thinking.Draw("c");
  EXPECT_TRUE(thinking.mask.Await().empty());
  EXPECT_EQ(thinking.mask.forced(), vocabulary.Id(kEnd));
  EXPECT_TRUE(thinking.answer.drawn.empty());
  thinking.Draw(kEnd);
  EXPECT_EQ(thinking.mask.forced(), -1);
  EXPECT_TRUE(thinking.Allows("a"));
  EXPECT_FALSE(thinking.Allows(kBegin));
  thinking.Draw("a");
  EXPECT_EQ(thinking.answer.drawn, vocabulary.Ids({"a"}));
  thinking.mask.Flush();
  EXPECT_EQ(thinking.answer.flushes, 1);

  MaskedThinking without(vocabulary, {.tokens = 2});
  without.Draw("a");
  EXPECT_EQ(without.answer.drawn, vocabulary.Ids({"a"}));
  EXPECT_FALSE(without.Allows(kBegin));
}

// A grammar could not follow what a token has of the answer beyond the end.
TEST(ThinkingBudget, EndsBeforeTheFirstTokenOfAGrammar) {
  MaskedThinking thinking(Plain(), {.tokens = 20, .is_open = true});
  EXPECT_TRUE(thinking.Allows(">c") && thinking.Allows("k>\nb"));
  thinking.Draw("</thin");
  EXPECT_FALSE(thinking.Allows("k>\nb"));
  EXPECT_TRUE(thinking.Allows(">c") && thinking.Allows("k>") && thinking.Allows("k"));
  thinking.Draw("k");
  EXPECT_FALSE(thinking.Allows(">c"));
  EXPECT_TRUE(thinking.Allows(">") && thinking.Allows("k>\nb"));
  thinking.Draw(">");
  EXPECT_TRUE(thinking.Allows("a"));
  EXPECT_FALSE(thinking.Allows("b"));
}

TEST(ThinkingBudget, RefusesWhatItCannotDo) {
  for (const auto& [thinking, parameter] :
       {std::pair<ThinkingBudget, std::string>{{.format = ReasoningFormat::kHarmony},
                                               "thinking.format"},
        {{.format = ReasoningFormat::kNone}, "thinking.format"},
        {{.tokens = -1}, "thinking.tokens"}}) {
    ScriptRunner runner({.vocab = 80, .tokens = {1}});
    Engine engine(runner, Plain().tokenizer);
    EngineClient client(engine, 4);
    EngineRequest request = MakeRequest({1});
    request.thinking = thinking;
    const RequestAddress address = client.Submit(std::move(request));
    Drain(engine, {&client});
    EXPECT_EQ(client.Of(address).end, GenerationEnd::kRejected);
    EXPECT_EQ(client.Of(address).parameter, parameter);
  }
  ScriptRunner runner({.vocab = 80, .tokens = {1}});
  Engine engine(runner, std::nullopt);
  EngineClient client(engine, 4);
  EngineRequest request = MakeRequest({1});
  request.thinking = ThinkingBudget{};
  const RequestAddress address = client.Submit(std::move(request));
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(address).parameter, "thinking");
}

const Checkpoint& LongTiny() {
  static TinyFiles files({.context = 256});
  static const Checkpoint checkpoint = Checkpoint::FromFiles(files.view());
  return checkpoint;
}

// The choices of requests that repeat themselves, so that drafts are tried.
std::vector<EngineRequest> ModelRequests() {
  std::vector<EngineRequest> requests;
  for (const SamplingParams& params : AllParams()) {
    for (const int64_t budget : {0, 1, 4, 30}) {
      EngineRequest request = MakeRequest(LongTiny().tokenizer().Encode("one two one two one two"),
                                          budget == 30 ? 150 : 40);
      request.params = params;
      request.params.repetition_penalty = 1;
      if (budget == 30) request.params.temperature = 0;
      request.thinking = ThinkingBudget{.tokens = budget, .is_open = budget != 1};
      request.choice = static_cast<uint32_t>(requests.size() % 3);
      requests.push_back(request);
    }
  }
  return requests;
}

std::vector<int32_t> Generated(const EngineRequest& request) {
  Generator generator(LongTiny(), {.params = request.params,
                                   .prompt = request.prompt,
                                   .choices = static_cast<int32_t>(request.choice) + 1,
                                   .max_tokens = request.max_tokens,
                                   .ignores_end = true,
                                   .thinking = request.thinking});
  while (generator.live_choices() > 0) generator.Step();
  const std::span<const int32_t> ids = generator.OutputTokens(static_cast<int32_t>(request.choice));
  return {ids.begin(), ids.end()};
}

TEST(ThinkingBudget, FollowsARequestThroughPreemptionsDraftsAndStepsInFlight) {
  const std::vector<EngineRequest> requests = ModelRequests();
  std::vector<std::vector<int32_t>> expected;
  for (const EngineRequest& request : requests) {
    expected.push_back(Generated(request));
    const std::string text = LongTiny().tokenizer().Decode(expected.back(), false);
    EXPECT_EQ(text.find(kEnd) != std::string::npos, request.thinking->is_open) << text;
  }
  for (const int32_t drafts : {0, 4}) {
    for (const int32_t steps_in_flight : {0, 1}) {
      ModelRunner model(
          LongTiny(),
          {.max_requests = 4, .max_step_tokens = 24, .cache_tokens = 256, .draft_tokens = drafts});
      RunnerThread thread(model);
      Engine engine(thread, LongTiny().tokenizer(), {.steps_in_flight = steps_in_flight});
      EngineClient client(engine, static_cast<int32_t>(requests.size()));
      std::vector<RequestAddress> addresses;
      for (const EngineRequest& request : requests) addresses.push_back(client.Submit(request));
      Drain(engine, {&client});
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(client.Of(addresses[i]).ids, expected[i])
            << i << " with " << drafts << " drafts, " << steps_in_flight << " in flight";
      }
      EXPECT_GT(engine.counters().preemptions, 0);
      EXPECT_EQ(model.stats().accepted_draft_tokens > 0, drafts > 0);
    }
  }
}

}  // namespace
}  // namespace sluice::test
