// Where a stop string ends a request: the text, the end and the tokens are those of the stream that
// a frontend has, whoever looks for stops and however many tokens a step gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/request_text.h"
#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/text/byte_oracle.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

using Texts = std::vector<std::string>;

constexpr const char* kEnd = "<|end|>";  // a special token

struct StopCase {
  std::string name;
  Texts tokens;  // that the model draws, and then others
  TextOptions text = {};
  Texts stop_tokens = {};
  int32_t min_tokens = 0;
  int64_t max_tokens = 12;

  std::string shown;  // what is expected
  GenerationEnd end = GenerationEnd::kStopString;
  int64_t count = 0;
};

std::vector<StopCase> StopCases() {
  const auto with = [](Texts stops, bool include_stop = false) {
    return TextOptions{.stops = std::move(stops), .include_stop = include_stop};
  };
  constexpr auto kString = GenerationEnd::kStopString;
  constexpr auto kToken = GenerationEnd::kStopToken;
  constexpr auto kLength = GenerationEnd::kLength;
  Texts many(16);
  for (size_t i = 0; i < many.size(); ++i) many[i] = std::string(i + 16, 'a') + "b";
  return {
      {"InsideAToken",
       {"He", "llo wor", "ld END. more", "x"},
       with({"END"}),
       {},
       0,
       12,
       "Hello world ",
       kString,
       3},
      {"OverTokens", {"foo E", "N", "D bar", "x"}, with({"END"}), {}, 0, 12, "foo ", kString, 3},
      {"AfterAFalseStart", {"aa", "a", "b", "x"}, with({"aab"}), {}, 0, 12, "a", kString, 3},
      {"HeldBackAtLength", {"foo E", "N", "D"}, with({"END"}), {}, 0, 2, "foo EN", kLength, 2},
      {"TheFirstToEndWins", {"ab", "cd", "x"}, with({"abcd", "c"}), {}, 0, 12, "ab", kString, 2},
      {"TheFirstToEndWinsInOneToken",
       {"abcd", "x"},
       with({"abcd", "c"}),
       {},
       0,
       12,
       "ab",
       kString,
       1},
      {"TheLongerOneWins", {"xab", "x"}, with({"b", "ab"}), {}, 0, 12, "x", kString, 1},
      {"AStopThatIsNeverWhole",
       {"\xE5\x81\x9C", "\xE6\xAD", "x"},
       with({"停止"}),
       {},
       0,
       3,
       "停\uFFFDx",
       kLength,
       3},
      {"LineBreaks", {"a", "\n", "\n", "b"}, with({"\n\n"}), {}, 0, 12, "a", kString, 3},
      {"AtTheFirstByte", {"xhello", "x"}, with({"x"}), {}, 0, 12, "", kString, 1},
      {"TheReplacementCharacter", {"a", "\xFF", "b"}, with({"\uFFFD"}), {}, 0, 12, "a", kString, 2},
      {"AllOfTheText", {"DEF", "G", "HI", "J", "x"}, with({"DEFGHIJ"}), {}, 0, 12, "", kString, 4},
      {"AlmostAStop", {"abcabcab", "cx"}, with({"abcabcabd"}), {}, 0, 2, "abcabcabcx", kLength, 2},
      {"Included", {"foo END bar", "x"}, with({"END"}, true), {}, 0, 12, "foo END", kString, 1},
      {"BehindMinTokens",
       {"a", "STOP", "b", "STOP", "c"},
       with({"STOP"}),
       {},
       2,
       12,
       "aSTOPb",
       kString,
       4},
      {"WithinMinTokens", {"a", "STOP", "c", "d"}, with({"STOP"}), {}, 2, 4, "aSTOPcd", kLength, 4},
      {"InABurst",
       {"a", "b E", "ND", "junk", "junk2"},
       with({"END"}),
       {},
       0,
       12,
       "ab ",
       kString,
       3},
      {"AStopTokenWhileTextIsHeld",
       {"foo E", "N", kEnd, "D"},
       with({"END"}),
       {kEnd},
       0,
       12,
       "foo EN",
       kToken,
       3},
      {"AStopTokenAlone", {"a", "b", "c"}, with({}), {"b"}, 0, 12, "a", kToken, 2},
      {"AStopTokenAloneIncluded", {"a", "b", "c"}, with({}, true), {"b"}, 0, 12, "ab", kToken, 2},
      {"AStopTokenAmongStops", {"a", "b", "c"}, with({"zz"}), {"b"}, 0, 12, "a", kToken, 2},
      {"AStopTokenThatEndsAStop",
       {"a", "b", "c"},
       with({"ab"}, true),
       {"b"},
       0,
       12,
       "ab",
       kString,
       2},
      {"AStopThatIsASpecialToken", {"a", kEnd, "b"}, with({kEnd}), {}, 0, 12, "a", kToken, 2},
      {"AStopTokenWithinMinTokens",
       {"a", kEnd, "b", kEnd, "c"},
       with({"zz"}),
       {kEnd},
       2,
       12,
       "ab",
       kToken,
       4},
      {"InWhatTheLengthLetsOut",
       {"xa", "\xE6\xAD", "y"},
       with({"a\uFFFD"}),
       {},
       0,
       2,
       "x",
       kString,
       2},
      {"AtTheLastToken", {"a", "E", "ND", "x"}, with({"END"}), {}, 0, 3, "a", kString, 3},
      {"ManyStops",
       {std::string(40, 'a'), std::string(40, 'a'), "c", "x"},
       with(many),
       {},
       0,
       3,
       std::string(80, 'a') + "c",
       kLength,
       3},
  };
}

