// A compilation delays the request that has the grammar, and no other.
#include <chrono>
#include <thread>

#include "engine/grammar/grammar_workers.h"
#include "link/engine_info.h"
#include "sluice/script_runner.hpp"
#include "tests/engine/engine_grammar_fixture.h"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

ScriptOptions Script() {
  ScriptOptions options;
  options.vocab = DefaultModel().vocab();
  options.tokens = DefaultModel().tokenizer().Encode("a cat and a dog");
  options.step_time = std::chrono::milliseconds(1);
  return options;
}

struct ScriptEngine {
  ScriptEngine(GrammarService& service, const ScriptOptions& options)
      : runner(options),
        engine(runner, DefaultModel().tokenizer(), {.grammars = &service}),
        client(engine, 1024),
        other(engine, 1024) {}

  ScriptRunner runner;
  Engine engine;
  EngineClient client, other;
};

TEST(GrammarService, AScriptFollowsTheGrammar) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  ScriptOptions options = Script();
  options.step_time = {};
  for (const int64_t burst : {1, 3}) {
    options.burst = burst;
    ScriptEngine script(*service, options);
    std::vector<RequestAddress> addresses;
    for (const CheckedSchema& schema : kSchemas) {
      addresses.push_back(script.client.Submit(GrammarRequest(schema.schema, 1, 1000)));
    }
    Drain(script.engine, {&script.client});
    for (size_t i = 0; i < addresses.size(); ++i) {
      ExpectMatch(kSchemas[i], script.client.Of(addresses[i]));
    }
  }
}

// A frontend takes the tokens that end an output from the engine's info, and would go on after
// another one.
TEST(GrammarService, HasNoStopTokenThatTheEngineDoesNotSayOf) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  ScriptEngine script(*service, Script());
  const std::span<const int32_t> its = DefaultModel().end_tokens();
  const std::vector<int32_t> ends(its.begin(), its.end());
  ASSERT_FALSE(ends.empty());
  EXPECT_TRUE(link::Completed({.end_tokens = ends}, script.engine).has_grammars);
  for (const std::vector<int32_t>& others : {std::vector<int32_t>{}, {ends.front() + 1}}) {
    try {
      link::Completed({.end_tokens = others}, script.engine);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.parameter(), "grammars.stop_tokens()");
      EXPECT_EQ(error.value(), std::to_string(ends.front()));
    }
  }
}

// The hostile client's grammars take all workers that they may have, one after the other.
TEST(GrammarService, AHostileClientDelaysNoOthersTokensOrGrammar) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  ScriptEngine script(*service, Script());
  std::vector<RequestAddress> hostile;
  for (int i = 0; i < 40; ++i) {
    hostile.push_back(script.other.Submit(GrammarRequest(WideSchema(400, i))));
    hostile.push_back(script.other.Submit(GrammarRequest(WideSchema(100, 100 + i))));
  }
  const RequestAddress plain = script.client.Submit(MakeRequest({1, 2}, 100));
  const RequestAddress small = script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 1000));
  const auto begin = Clock::now();
  auto last = begin;
  Clock::duration longest = {};
  while (!script.client.HasEnded(plain) || !script.client.HasEnded(small)) {
    const auto outputs = script.engine.Step();
    script.client.Take(outputs);
    script.other.Take(outputs);
    longest = std::max(longest, Clock::now() - last);
    last = Clock::now();
  }
  const auto milliseconds = [](Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  RecordProperty("longest_step_ms", std::to_string(milliseconds(longest)));
  RecordProperty("both_ms", std::to_string(milliseconds(last - begin)));
  ExpectMatch(kSchemas[0], script.client.Of(small));
  EXPECT_GT(script.engine.counters().grammars.compiling, 0)
      << "the others' grammars were compiled before";
  EXPECT_EQ(script.engine.counters().rejected, 0);
  for (const RequestAddress& address : hostile) script.other.Abort(address);
  Drain(script.engine, {&script.client, &script.other});
}

// Whether the first has begun, when the others come, is up to the machine: their number depends on
// it.
TEST(GrammarService, AClientHasABoundedNumberOfJobs) {
  SLUICE_NEEDS_GRAMMAR(library);
  constexpr int kWait = 2;
  const auto service = ServiceOf(*library, {.compilers = 1, .max_client_jobs = kWait});
  ScriptEngine script(*service, Script());
  std::vector<RequestAddress> addresses;
  for (int i = 0; i < 16; ++i) {
    addresses.push_back(script.other.Submit(GrammarRequest(WideSchema(300, i), 1, 4)));
  }
  const RequestAddress again = script.other.Submit(GrammarRequest(WideSchema(300, 1), 1, 4));
  const int64_t begun = service->workers().compiled() + 1;  // at most
  Drain(script.engine, {&script.other});
  int64_t taken = 0;
  for (const RequestAddress& address : addresses) {
    const Received& its = script.other.Of(address);
    if (its.end != GenerationEnd::kRejected) {
      ++taken;
    } else {
      EXPECT_EQ(its.code, ErrorCode::kExhausted);
    }
  }
  EXPECT_GE(taken, kWait);
  EXPECT_LE(taken, kWait + begun);
  EXPECT_NE(script.other.Of(again).end, GenerationEnd::kRejected) << "one job serves both";
}

