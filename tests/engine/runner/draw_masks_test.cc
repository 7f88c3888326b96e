// How runners call the masks of their rows.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "sluice/script_runner.hpp"
#include "tests/engine/runner/tiny_runner.h"

namespace sluice::test {
namespace {

class LoggingMask final : public DrawMask {
 public:
  explicit LoggingMask(std::string& log) : log_(log) {}
  std::span<const int32_t> Await() override {
    log_ += 'a';
    return {};
  }
  void Drew(int32_t) override { log_ += 'd'; }
  void Flush() override { log_ += 'f'; }

 private:
  std::string& log_;
};

// The calls of a step of three rows, the second of them without a mask.
std::string CallsOf(StepRunner& runner) {
  std::string log;
  std::array<LoggingMask, 2> masks = {LoggingMask(log), LoggingMask(log)};
  SamplingParams params;
  params.seed = 1;
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<RunnerRequest> begun;
  std::vector<StepRow> rows;
  for (int32_t slot = 0; slot < 3; ++slot) {
    DrawMask* const mask = slot == 1 ? nullptr : &masks[static_cast<size_t>(slot) / 2];
    begun.push_back(
        {.slot = slot, .params = &params, .prompt = prompt, .max_tokens = 4, .mask = mask});
    rows.push_back({.slot = slot, .tokens = prompt});
  }
  runner.Launch({.begun = begun, .rows = rows});
  for (const StepRowResult& row : runner.Await().rows) EXPECT_EQ(row.failure, "");
  return log;
}

// One wake-up of a filler is enough for all rows.
TEST(DrawMasks, AreFlushedOnceAStepAfterItsDraws) {
  ScriptRunner script({.vocab = 100, .tokens = {10, 20, 30}});
  EXPECT_EQ(CallsOf(script), "adadf");
  ModelRunner model(Tiny(), {.max_requests = 4});
  EXPECT_EQ(CallsOf(model), "aaddf");
}

}  // namespace
}  // namespace sluice::test
