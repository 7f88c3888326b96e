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
#include "tests/link/text_script.h"

namespace sluice::test {
namespace {

constexpr OutputMode kModes[] = {OutputMode::kDelta, OutputMode::kCumulative, OutputMode::kFinal};

struct Setting {
  StopAt stop_at;
  bool is_remote;
  int32_t steps_in_flight;
  int64_t burst;
};

class Parity : public ::testing::TestWithParam<Setting> {
 protected:
  static const TextScript& script() {
    static const TextScript all;
    return all;
  }
};

// All cases in all modes at once.
void RunAll(Client& client, const TextScript& script, const Setting& setting) {
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
