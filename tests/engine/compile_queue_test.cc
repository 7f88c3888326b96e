// Which grammar is compiled next. The workers are imagined: each Begin is one that begins.
#include "engine/grammar/compile_queue.h"

#include <gtest/gtest.h>

#include "engine/grammar/grammar_workers.h"

namespace sluice::engine {
namespace {

class CompileQueueTest : public ::testing::Test {
 protected:
  // The request lives until the test ends.
  bool Add(int32_t client, const std::string& text, int64_t most = 100) {
    kept_.push_back(Request());
    return queue_.Add({&counters_, client}, {.kind = GrammarKind::kRegex, .text = text},
                      kept_.back(), most);
  }
  std::shared_ptr<RequestGrammar> Request() {
    return std::make_shared<RequestGrammar>(*none_, counters_);
  }
  std::string Begin() {
    begun_ = queue_.Begin();
    return begun_ == nullptr ? "" : begun_->grammar.text;
  }

  MaskCounters counters_;
  GrammarWorkers* none_ = reinterpret_cast<GrammarWorkers*>(&counters_);  // never called
  CompileQueue queue_{3};
  CompileJob* begun_ = nullptr;
  std::vector<std::shared_ptr<RequestGrammar>> kept_;
};

TEST_F(CompileQueueTest, ClientsTakeTurns) {
  for (const char* text : {"a1", "a2", "a3"}) Add(0, text);
  for (const char* text : {"b1", "b2"}) Add(1, text);
  std::string order;
  while (!Begin().empty()) {
    order += begun_->grammar.text + " ";
    queue_.End(begun_);
  }
  EXPECT_EQ(order, "a1 b1 a2 b2 a3 ");
}

TEST_F(CompileQueueTest, AClientNeverHasAllWorkers) {
  for (const char* text : {"a1", "a2", "a3"}) Add(0, text);
  EXPECT_EQ(Begin(), "a1");
  CompileJob* const first = begun_;
  EXPECT_EQ(Begin(), "a2");
  EXPECT_EQ(Begin(), "");
  Add(1, "b1");
  EXPECT_EQ(Begin(), "b1");
  queue_.End(first);
  EXPECT_EQ(Begin(), "a3");
}

TEST_F(CompileQueueTest, LongTextsOfAllClientsLeaveWorkersFree) {
  Add(0, std::string(kLongText + 1, 'a'));
  Add(1, std::string(kLongText + 1, 'b'));
  Add(1, "short");
  EXPECT_EQ(Begin()[0], 'a');
  CompileJob* const first = begun_;
  EXPECT_EQ(Begin(), "short");
  EXPECT_EQ(Begin(), "");
  queue_.End(first);
  EXPECT_EQ(Begin()[0], 'b');
}

TEST_F(CompileQueueTest, RequestsForOneGrammarShareItsJob) {
  Add(0, "same", 1);
  EXPECT_TRUE(Add(0, "same", 1));
  EXPECT_FALSE(Add(0, "other", 1));
  EXPECT_EQ(Begin(), "same");
  EXPECT_TRUE(Add(1, "same", 1));  // while it is compiled
  CompileJob* const job = begun_;
  EXPECT_EQ(Begin(), "");
  EXPECT_EQ(queue_.End(job).size(), 3u);
}

// It would wait for the turns of that client.
TEST_F(CompileQueueTest, AJobThatWaitsForAnotherClientIsNotShared) {
  Add(0, "same", 1);
  EXPECT_TRUE(Add(1, "same", 1));
  EXPECT_EQ(Begin(), "same");
  CompileJob* const first = begun_;
  EXPECT_EQ(Begin(), "same");
  EXPECT_EQ(queue_.End(first).size(), 1u);
}

TEST_F(CompileQueueTest, WhatNoRequestWaitsForIsNotCompiled) {
  Add(0, "gone", 1);
  kept_.clear();
  EXPECT_TRUE(Add(0, "next", 1)) << "the job of a request that is gone counts no more";
  EXPECT_EQ(Begin(), "next");
  EXPECT_EQ(Begin(), "");
}

}  // namespace
}  // namespace sluice::engine
