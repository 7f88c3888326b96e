// What goes wrong around an engine: aborts at the worst moment, clients that vanish, memory that is
// not there, runners that fail. Every request still ends once, and nobody gets another's token.
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sluice/engine.hpp"
#include "sluice/error.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

class EngineFaults : public ::testing::TestWithParam<int32_t> {
 protected:
  EngineOptions engine_options() const { return {.steps_in_flight = GetParam()}; }
};

// Token n of a request is n.
TokenResult Counting(const TokenSource&, int64_t index) {
  return {.id = static_cast<int32_t>(index)};
}

TEST_P(EngineFaults, AnAbortAndAStopInOneStepAreOneEnd) {
  // The abort comes so many steps after the beginning; the stop is the fourth token.
  for (int64_t abort_step = 0; abort_step < 9; ++abort_step) {
    CheckingOptions options;
    options.token = Counting;
    CheckingRunner runner(options);
    Engine engine(runner, std::nullopt, engine_options());
    EngineClient client(engine, 4);
    EngineRequest request = MakeRequest({1, 2}, 40);
    request.params.stop_token_ids = {3};
    const RequestAddress address = client.Submit(request);
    for (int64_t step = 0; step < abort_step && engine.HasWork(); ++step) {
      client.Take(engine.Step());
    }
    const bool was_over = client.HasEnded(address);
    const size_t before = client.Of(address).ids.size();
    client.Abort(address);
    client.Abort(address);
    EXPECT_LE(Drain(engine, {&client}), 2 + GetParam());
    EXPECT_EQ(client.Of(address).end,
              was_over ? GenerationEnd::kStopToken : GenerationEnd::kCancelled);
    EXPECT_EQ(client.Of(address).ids.size(), before) << "a token behind the abort";
    EXPECT_EQ(engine.counters().aborted, was_over ? 0 : 1);
    EXPECT_EQ(engine.counters().stale_aborts, was_over ? 2 : 0);
    EXPECT_LE(engine.counters().tokens_discarded_abort, GetParam());
    ExpectIdle(engine, runner);
  }
}