// The case's tokens as a vocabulary, and a runner that draws them.
struct Script {
  explicit Script(const StopCase& with, int64_t given) : stop_case(with) {
    vocabulary.push_back(Special("<|begin|>"));
    for (const std::string& token : stop_case.tokens) ids.push_back(IdOf(token));
    filler = IdOf("~");
    options.info.vocab = std::ssize(vocabulary);
    options.info.max_given_tokens = given;
    options.token = [this](const TokenSource&, int64_t index) {
      const bool is_over = index >= std::ssize(ids);
      return TokenResult{.id = is_over ? filler : ids[static_cast<size_t>(index)]};
    };
    request = MakeRequest({0}, stop_case.max_tokens);
    request.text = stop_case.text;
    request.params.min_tokens = stop_case.min_tokens;
    for (const std::string& token : stop_case.stop_tokens) {
      request.params.stop_token_ids.push_back(IdOf(token));
    }
  }
  Script(const Script&) = delete;

  int32_t IdOf(const std::string& text) {
    const auto same = std::ranges::find(vocabulary, text, &TestToken::text);
    if (same != vocabulary.end()) return static_cast<int32_t>(same - vocabulary.begin());
    vocabulary.push_back(text == kEnd ? Special(text) : TestToken{text});
    return static_cast<int32_t>(vocabulary.size()) - 1;
  }

  StopCase stop_case;
  std::vector<TestToken> vocabulary;
  std::vector<int32_t> ids;
  int32_t filler = 0;
  CheckingOptions options;
  EngineRequest request;
};

// What a frontend makes of an engine's rows.
struct Frontend {
  Frontend(const EngineRequest& request, const Tokenizer& tokenizer)
      : stream(engine::MakeTextStream(request, tokenizer, stop_lists, {})) {}

  StopListCache stop_lists;
  TextStream stream;
  std::string text;
  Delta delta;
};

GenerationEnd EndOf(const Delta& delta, GenerationEnd other) {
  if (delta.finish == FinishReason::kStopString) return GenerationEnd::kStopString;
  if (delta.finish == FinishReason::kStopToken) return GenerationEnd::kStopToken;
  return other;
}

struct EngineStops : ::testing::TestWithParam<StopCase> {
  // By both placements: what came out, at which token, and why.
  void Run(StopAt stop_at, int64_t given, int32_t steps_in_flight) {
    SCOPED_TRACE(std::string(Name(stop_at)) + ", " + std::to_string(given) + " tokens, " +
                 std::to_string(steps_in_flight) + " in flight");
    Script script(GetParam(), given);
    script.request.stop_at = stop_at;
    const Tokenizer tokenizer = ByteLevelTokenizer(script.vocabulary);
    CheckingRunner runner(script.options);
    Engine engine(runner, tokenizer, {.steps_in_flight = steps_in_flight});
    EngineClient client(engine, 1);
    Frontend frontend(script.request, tokenizer);
    const RequestAddress address = client.Submit(script.request);
    GenerationEnd end = GenerationEnd::kNone;
    while (engine.HasWork()) {
      const auto outputs = engine.Step();
      client.Take(outputs);
      for (const EngineOutput& output : outputs) {
        if (end != GenerationEnd::kNone) continue;
        frontend.delta = frontend.stream.Step(output.row.ids, frontend.text);
        if (frontend.delta.finish == FinishReason::kNone &&
            output.row.end != GenerationEnd::kNone) {
          frontend.delta = frontend.stream.Finish(frontend.text);
        }
        end = EndOf(frontend.delta, output.row.end);
        if (end != GenerationEnd::kNone) client.Abort(address);
      }
    }
    const StopCase& expected = GetParam();
    EXPECT_EQ(frontend.text, expected.shown);
    EXPECT_EQ(end, expected.end);
    EXPECT_EQ(frontend.delta.tokens, expected.count);
    if (stop_at == StopAt::kEngine) {
      EXPECT_EQ(client.Of(address).end, expected.end);
      EXPECT_EQ(std::ssize(client.Of(address).ids), expected.count) << "tokens behind the end";
      if (given == 1) {
        const bool knows_beforehand = expected.count == expected.max_tokens;
        EXPECT_LE(engine.counters().tokens_discarded_stop, knows_beforehand ? 0 : steps_in_flight);
      }
    }
    ExpectIdle(engine, runner);
  }
};