// A grammar that is in no cache is still held by its requests.
TEST(GrammarService, TheGrammarsOfRequestsHaveABound) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto begin = [](ScriptEngine& script) {
    const RequestAddress address = script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 400));
    while (script.engine.counters().running == 0) script.client.Take(script.engine.Step());
    return address;
  };
  const auto one = ServiceOf(*library);
  ScriptEngine measured(*one, Script());
  begin(measured);
  const size_t bytes = one->workers().live().bytes();
  ASSERT_GT(bytes, 0u);
  Drain(measured.engine, {&measured.client});
  // A filler may still look at the last one.
  while (one->workers().live().bytes() > 0) std::this_thread::yield();

  const auto service =
      ServiceOf(*library, {.live_bytes = bytes + bytes / 2, .limits = {.cache_bytes = 0}});
  ScriptEngine script(*service, Script());
  const RequestAddress first = begin(script);
  const RequestAddress beyond = script.client.Submit(GrammarRequest(WideSchema(40, 1), 1, 4));
  service->workers().AwaitCompiled(1, std::chrono::hours(1));  // while the first one lives
  Drain(script.engine, {&script.client});
  const Received& rejected = script.client.Of(beyond);
  EXPECT_EQ(rejected.end, GenerationEnd::kRejected);
  EXPECT_EQ(rejected.code, ErrorCode::kExhausted) << rejected.message;
  EXPECT_EQ(rejected.parameter, "");
  ExpectMatch(kSchemas[0], script.client.Of(first));
  while (service->workers().live().bytes() > 0) std::this_thread::yield();
  const RequestAddress after = begin(script);
  Drain(script.engine, {&script.client});
  ExpectMatch(kSchemas[0], script.client.Of(after));
}

// A hit of the cache is cheap enough for the thread of the steps.
TEST(GrammarService, ACachedGrammarBeginsWithoutAWorker) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  ScriptEngine script(*service, Script());
  script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 1));
  Drain(script.engine, {&script.client});
  script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 1));
  EXPECT_EQ(script.engine.counters().grammars.compiling, 0);
  EXPECT_EQ(script.engine.counters().waiting, 1);
  Drain(script.engine, {&script.client});
}

TEST(GrammarService, AFillerMakesTheFirstMaskOfACachedGrammar) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library);
  ScriptEngine script(*service, Script());
  script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 1));
  Drain(script.engine, {&script.client});
  // The draw of the one token leaves a mask to fill.
  const auto await_filled = [&](int64_t count) {
    while (service->workers().filled() < count) std::this_thread::yield();
    EXPECT_EQ(service->workers().filled(), count);
  };
  await_filled(1);
  script.client.Submit(GrammarRequest(kSchemas[0].schema, 1, 1));
  await_filled(2);  // before any step
  Drain(script.engine, {&script.client});
  EXPECT_EQ(script.engine.counters().grammars.mask_waits, 0);
  EXPECT_EQ(script.engine.counters().grammars.masks, 2);
  EXPECT_EQ(script.engine.counters().grammars.compiled, 1);
  EXPECT_EQ(script.engine.counters().grammars.cached, 1);
}

// The first clients of two engines have the same number.
TEST(GrammarService, ClientsOfTwoEnginesAreTwo) {
  SLUICE_NEEDS_GRAMMAR(library);
  const auto service = ServiceOf(*library, {.compilers = 1, .max_client_jobs = 1});
  ScriptEngine one(*service, Script()), two(*service, Script());
  ASSERT_EQ(one.client.id.slot, two.client.id.slot);
  for (int i = 0; i < 8; ++i) one.client.Submit(GrammarRequest(WideSchema(300, i), 1, 4));
  const RequestAddress other = two.client.Submit(GrammarRequest(WideSchema(30, 9), 1, 4));
  Drain(two.engine, {&two.client});
  EXPECT_NE(two.client.Of(other).end, GenerationEnd::kRejected) << two.client.Of(other).message;
  Drain(one.engine, {&one.client});
}

TEST(GrammarService, RefusesOptionsOutOfRange) {
  SLUICE_NEEDS_GRAMMAR(library);
  EXPECT_EQ(SentenceOf([&] { ServiceOf(*library, {.compilers = 0}); }),
            "compilers = 0 is not allowed: [1, 256]");
}

}  // namespace
}  // namespace sluice::test