TEST_P(EngineFaults, BurstsForAThousandRequestsComeInOrderAndLetAbortsThrough) {
  CheckingOptions options;
  options.info = {.vocab = 100,
                  .context = 2048,
                  .max_requests = 1024,
                  .max_step_tokens = 4096,
                  .page_tokens = 16,
                  .pages = 1 << 20,
                  .max_given_tokens = 128};
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 1024);
  std::vector<EngineRequest> requests;
  std::vector<RequestAddress> addresses;
  for (int32_t i = 0; i < 1024; ++i) {
    requests.push_back(MakeRequest({i % 100, i / 100}, 100 + i));
    addresses.push_back(client.Submit(requests.back()));
  }
  for (int step = 0; step < 2; ++step) client.Take(engine.Step());
  for (size_t i = 0; i < addresses.size(); i += 2) client.Abort(addresses[i]);
  const std::span<const EngineOutput> outputs = engine.Step();
  int32_t last = -1;
  for (const EngineOutput& output : outputs) {
    if (output.row.end == GenerationEnd::kCancelled) continue;
    EXPECT_GT(output.row.address.slot, last) << "not in the order of arrival";
    last = output.row.address.slot;
  }
  client.Take(outputs);
  for (size_t i = 0; i < addresses.size(); i += 2) EXPECT_TRUE(client.HasEnded(addresses[i]));
  Drain(engine, {&client});
  for (size_t i = 1; i < addresses.size(); i += 2) {
    EXPECT_EQ(client.Of(addresses[i]).ids, ExpectedOf(requests[i], options).ids);
    EXPECT_EQ(client.Of(addresses[i]).end, GenerationEnd::kLength);
  }
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, AbortsOfNobodyAreCountedAndChangeNothing) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 4);
  client.Abort({0, 0});  // before anything was there
  client.Abort({-1, 7});
  client.Abort({1 << 30, 7});
  engine.Abort({17, 3}, {0, 1});
  EXPECT_EQ(engine.counters().stale_aborts, 4);
  EXPECT_FALSE(engine.HasWork());

  const EngineRequest request = MakeRequest({1, 2}, 6);
  const RequestAddress address = client.Submit(request);
  client.Abort({address.slot, address.generation + 1});
  client.Abort({address.slot, address.generation - 1});
  EXPECT_EQ(engine.counters().stale_aborts, 6);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(address).ids, ExpectedOf(request, {}).ids);
  client.Abort(address);
  EXPECT_EQ(engine.counters().stale_aborts, 7);
  EXPECT_FALSE(engine.HasWork());

  // In front of the first step, and of one that is rejected anyway.
  const RequestAddress early = client.Submit(request);
  client.Abort(early);
  EngineRequest bad = request;
  bad.max_tokens = -1;
  const RequestAddress rejected = client.Submit(bad);
  client.Abort(rejected);
  client.Take(engine.Step());
  EXPECT_EQ(client.Of(early).end, GenerationEnd::kCancelled);
  EXPECT_EQ(client.Of(rejected).end, GenerationEnd::kRejected);
  EXPECT_EQ(engine.counters().stale_aborts, 7);
  Drain(engine, {&client});
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, ASlotThatIsTakenAtOnceGetsNoTokenOfTheOneBefore) {
  CheckingOptions options;
  options.info.max_requests = 2;
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 2);
  const EngineRequest other = MakeRequest({9}, 60);
  const RequestAddress beside = client.Submit(other);
  RequestAddress last = {};
  for (int32_t round = 0; round < 40; ++round) {
    const EngineRequest request = MakeRequest({round, round}, 50);
    const RequestAddress address = client.Submit(request);
    if (round > 0) {
      EXPECT_EQ(address.slot, last.slot);
      EXPECT_EQ(address.generation, last.generation + 1);
    }
    last = address;
    for (int32_t step = 0; step < round % 6; ++step) client.Take(engine.Step());
    client.Abort(address);
    client.Take(engine.Step());  // and here the place is free again
    EXPECT_EQ(client.Of(address).end, GenerationEnd::kCancelled);
    const std::vector<int32_t> expected = ExpectedOf(request, options).ids;
    const std::vector<int32_t>& ids = client.Of(address).ids;
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), expected.begin())) << round;
  }
  EXPECT_EQ(engine.counters().tokens_discarded_abort > 0, GetParam() == 1);
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(beside).ids, ExpectedOf(other, options).ids);
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, ARemovedClientIsSilentAndItsSlotsAreFree) {
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient gone(engine, 20);
  EngineClient stays(engine, 20);
  std::vector<RequestAddress> addresses;
  const EngineRequest request = MakeRequest({1, 2, 3}, 20);
  for (int i = 0; i < 10; ++i) {
    gone.Submit(request);
    addresses.push_back(stays.Submit(request));
  }
  for (int step = 0; step < 3; ++step) {
    const auto outputs = engine.Step();
    gone.Take(outputs);
    stays.Take(outputs);
  }
  EngineRequest bad = request;
  bad.max_tokens = -1;
  gone.Submit(bad);
  gone.Abort(gone.Submit(request));
  engine.RemoveClient(gone.id);
  engine.RemoveClient(gone.id);
  EngineClient next(engine, 20);  // in its place
  EXPECT_EQ(next.id.slot, gone.id.slot);
  const RequestAddress of_next = next.Submit(request);
  while (engine.HasWork()) {
    const auto outputs = engine.Step();
    for (const EngineOutput& output : outputs) EXPECT_NE(output.client, gone.id);
    stays.Take(outputs);
    next.Take(outputs);
  }
  for (const RequestAddress& address : addresses) {
    EXPECT_EQ(stays.Of(address).ids, ExpectedOf(request, {}).ids);
  }
  EXPECT_EQ(next.Of(of_next).ids, ExpectedOf(request, {}).ids);
  EXPECT_EQ(engine.counters().aborted, 11);
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, ARequestThatTheRunnerCannotServeEndsAloneAndSaysWhy) {
  CheckingOptions options;
  options.failure = [](const TokenSource& source, int64_t index) {
    return index == source.prompt[0] ? "no memory for " + std::to_string(index) : std::string();
  };
  options.failure_code = ErrorCode::kExhausted;
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt, engine_options());
  EngineClient client(engine, 8);
  const RequestAddress at_once = client.Submit(MakeRequest(std::vector<int32_t>(40, 0), 9));
  const RequestAddress later = client.Submit(MakeRequest({4}, 9));
  const RequestAddress good = client.Submit(MakeRequest({20}, 9));
  Drain(engine, {&client});
  EXPECT_EQ(client.Of(at_once).end, GenerationEnd::kRejected);  // nobody has seen anything of it
  EXPECT_EQ(client.Of(at_once).message, "no memory for 0");
  EXPECT_EQ(client.Of(later).end, GenerationEnd::kStatus);
  EXPECT_EQ(client.Of(later).status, RowStatus::kOk);
  EXPECT_EQ(client.Of(later).message, "no memory for 4");
  EXPECT_EQ(client.Of(at_once).code, ErrorCode::kExhausted);
  EXPECT_EQ(client.Of(later).code, ErrorCode::kExhausted);
  EXPECT_EQ(client.Of(later).ids.size(), 4u);
  EXPECT_EQ(client.Of(good).ids, ExpectedOf(MakeRequest({20}, 9), options).ids);
  EXPECT_EQ(engine.counters().rejected, 1);
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, ARequestWithoutMemoryIsRejectedAndOthersGoOn) {
  const int64_t allocations = AllocationCount();
  ::operator delete(::operator new(1));
  if (AllocationCount() == allocations) GTEST_SKIP() << "a sanitizer has its own operator new";
  CheckingRunner runner({});
  Engine engine(runner, std::nullopt, {.steps_in_flight = GetParam(), .max_client_requests = 5000});
  EngineClient client(engine, 1);
  const EngineRequest good = MakeRequest({1, 2}, 20);
  const RequestAddress address = client.Submit(good);
  client.Take(engine.Step());
  const auto submit_without_memory = [&](RequestAddress to) {
    EngineRequest request = good;
    request.address = to;
    const NoMemory none;
    engine.Submit(client.id, std::move(request));
  };
  submit_without_memory({10, 1});
  const auto outputs = engine.Step();
  ASSERT_GE(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].row.address, (RequestAddress{10, 1}));
  EXPECT_EQ(outputs[0].row.end, GenerationEnd::kRejected);
  EXPECT_EQ(outputs[0].row.message, "no memory");
  EXPECT_EQ(outputs[0].row.code, ErrorCode::kExhausted);
  EXPECT_EQ(outputs[0].row.parameter, "");
  client.Take(outputs.subspan(1));

  // Where even a rejection needs memory, nothing has changed.
  int32_t slot = 100;
  const auto submit_until_full = [&] {
    for (; slot < 4000; ++slot) submit_without_memory({slot, 1});
  };
  EXPECT_THROW(submit_until_full(), std::bad_alloc);
  const int64_t requests = engine.counters().requests;
  EXPECT_THROW(submit_without_memory({slot, 1}), std::bad_alloc);
  EXPECT_EQ(engine.counters().requests, requests);
  engine.Abort(client.id, {slot, 1});
  EXPECT_EQ(engine.counters().stale_aborts, 1);
  int64_t rejected = 0;
  while (engine.HasWork()) {
    for (const EngineOutput& output : engine.Step()) {
      if (output.row.end == GenerationEnd::kRejected) {
        ++rejected;
      } else {
        client.Take({&output, 1});
      }
    }
  }
  EXPECT_EQ(rejected, slot - 100);
  EXPECT_EQ(client.Of(address).ids, ExpectedOf(good, {}).ids);
  ExpectIdle(engine, runner);
}

