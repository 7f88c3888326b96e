// Text, end and counts of a request are the same for every kind of output, side that looks for
// stops, side of a process boundary, number of steps in flight and number of tokens a step.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <thread>

#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"
#include "tests/link/collected.h"
#include "tests/link/running_server.h"
#include "tests/link/text_cases.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

// All cases in one vocabulary and one script: a case's tokens are those from its own place on.
struct Script {
  Script() {
    const auto add = [this](const TestToken& token) {
      if (ids.emplace(token.text, std::ssize(tokens)).second) tokens.push_back(token);
    };
    for (const char* const special : {kEndOfText, kStartOfTurn, kEndOfSentence}) {
      add(Special(special));
    }
    add(Added(" sp "));
    for (const TextCase& one : cases) {
      for (const std::string& token : one.tokens) {
        if (token != "<unknown>") add({token});
      }
      for (const std::string& token : one.prompt) add({token});
    }
    for (const TextCase& one : cases) begins.push_back(Append(one));
    // A place in the script is named by an id, so there must be that many.
    for (size_t i = 0; tokens.size() < script.size(); ++i) {
      add({"filler " + std::to_string(i)});
    }
    vocab = std::ssize(tokens) + 16;
    for (int32_t& id : script) {
      if (id < 0) id = static_cast<int32_t>(vocab) - 7;  // behind the tokenizer's last one
    }
  }

  int32_t Append(const TextCase& one) {
    const auto begin = static_cast<int32_t>(script.size());
    for (const std::string& token : one.tokens) {
      script.push_back(token == "<unknown>" ? -1 : ids.at(token));
    }
    return begin;
  }

  ClientRequest Request(size_t number, OutputMode mode) const {
    const TextCase& one = cases[number];
    ClientRequest request;
    request.prompt = {begins[number]};
    for (const std::string& token : one.prompt) request.prompt.push_back(ids.at(token));
    // An engine that does not see the stop goes on for a while, with other cases' tokens.
    const int64_t surplus = one.end == GenerationEnd::kLength || one.is_full ? 0 : 50;
    request.max_tokens = std::ssize(one.tokens) + surplus;
    request.params.logprobs = 1;
    request.params.min_tokens = one.min_tokens;
    for (const std::string& token : one.stop_tokens) {
      request.params.stop_token_ids.push_back(ids.at(token));
    }
    request.text = {.stops = one.stops,
                    .include_stop = one.include_stop,
                    .detokenizer = {.skip_special_tokens = one.skips_special},
                    .incomplete = one.incomplete};
    request.mode = mode;
    return request;
  }

  Collected Expected(size_t number) const {
    const TextCase& one = cases[number];
    Collected all;
    for (const std::string& delta : one.deltas) all.text += delta;
    if (one.deltas.empty() && one.end == GenerationEnd::kLength) {
      for (const std::string& token : one.tokens) all.text += token;
    }
    all.end = one.end;
    all.stop = one.stop;
    if (!one.stop_token.empty()) all.stop_token = ids.at(one.stop_token);
    all.prompt_tokens = std::ssize(one.prompt) + 1;
    all.output_tokens = one.output_tokens > 0 ? one.output_tokens : std::ssize(one.tokens);
    all.width = 2;
    for (int64_t i = 0; i < all.output_tokens; ++i) {
      const int32_t id = script[static_cast<size_t>(begins[number] + i)];
      all.ids.push_back(id);
      all.logprobs.push_back(ScriptLogprob(id));
      all.ranks.push_back(ScriptRank(id));
    }
    return all;
  }

  EngineInfo Info(const Tokenizer& tokenizer) const {
    EngineInfo info;
    info.model = "script";
    info.tokenizer_hash = TokenizerHash(tokenizer);
    info.end_tokens = {ids.at(kEndOfText)};
    info.knows_text = true;
    return info;
  }

  std::vector<TextCase> cases = TextCases();
  std::vector<TestToken> tokens;
  std::map<std::string, int32_t> ids;
  std::vector<int32_t> script;
  std::vector<int32_t> begins;  // of each case
  int64_t vocab = 0;
};

constexpr OutputMode kModes[] = {OutputMode::kDelta, OutputMode::kCumulative, OutputMode::kFinal};

struct Setting {
  StopAt stop_at;
  bool is_remote;
  int32_t steps_in_flight;
  int64_t burst;
};

