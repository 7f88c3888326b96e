// What loses a request, and no other: rows that cannot be believed, an engine that sees another
// end, an engine that is gone.
#include <gtest/gtest.h>

#include "link/frontend/request_table.h"
#include "tests/link/one_engine.h"

namespace sluice::test {
namespace {

using link::RequestTable;

// These cannot be made good: the request is lost, the others are not.
TEST(RequestTable, RowsThatCannotBeBelievedEndTheirRequestAlone) {
  const Tokenizer letters = Letters();
  const std::vector<int32_t> fine = {1};
  const std::vector<float> values(40, 0.0f);
  const std::vector<int32_t> numbers(40, 1);
  struct Bad {
    const char* name;
    OutputRow row;
    int64_t ClientCounters::* counter;
  };
  const std::vector<int32_t> above = {letters.size()};
  const std::vector<int32_t> largest = {static_cast<int32_t>(UINT32_MAX)};
  const std::vector<int32_t> most = {INT32_MAX};
  const std::vector<int32_t> many(11, 1);
  const auto end = static_cast<GenerationEnd>(kGenerationEnds);
  const Bad all[] = {
      {"a gap", {.first_token = 2, .ids = fine}, &ClientCounters::gaps},
      {"a repeat", {.first_token = 0, .ids = fine}, &ClientCounters::gaps},
      {"a negative place", {.first_token = -1, .ids = fine}, &ClientCounters::gaps},
      {"the largest place", {.first_token = INT64_MAX, .ids = fine}, &ClientCounters::gaps},
      {"an end that is not one",
       {.first_token = 1, .ids = fine, .end = end},
       &ClientCounters::gaps},
      {"more than was asked for", {.first_token = 1, .ids = many}, &ClientCounters::gaps},
      {"too many log-probabilities",
       {.first_token = 1, .ids = fine, .logprobs = values, .ranks = numbers},
       &ClientCounters::gaps},
      {"ranks alone", {.first_token = 1, .ids = fine, .ranks = fine}, &ClientCounters::gaps},
      {"a list that is too short",
       {.first_token = 1,
        .ids = fine,
        .logprob_width = INT32_MAX,
        .logprob_ids = numbers,
        .logprob_values = values},
       &ClientCounters::gaps},
      {"a negative list",
       {.first_token = 1, .ids = fine, .logprob_width = -1},
       &ClientCounters::gaps},
      {"log-probabilities that nobody asked for",
       {.first_token = 1,
        .ids = fine,
        .logprobs = std::span(values).first(1),
        .ranks = std::span(numbers).first(1)},
       &ClientCounters::disagreements},
      {"lists that nobody asked for",
       {.first_token = 1,
        .ids = fine,
        .logprob_width = 1,
        .logprob_ids = fine,
        .logprob_values = std::span(values).first(1)},
       &ClientCounters::gaps},
      {"an id above the vocabulary",
       {.first_token = 1, .ids = above},
       &ClientCounters::foreign_ids},
      {"2^32 - 1", {.first_token = 1, .ids = largest}, &ClientCounters::foreign_ids},
      {"the largest id", {.first_token = 1, .ids = most}, &ClientCounters::foreign_ids},
  };
  for (const Bad& bad : all) {
    for (const bool ends : {false, true}) {
      SCOPED_TRACE(bad.name);
      OneEngine engine(letters);
      const RequestId lost = engine.Add(Asks(11));
      const RequestId other = engine.Add(Asks());
      engine.Give(lost, 0, "a");
      OutputRow row = bad.row;
      row.address = engine.AddressOf(lost);
      if (ends && row.end == GenerationEnd::kNone) row.end = GenerationEnd::kLength;
      engine.table.Take(0, row);
      EXPECT_EQ(engine.table.counters.*bad.counter, 1);
      engine.Give(other, 0, "b");
      EXPECT_EQ(engine.Collect(), 2u);
      EXPECT_EQ(engine.got[lost].end, GenerationEnd::kEngineLost);
      EXPECT_EQ(engine.got[lost].text, "a");
      EXPECT_FALSE(engine.got[lost].message.empty());
      EXPECT_EQ(engine.got[other].text, "b");
      EXPECT_FALSE(engine.got.HasEnded(other));
      const bool is_over_there = row.end != GenerationEnd::kNone;
      EXPECT_EQ(engine.table.TakeAborts(0).size(), is_over_there ? 0u : 1u);
      engine.table.Release();
      EXPECT_EQ(engine.table.taken_slots(0), is_over_there ? 1 : 2);
    }
  }
  // Lists: an id in them, and their width.
  OneEngine engine(letters);
  const std::vector<int32_t> list = {1, letters.size()};
  const auto row_of = [&](RequestId id, int64_t first, std::span<const int32_t> its) {
    return OutputRow{.address = engine.AddressOf(id),
                     .first_token = first,
                     .ids = fine,
                     .logprobs = std::span(values).first(1),
                     .ranks = fine,
                     .logprob_width = static_cast<int32_t>(its.size()),
                     .logprob_ids = its,
                     .logprob_values = std::span(values).first(its.size())};
  };
  ClientRequest asks_for_lists = Asks();
  asks_for_lists.params.logprobs = 2;
  engine.table.Take(0, row_of(engine.Add(asks_for_lists), 0, list));
  EXPECT_EQ(engine.table.counters.foreign_ids, 1);
  const RequestId narrower = engine.Add(asks_for_lists);
  engine.table.Take(0, row_of(narrower, 0, std::span(numbers).first(3)));
  engine.table.Take(0, row_of(narrower, 1, std::span(numbers).first(2)));
  EXPECT_EQ(engine.table.counters.gaps, 1);
}

TEST(RequestTable, TokensWithoutTheLogprobsAskedForLoseTheRequest) {
  const Tokenizer letters = Letters();
  OneEngine engine(letters);
  ClientRequest asks = Asks();
  asks.params.logprobs = 0;
  const RequestId lost = engine.Add(asks);
  const RequestId ended = engine.Add(asks);
  engine.Give(lost, 0, "a");
  engine.Give(ended, 0, "", GenerationEnd::kLength);  // no token, so nothing is missing
  EXPECT_EQ(engine.Collect(), 2u);
  EXPECT_EQ(engine.got[lost].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(engine.got[lost].text, "");
  EXPECT_NE(engine.got[lost].message.find("log-probabilities"), std::string::npos);
  EXPECT_EQ(engine.got[ended].end, GenerationEnd::kLength);
  EXPECT_EQ(engine.table.counters.disagreements, 1);
}

TEST(RequestTable, AnEngineThatSeesAnotherEndThanTheTextHasLosesTheRequest) {
  struct Told {
    std::string_view letters;
    GenerationEnd end;
  };
  // The text ends with the stop at the third token.
  const Told all[] = {{"axs", GenerationEnd::kNone},      {"axs", GenerationEnd::kLength},
                      {"axs", GenerationEnd::kStopToken}, {"axsy", GenerationEnd::kStopString},
                      {"ax", GenerationEnd::kStopString}, {"axs", GenerationEnd::kStatus},
                      {"ax", GenerationEnd::kStopToken}};
  for (const Told& told : all) {
    SCOPED_TRACE(std::string(told.letters).append(" ").append(Name(told.end)));
    OneEngine engine(Letters());
    const RequestId id = engine.Add(Asks(100, {"xs"}));
    engine.Give(id, 0, told.letters, told.end);
    engine.Collect();
    EXPECT_EQ(engine.got[id].end, GenerationEnd::kEngineLost);
    EXPECT_NE(engine.got[id].message.find(Name(told.end)), std::string::npos);
    EXPECT_EQ(engine.table.counters.disagreements, 1);
    EXPECT_EQ(engine.table.TakeAborts(0).size(), told.end == GenerationEnd::kNone ? 1u : 0u);
  }
}

TEST(RequestTable, WhatFailedKeepsItsEndAndItsText) {
  for (const GenerationEnd end :
       {GenerationEnd::kStatus, GenerationEnd::kRejected, GenerationEnd::kEngineLost,
        GenerationEnd::kContext, GenerationEnd::kCancelled}) {
    OneEngine engine(Letters());
    const RequestId id = engine.Add(Asks(100, {"stop"}));
    engine.Give(id, 0, "gost");
    engine.table.Take(0, {.address = engine.AddressOf(id),
                          .first_token = 4,
                          .end = end,
                          .status = RowStatus::kNanInput,
                          .message = "why",
                          .code = ErrorCode::kExhausted,
                          .parameter = "top_p"});
    engine.Collect();
    EXPECT_EQ(engine.got[id].end, end);
    EXPECT_EQ(engine.got[id].text, "gost");
    EXPECT_EQ(engine.got[id].status, RowStatus::kNanInput);
    EXPECT_EQ(engine.got[id].message, "why");
    EXPECT_EQ(engine.got[id].code, ErrorCode::kExhausted);
    EXPECT_EQ(engine.got[id].parameter, "top_p");
    engine.table.Release();
    EXPECT_EQ(engine.table.taken_slots(0), 0);
  }
}

TEST(RequestTable, AnEngineThatIsGoneEndsItsRequestsAlone) {
  RequestTable table(Letters(), StopAt::kEngine);
  Collectors got;
  std::vector<RequestId> ids;
  for (int32_t engine = 0; engine < 2; ++engine) {
    EXPECT_EQ(table.AddEngine(), engine);
    table.SetInfo(engine, InfoOf(table.tokenizer()));
    for (int i = 0; i < 2; ++i) {
      ids.push_back(table.Add(engine, Asks()));
      got.Expect(ids.back(), OutputMode::kDelta);
    }
  }
  table.Abort(ids[1]);
  table.Lose(0, "gone");
  table.Release();
  got.Add(table.Outputs());
  table.Release();
  EXPECT_EQ(got[ids[0]].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(got[ids[0]].message, "gone");
  EXPECT_EQ(got[ids[1]].end, GenerationEnd::kCancelled);
  EXPECT_FALSE(got.HasEnded(ids[2]) || got.HasEnded(ids[3]));
  EXPECT_EQ(table.taken_slots(0), 0);
  EXPECT_EQ(table.taken_slots(1), 2);
  EXPECT_TRUE(table.TakeAborts(0).empty());

  // It is given up where it is: its places stay its own until it says so.
  table.GiveUp(1, "stalled");
  table.Release();
  got.Add(table.Outputs());
  table.Release();
  EXPECT_EQ(got[ids[2]].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(table.taken_slots(1), 2);
  EXPECT_EQ(table.TakeAborts(1).size(), 2u);
  EXPECT_EQ(table.live_requests(), 0);
}

}  // namespace
}  // namespace sluice::test