TEST_P(EngineFaults, ARunnerThatThrowsEndsEveryRequestOnce) {
  struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (const bool in_launch : {false, true}) {
    for (const bool with_fail : {false, true}) {
      for (int64_t at = 0; at < 6; ++at) {
        CheckingOptions options;
        const auto fault = [at](int64_t step) {
          if (step == at) throw Broken("the device is gone");
        };
        (in_launch ? options.before_launch : options.before_await) = fault;
        CheckingRunner runner(options);
        Engine engine(runner, std::nullopt, engine_options());
        EngineClient client(engine, 16);
        std::vector<RequestAddress> addresses;
        for (int32_t i = 0; i < 9; ++i) addresses.push_back(client.Submit(MakeRequest({i}, 3 + i)));
        const auto step = [&] {
          // Ends of the step that throws are not lost.
          if (engine.counters().steps == at + (in_launch ? 0 : GetParam())) {
            client.Abort(addresses[8]);
            EngineRequest bad = MakeRequest({1}, -1);
            addresses.push_back(client.Submit(bad));
          }
          client.Take(engine.Step());
        };
        const auto step_until_broken = [&] {
          for (int i = 0; i < 100; ++i) step();
        };
        EXPECT_THROW(step_until_broken(), Broken);
        EXPECT_TRUE(engine.HasWork());
        const RequestAddress between = client.Submit(MakeRequest({1}, 8));
        client.Take(with_fail ? engine.Fail("gone") : engine.Step());
        EXPECT_EQ(client.live(), 0u);
        for (size_t i = 0; i < addresses.size(); ++i) {
          const Received& received = client.Of(addresses[i]);
          const auto wanted = i == 8                                   ? GenerationEnd::kCancelled
                              : i == 9                                 ? GenerationEnd::kRejected
                              : received.end == GenerationEnd::kLength ? GenerationEnd::kLength
                                                                       : GenerationEnd::kEngineLost;
          EXPECT_EQ(received.end, wanted) << i;
          if (wanted == GenerationEnd::kRejected) {
            EXPECT_EQ(received.message, "max_tokens = -1 is not allowed: [0, 2147483647]");
          }
          if (wanted != GenerationEnd::kEngineLost) continue;
          EXPECT_EQ(received.message, with_fail ? "gone" : "the device is gone");
        }
        // Those who come later are told as well.
        EXPECT_EQ(client.Of(between).end, GenerationEnd::kRejected);
        const RequestAddress late = client.Submit(MakeRequest({1}));
        EXPECT_TRUE(engine.HasWork());
        client.Take(engine.Step());
        EXPECT_EQ(client.Of(late).end, GenerationEnd::kRejected);
        EXPECT_EQ(
            client.Of(late).message,
            std::string("the engine is lost: ").append(with_fail ? "gone" : "the device is gone"));
        EXPECT_EQ(client.Of(late).code, ErrorCode::kUnavailable);
        EXPECT_EQ(client.Of(late).parameter, "");
        EXPECT_FALSE(engine.HasWork());
        EXPECT_EQ(engine.counters().running + engine.counters().waiting, 0);
        EXPECT_EQ(engine.counters().requests, engine.counters().ended);
      }
    }
  }
}

