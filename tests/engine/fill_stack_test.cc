#include <gtest/gtest.h>

#include <thread>

#include "engine/grammar/grammar_workers.h"

namespace sluice::engine {
namespace {

class FillStackTest : public ::testing::Test {
 protected:
  std::shared_ptr<RequestGrammar> Request() {
    return std::make_shared<RequestGrammar>(*none_, counters_);
  }

  MaskCounters counters_;
  GrammarWorkers* none_ = reinterpret_cast<GrammarWorkers*>(&counters_);  // never called
  FillStack stack_;
};

TEST_F(FillStackTest, TheLastDrawnIsFilledFirst) {
  const auto first = Request(), second = Request(), third = Request();
  for (const auto& request : {first, second, third, first}) stack_.Add(request);
  EXPECT_EQ(stack_.Take(), third);
  EXPECT_EQ(stack_.Take(), second);
  stack_.Add(third);
  EXPECT_EQ(stack_.Take(), third);
  EXPECT_EQ(stack_.Take(), first);
  EXPECT_EQ(stack_.Take(), nullptr);
  EXPECT_EQ(first.use_count(), 1);
}

TEST_F(FillStackTest, AFillerThatIsAtWorkNeedsNoWakeUp) {
  const auto first = Request(), second = Request();
  stack_.Add(first);
  EXPECT_EQ(stack_.idle_work(), 0) << "no filler waits";
  std::thread filler([this] {
    while (const auto request = stack_.Await()) request->Fail(ErrorCode::kExhausted, "", "");
  });
  while (first->state() != RequestGrammar::State::kFailed) std::this_thread::yield();
  // Without a wake-up it takes nothing more.
  stack_.Add(second);
  while (stack_.idle_work() == 0 && second->state() != RequestGrammar::State::kFailed) {
    std::this_thread::yield();
  }
  if (second->state() != RequestGrammar::State::kFailed) {  // else it had not yet gone to sleep
    EXPECT_EQ(stack_.idle_work(), 1);
    stack_.Wake();
  }
  while (second->state() != RequestGrammar::State::kFailed) std::this_thread::yield();
  stack_.End();
  filler.join();
}

TEST_F(FillStackTest, TheEndFreesWhatIsLeft) {
  const auto request = Request();
  stack_.Add(request);
  stack_.End();
  EXPECT_EQ(request.use_count(), 1);
  EXPECT_EQ(stack_.Await(), nullptr);
  stack_.Add(request);
  EXPECT_EQ(request.use_count(), 1);
}

TEST(UsualTime, FollowsWhatItTakesAndForgetsInterruptions) {
  UsualTime time(1000);
  for (int i = 0; i < 100; ++i) time.Note(9000);
  EXPECT_GT(time.ns(), 8900);
  EXPECT_LE(time.ns(), 9000);
  time.Note(int64_t{1} << 40);
  EXPECT_LT(time.ns(), 9000 + 200'000 / 8);
  for (int i = 0; i < 10'000; ++i) time.Fade();
  EXPECT_LT(time.ns(), 2000);
}

}  // namespace
}  // namespace sluice::engine
