// Engines that are lost: what becomes of steps on their way, and what those who ask are told.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/step_store.h"
#include "sluice/engine.hpp"
#include "sluice/error.hpp"
#include "sluice/runner_thread.hpp"
#include "sluice/script_runner.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "text/normalize/utf8.h"

namespace sluice::test {
namespace {

// The results of every step lack a row. Counts what was launched and awaited.
class ShortRunner final : public StepRunner {
 public:
  explicit ShortRunner(StepRunner& runner) : runner_(runner) {}
  const RunnerInfo& info() const override { return runner_.info(); }
  void Launch(const StepPlan& plan) override {
    ++launched;
    runner_.Launch(plan);
  }
  const StepResults& Await() override {
    ++awaited;
    results_ = runner_.Await();
    results_.rows = results_.rows.first(results_.rows.size() - 1);
    return results_;
  }

  int64_t launched = 0;
  int64_t awaited = 0;

 private:
  StepRunner& runner_;
  StepResults results_;
};

// The thread still reads the plan of the second step when the engine finds fault with the first.
TEST(EngineLost, AnEngineThatRefusesResultsAwaitsTheStepBehindThemBeforeItDies) {
  for (const bool is_told : {false, true}) {
    ScriptRunner script({.vocab = 10, .tokens = {1}, .before_step = [](int64_t step) {
                           if (step > 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
                         }});
    RunnerThread thread(script);
    ShortRunner runner(thread);
    {
      Engine engine(runner, std::nullopt, {.steps_in_flight = 1});
      EngineClient client(engine, 4);
      for (int32_t i = 0; i < 4; ++i) client.Submit(MakeRequest({i, i, i}, 30));
      engine.Step();
      EXPECT_THROW(engine.Step(), Error);
      if (is_told) client.Take(engine.Fail("it was told to end"));
      EXPECT_EQ(runner.launched, 2);
      EXPECT_EQ(runner.awaited, 1);
    }
    EXPECT_EQ(runner.awaited, 2);
  }
}

// The step that throws has ends to give: to those who are still there.
TEST(EngineLost, WhatAThrowingStepHadToGiveIsNotGivenToAClientThatHasGone) {
  CheckingOptions options;
  options.before_launch = [](int64_t step) {
    if (step == 1) throw std::runtime_error("the device is gone");
  };
  CheckingRunner runner(options);
  Engine engine(runner, std::nullopt);
  EngineClient gone(engine, 4), stays(engine, 4);
  const RequestAddress of_gone = gone.Submit(MakeRequest({1}, 9));
  const RequestAddress of_stays = stays.Submit(MakeRequest({1}, 9));
  const auto first = engine.Step();
  gone.Take(first);
  stays.Take(first);
  gone.Abort(of_gone);
  stays.Abort(of_stays);
  EXPECT_THROW(engine.Step(), std::runtime_error);
  engine.RemoveClient(gone.id);
  const auto outputs = engine.Fail("gone");
  for (const EngineOutput& output : outputs) EXPECT_EQ(output.client, stays.id);
  stays.Take(outputs);
  EXPECT_EQ(stays.Of(of_stays).end, GenerationEnd::kCancelled);
}

TEST(EngineLost, AFailureThatIsTooLongIsCutBetweenCharacters) {
  const RunnerInfo info{.vocab = 1, .context = 2, .max_requests = 1, .max_step_tokens = 1};
  for (size_t before = 0; before < 4; ++before) {
    std::string failure(before, '-');
    while (failure.size() < 1000) failure += "\U0001F525";
    engine::StepStore store(info);
    store.Add({.failure = failure});
    store.Finish({});
    const std::string_view kept = store.results().rows[0].failure;
    EXPECT_TRUE(text::IsUtf8(kept));
    EXPECT_TRUE(failure.starts_with(kept));
    EXPECT_GT(kept.size(), engine::kMostFailureBytes - 4);
    EXPECT_LE(kept.size(), engine::kMostFailureBytes);
  }
}

}  // namespace
}  // namespace sluice::test