TEST_P(EngineFaults, AnEngineThatIsEndedFromOutsideAwaitsItsStepsBeforeItDies) {
  for (const bool is_told : {false, true}) {
    CheckingRunner runner({});
    {
      Engine engine(runner, std::nullopt, engine_options());
      EngineClient client(engine, 16);
      for (int32_t i = 0; i < 9; ++i) client.Submit(MakeRequest({i, i, i}, 30));
      for (int step = 0; step < 5; ++step) client.Take(engine.Step());
      if (is_told) {
        client.Take(engine.Fail("it was told to end"));
        EXPECT_EQ(client.ended(), 9u);
        client.Take(engine.Fail("again"));
        EXPECT_FALSE(engine.HasWork());
      }
      EXPECT_EQ(runner.on_their_way(), static_cast<size_t>(GetParam()));
    }
    EXPECT_EQ(runner.on_their_way(), 0u);
  }
}

// A runner whose results are spoilt before the engine sees them.
class SpoiltRunner final : public StepRunner {
 public:
  SpoiltRunner(StepRunner& runner, std::function<void(std::vector<StepRowResult>&)> spoil)
      : runner_(runner), spoil_(std::move(spoil)) {}
  const RunnerInfo& info() const override { return runner_.info(); }
  void Launch(const StepPlan& plan) override { runner_.Launch(plan); }
  const StepResults& Await() override {
    const StepResults& results = runner_.Await();
    rows_.assign(results.rows.begin(), results.rows.end());
    spoil_(rows_);
    results_.rows = rows_;
    return results_;
  }

 private:
  StepRunner& runner_;
  std::function<void(std::vector<StepRowResult>&)> spoil_;
  std::vector<StepRowResult> rows_;
  StepResults results_;
};

TEST_P(EngineFaults, ARunnerThatBreaksItsContractIsLost) {
  using Rows = std::vector<StepRowResult>;
  static const std::vector<TokenResult> kTwo(2, TokenResult{.id = 1});
  static const std::vector<int32_t> kIds(1, 0);
  const std::vector<std::function<void(Rows&)>> spoilers = {
      [](Rows& rows) { rows.pop_back(); },
      [](Rows& rows) { rows.emplace_back(); },
      [](Rows& rows) { rows[0].tokens = {}; },
      [](Rows& rows) { rows[0].tokens = kTwo; },      // where it gives one
      [](Rows& rows) { rows.back().tokens = kTwo; },  // behind a chunk that goes on
      [](Rows& rows) {
        rows[0].logprob_width = 2;
        rows[0].logprob_ids = kIds;
      },
  };
  for (size_t i = 0; i < spoilers.size(); ++i) {
    CheckingRunner inner({});
    SpoiltRunner runner(inner, spoilers[i]);
    Engine engine(runner, std::nullopt, engine_options());
    EngineClient client(engine, 4);
    client.Submit(MakeRequest({1}, 9));
    client.Submit(MakeRequest(std::vector<int32_t>(40, 1), 9));
    const auto step_twice = [&] {
      engine.Step();
      engine.Step();
    };
    EXPECT_THROW(step_twice(), Error) << i;
    client.Take(engine.Fail("lost"));
    EXPECT_EQ(client.ended(), 2u) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineFaults, ::testing::Values(0, 1), [](const auto& param) {
  return param.param == 0 ? "Synchronous" : "InFlight";
});

}  // namespace
}  // namespace sluice::test