TEST_P(EngineStops, AreFoundAtTheSameTokenByEngineAndFrontend) {
  for (const int32_t steps_in_flight : {0, 1}) {
    for (const int64_t given : {1, 2, 5}) {
      Run(StopAt::kEngine, given, steps_in_flight);
      Run(StopAt::kFrontend, given, steps_in_flight);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineStops, ::testing::ValuesIn(StopCases()),
                         [](const auto& param) { return param.param.name; });

TEST(EngineStops, AnAbortIsAStopWhereItsTextLetsOneOut) {
  StopCase stop_case{"", {"xa", "\xE6\xAD", "y"}, {.stops = {"a\uFFFD"}}, {}, 0, 12, "", {}, 0};
  Script script(stop_case, 1);
  CheckingRunner runner(script.options);
  Engine engine(runner, ByteLevelTokenizer(script.vocabulary), {});
  EngineClient client(engine, 1);
  const RequestAddress address = client.Submit(script.request);
  for (int step = 0; step < 2; ++step) client.Take(engine.Step());
  client.Abort(address);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(address).end, GenerationEnd::kStopString);
  EXPECT_EQ(client.Of(address).ids.size(), 2u);
  ExpectIdle(engine, runner);
}

TEST(EngineStops, TheTextOfAPromptDecidesWhatTheFirstTokensAre) {
  // The first bytes of the stop are the prompt's, so they are no part of the output.
  StopCase stop_case{"", {"b", "a", "b", "x"}, {.stops = {"ab"}}, {}, 0, 12, "", {}, 0};
  Script script(stop_case, 1);
  script.request.prompt = {script.IdOf("a")};
  CheckingRunner runner(script.options);
  Engine engine(runner, ByteLevelTokenizer(script.vocabulary), {});
  EngineClient client(engine, 1);
  const RequestAddress address = client.Submit(script.request);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(address).end, GenerationEnd::kStopString);
  EXPECT_EQ(client.Of(address).ids.size(), 3u);
}

// Many requests with random bytes and stops, in one batch with preemptions.
TEST(EngineStops, OfRandomTextsAreThoseOfAStreamTokenByToken) {
  Random random(8);
  const ByteVocabulary made = MakeVocabulary(random);
  const Tokenizer tokenizer = ByteLevelTokenizer(made.tokens);
  for (const int32_t steps_in_flight : {0, 1}) {
    for (const int64_t given : {1, 4}) {
      CheckingOptions options;
      options.info = {.vocab = std::ssize(made.tokens),
                      .context = 128,
                      .max_requests = 8,
                      .max_step_tokens = 40,
                      .page_tokens = 4,
                      .pages = 18,
                      .max_given_tokens = given};
      CheckingRunner runner(options);
      Engine engine(runner, tokenizer, {.steps_in_flight = steps_in_flight});
      EngineClient client(engine, 200);
      std::vector<EngineRequest> requests;
      std::vector<RequestAddress> addresses;
      for (int i = 0; i < 200; ++i) {
        EngineRequest request = MakeRequest(
            {static_cast<int32_t>(random.Below(options.info.vocab))}, random.Between(1, 60));
        request.params.seed = random.Bits();
        request.params.min_tokens = random.Coin() ? 0 : static_cast<int32_t>(random.Below(20));
        request.text.include_stop = random.Coin();
        for (int64_t n = random.Between(1, 4); n > 0; --n) {
          const auto last = static_cast<int64_t>(made.bytes.size()) - 1;
          const std::string& stop = made.bytes[static_cast<size_t>(random.Between(200, last))];
          request.text.stops.push_back(Lossy(stop).text);
        }
        requests.push_back(request);
        addresses.push_back(client.Submit(request));
      }
      Drain(engine, {&client});
      int64_t stopped = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        const std::vector<int32_t> all = ExpectedOf(requests[i], options).ids;
        Frontend frontend(requests[i], tokenizer);
        for (const int32_t& id : all) {
          frontend.delta = frontend.stream.Step({&id, 1}, frontend.text);
          if (frontend.delta.finish != FinishReason::kNone) break;
        }
        frontend.delta = frontend.stream.Finish(frontend.text);
        const GenerationEnd end = EndOf(frontend.delta, GenerationEnd::kLength);
        stopped += end == GenerationEnd::kLength ? 0 : 1;
        EXPECT_EQ(client.Of(addresses[i]).end, end);
        EXPECT_EQ(std::ssize(client.Of(addresses[i]).ids), frontend.delta.tokens);
      }
      EXPECT_GT(stopped, 20);
      EXPECT_GT(engine.counters().preemptions, 0);
      ExpectIdle(engine, runner);
    }
  }
}

}  // namespace
}  // namespace sluice::test