class Parity : public ::testing::TestWithParam<Setting> {
 protected:
  static const Script& script() {
    static const Script all;
    return all;
  }
};

// All cases in all modes at once.
void RunAll(Client& client, const Script& script, const Setting& setting) {
  struct Asked {
    size_t number;
    OutputMode mode;
  };
  Collectors got;
  std::map<uint64_t, Asked> asked;
  std::map<uint64_t, std::vector<std::string>> deltas;
  for (size_t number = 0; number < script.cases.size(); ++number) {
    for (const OutputMode mode : kModes) {
      const RequestId id = client.Submit(script.Request(number, mode));
      got.Expect(id, mode);
      asked[id.value] = {number, mode};
    }
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (client.live_requests() > 0 && std::chrono::steady_clock::now() < end) {
    const auto outputs = client.Poll(std::chrono::milliseconds(100));
    got.Add(outputs);
    for (const ClientOutput& output : outputs) {
      if (!output.text.empty()) deltas[output.request.value].emplace_back(output.text);
    }
  }
  ASSERT_EQ(client.live_requests(), 0);
  int64_t tokens = 0;
  for (const auto& [id, what] : asked) {
    SCOPED_TRACE(script.cases[what.number].name + ", " + std::string(Name(what.mode)));
    Collected all = got[RequestId{id}];
    EXPECT_EQ(all.logprob_ids.size(), all.ids.size() * 2);
    all.logprob_ids.clear();
    all.logprob_values.clear();
    EXPECT_EQ(all, script.Expected(what.number));
    tokens += all.output_tokens;
    const bool is_stepwise = !setting.is_remote && setting.burst == 1;
    if (is_stepwise && what.mode == OutputMode::kDelta &&
        !script.cases[what.number].deltas.empty()) {
      EXPECT_EQ(deltas[id], script.cases[what.number].deltas);
    }
  }
  const ClientCounters& counters = client.counters();
  EXPECT_EQ(counters.tokens, tokens);
  EXPECT_EQ(counters.unknown_rows + counters.repeated_ends + counters.gaps + counters.foreign_ids +
                counters.disagreements + counters.resets,
            0);
  if (setting.stop_at == StopAt::kEngine) {
    EXPECT_EQ(counters.aborts, 0);
    EXPECT_EQ(counters.stale_tokens, 0);
  } else if (!setting.is_remote) {  // a remote one may be done before the first poll
    EXPECT_GT(counters.aborts, 0);
  }
}

TEST_P(Parity, EveryCaseGivesItsTextItsEndAndItsCounts) {
  const Setting& setting = GetParam();
  const Tokenizer tokenizer = ByteLevelTokenizer(script().tokens);
  ScriptRunner runner({.vocab = script().vocab,
                       .tokens = script().script,
                       .max_requests = 64,
                       .burst = setting.burst});
  Engine engine(runner, tokenizer, {.steps_in_flight = setting.steps_in_flight});
  const EngineInfo info = script().Info(tokenizer);
  if (!setting.is_remote) {
    const auto client = MakeLocalClient(engine, info, tokenizer, {.stop_at = setting.stop_at});
    RunAll(*client, script(), setting);
    return;
  }
  EngineServer server(engine, info, {.listen = LocalEndpoint()});
  std::jthread steps([&](const std::stop_token& stop) { server.Run(stop); });
  const std::string endpoints[] = {server.endpoint()};
  const auto client =
      ConnectClient(endpoints, tokenizer, {.stop_at = setting.stop_at, .credits = 4});
  RunAll(*client, script(), setting);
}

std::vector<Setting> Settings() {
  std::vector<Setting> all;
  for (const StopAt stop_at : {StopAt::kEngine, StopAt::kFrontend}) {
    for (const bool is_remote : {false, true}) {
      for (const int32_t steps_in_flight : {0, 1}) {
        for (const int64_t burst : {1, 4}) {
          all.push_back({stop_at, is_remote, steps_in_flight, burst});
        }
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Parity, ::testing::ValuesIn(Settings()), [](const auto& setting) {
  const Setting& is = setting.param;
  return std::string(is.is_remote ? "Remote" : "Local") +
         (is.stop_at == StopAt::kEngine ? "StopAtEngine" : "StopAtFrontend") +
         std::to_string(is.steps_in_flight) + "InFlight" + std::to_string(is.burst) + "AStep";
});

}  // namespace
}  // namespace sluice::test
