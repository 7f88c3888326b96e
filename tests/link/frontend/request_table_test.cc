// A request has one end and its own text; a row that must not come reaches nobody's.
#include "link/frontend/request_table.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/link/one_engine.h"
#include "tests/link/row_script.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

using link::RequestTable;

constexpr std::array kModes = {OutputMode::kDelta, OutputMode::kCumulative, OutputMode::kFinal};

TEST(RequestTable, TellsOfTokensWithTheTextThatReleasesThem) {
  const Tokenizer letters = Letters();
  for (const OutputMode mode : kModes) {
    OneEngine engine(letters);
    ClientRequest request = Asks(100, {"bcd"});
    request.mode = mode;
    request.params.logprobs = 0;
    const RequestId id = engine.Add(std::move(request));
    RowScript script(engine.sent.at(id.value), letters, Ids("abcebcx"), letters.size());
    // a is out, bc are held, e lets them out; the same again.
    constexpr struct {
      int64_t tokens;
      size_t out;
    } kSteps[] = {{2, 1}, {1, 1}, {2, 4}, {1, 4}, {1, 7}, {9, 15}};
    for (const auto& step : kSteps) {
      engine.table.Take(0, script.Next(step.tokens));
      engine.Collect();
      const Collected& now = engine.got[id];
      EXPECT_EQ(now.text.size(), mode == OutputMode::kFinal ? 0 : step.out);
      EXPECT_EQ(now.ids.size(), now.text.size());
      EXPECT_EQ(now.logprobs.size(), now.text.size());
    }
  }
}

TEST(RequestTable, TheFirstAndTheLastOutputComeAtOnce) {
  OneEngine engine(Letters());
  ClientRequest request = Asks();
  request.stream_interval = 4;
  const RequestId id = engine.Add(std::move(request));
  std::vector<size_t> sizes;
  for (int64_t i = 0; i < 10; ++i) {
    engine.Give(id, i, "x", i == 9 ? GenerationEnd::kLength : GenerationEnd::kNone);
    engine.Collect();
    sizes.push_back(engine.got[id].text.size());
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{1, 1, 1, 1, 5, 5, 5, 5, 9, 10}));
}

TEST(RequestTable, WaitingRowsBecomeOneOutput) {
  OneEngine engine(Letters());
  const RequestId id = engine.Add(Asks());
  for (int64_t i = 0; i < 5; ++i) engine.Give(id, i, "x");
  EXPECT_EQ(engine.Collect(), 1u);
  EXPECT_EQ(engine.got[id].text, "xxxxx");
  EXPECT_EQ(engine.Collect(), 0u);
}

// A token without text says nothing by itself; it comes with the next text.
TEST(RequestTable, ATokenWithoutTextIsNoOutput) {
  OneEngine engine(Letters());
  ClientRequest request = Asks();
  request.ignores_end = true;
  const RequestId id = engine.Add(std::move(request));
  EXPECT_TRUE(engine.sent.at(id.value).params.stop_token_ids.empty());
  const int32_t end = kEnd;
  engine.table.Take(0, {.address = engine.AddressOf(id), .ids = {&end, 1}});
  EXPECT_EQ(engine.Collect(), 0u);
  engine.Give(id, 1, "x");
  EXPECT_EQ(engine.Collect(), 1u);
  EXPECT_EQ(engine.got[id].ids, (std::vector<int32_t>{kEnd, 'x' - 'a'}));
}

TEST(RequestTable, AStopFoundHereEndsAtOnceAndItsLateTokensAreDropped) {
  OneEngine engine(Letters(), StopAt::kFrontend, 1);
  const RequestId id = engine.Add(Asks(100, {"stop"}));
  EXPECT_EQ(engine.sent.at(id.value).stop_at, StopAt::kFrontend);
  engine.Give(id, 0, "go");
  engine.Give(id, 2, "stopx");
  EXPECT_EQ(engine.Collect(), 1u);
  EXPECT_EQ(engine.got[id].text, "go");
  EXPECT_EQ(engine.got[id].end, GenerationEnd::kStopString);
  EXPECT_EQ(engine.got[id].stop, "stop");
  EXPECT_EQ(engine.got[id].output_tokens, 6);
  EXPECT_EQ(engine.table.live_requests(), 0);
  const std::span<const RequestAddress> aborts = engine.table.TakeAborts(0);
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0], engine.AddressOf(id));

  // The place is the engine's until it says that it has ended.
  engine.table.Release();
  EXPECT_FALSE(engine.table.HasFreeSlot(0));
  EXPECT_EQ(RefusedFor([&] { engine.table.Add(0, Asks()); }), "requests");
  engine.Give(id, 7, "late");
  EXPECT_EQ(engine.Collect(), 0u);
  EXPECT_EQ(engine.table.counters.stale_rows, 1);
  EXPECT_EQ(engine.table.counters.stale_tokens, 1 + 4);
  EXPECT_FALSE(engine.table.HasFreeSlot(0));
  engine.Give(id, 11, "", GenerationEnd::kCancelled);
  EXPECT_TRUE(engine.table.HasFreeSlot(0));
  EXPECT_TRUE(engine.table.TakeAborts(0).empty());

  // The next one there hears nothing of it.
  const RequestId next = engine.Add(Asks());
  EXPECT_NE(next, id);
  EXPECT_EQ(engine.AddressOf(next).slot, engine.AddressOf(id).slot);
  engine.Give(id, 11, "zombie");
  engine.Give(next, 0, "new");
  engine.Give(id, 17, "", GenerationEnd::kCancelled);
  engine.Collect();
  EXPECT_EQ(engine.got[next].text, "new");
  EXPECT_EQ(engine.table.counters.stale_rows, 2);
  EXPECT_EQ(engine.table.counters.repeated_ends, 1);
}

TEST(RequestTable, AnEndOfBothSidesInOneRowNeedsNoAbort) {
  OneEngine engine(Letters(), StopAt::kFrontend, 1);
  const RequestId id = engine.Add(Asks(4, {"st"}));
  engine.Give(id, 0, "xstz", GenerationEnd::kLength);
  engine.Collect();
  EXPECT_EQ(engine.got[id].end, GenerationEnd::kStopString);
  EXPECT_EQ(engine.got[id].output_tokens, 3);
  EXPECT_TRUE(engine.table.TakeAborts(0).empty());
  engine.table.Release();
  EXPECT_TRUE(engine.table.HasFreeSlot(0));
}

TEST(RequestTable, AnAbortEndsARequestOnceAndLeavesOutputsAlone) {
  OneEngine engine(Letters());
  const RequestId id = engine.Add(Asks(100, {"stop"}));
  engine.Give(id, 0, "gost");
  engine.table.Release();
  const std::span<const ClientOutput> outputs = engine.table.Outputs();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(engine.table.Abort(id));
  EXPECT_FALSE(engine.table.Abort(id));
  EXPECT_EQ(outputs[0].text, "go");  // what the caller reads stays
  engine.got.Add(outputs);
  EXPECT_EQ(engine.table.TakeAborts(0).size(), 1u);
  engine.Give(id, 4, "op");  // in between
  EXPECT_EQ(engine.Collect(), 1u);
  EXPECT_EQ(engine.got[id].text, "gost");
  EXPECT_EQ(engine.got[id].end, GenerationEnd::kCancelled);
  EXPECT_EQ(engine.got[id].output_tokens, 4);
  EXPECT_FALSE(engine.table.Abort(id));
  EXPECT_FALSE(engine.table.Abort(RequestId{}));
  EXPECT_FALSE(engine.table.Abort(RequestId{UINT64_MAX}));
  EXPECT_EQ(engine.table.taken_slots(0), 1);
  engine.Give(id, 6, "", GenerationEnd::kCancelled);
  engine.Collect();
  EXPECT_EQ(engine.table.taken_slots(0), 0);
}

TEST(RequestTable, RowsThatMustNotComeReachNobody) {
  OneEngine engine(Letters());
  const RequestId one = engine.Add(Asks());
  const RequestId two = engine.Add(Asks());
  engine.Give(one, 0, "a");
  const std::vector<int32_t> ids = Ids("evil");
  const RequestAddress address = engine.AddressOf(one);
  for (const int32_t slot : {-1, 2, 7, 8, INT32_MAX, INT32_MIN}) {
    engine.table.Take(0, {.address = {slot, 1}, .first_token = 1, .ids = ids});
  }
  for (const uint32_t generation : {0u, address.generation + 1, UINT32_MAX}) {
    engine.table.Take(0, {.address = {address.slot, generation}, .first_token = 1, .ids = ids});
  }
  EXPECT_EQ(engine.table.counters.unknown_rows, 9);
  engine.Give(one, 1, "b", GenerationEnd::kLength);
  engine.Give(one, 1, "b", GenerationEnd::kLength);
  engine.Give(one, 2, "evil");
  EXPECT_EQ(engine.table.counters.repeated_ends, 1);
  EXPECT_EQ(engine.table.counters.stale_rows, 1);
  engine.Give(two, 0, "c", GenerationEnd::kLength);
  engine.Collect();
  EXPECT_EQ(engine.got[one].text, "ab");
  EXPECT_EQ(engine.got[two].text, "c");
  EXPECT_EQ(engine.table.TakeAborts(0).size(), 0u);
}

TEST(RequestTable, AbortsThatCannotBeSentTakeTheRoomOfTheirPlacesAlone) {
  OneEngine engine(Letters());
  const RequestId stays = engine.Add(Asks());
  EXPECT_TRUE(engine.table.Abort(stays));
  for (int i = 0; i < 1000; ++i) {
    const RequestId id = engine.Add(Asks());
    EXPECT_TRUE(engine.table.Abort(id));
    engine.table.KeepAborts(0, engine.table.TakeAborts(0));
    engine.Give(id, 0, "", GenerationEnd::kCancelled);  // of itself
    engine.Collect();
  }
  const std::span<const RequestAddress> aborts = engine.table.TakeAborts(0);
  ASSERT_GE(aborts.size(), 1u);
  EXPECT_LE(aborts.size(), 16u);  // twice the places
  EXPECT_EQ(aborts[0], engine.AddressOf(stays));
}

// As the engine has them, so that none of them goes there and back to be refused.
TEST(RequestTable, CountsWhatItHoldsBackAndHowLongAbortsTake) {
  OneEngine engine(Letters(), StopAt::kFrontend);
  const ClientCounters& counters = engine.table.counters;
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(engine.Add(Asks(100, {"stop"})));
  EXPECT_EQ(counters.waiting, 5);
  for (const RequestId id : ids) engine.Give(id, 0, "sto");
  EXPECT_EQ(counters.waiting, 0);
  EXPECT_EQ(counters.held_bytes, 15);
  engine.Give(ids[0], 3, "x");  // none after all
  EXPECT_EQ(counters.held_bytes, 12);
  engine.table.SetStep(0, 100);
  engine.Give(ids[1], 3, "pqrs");
  EXPECT_EQ(counters.held_bytes, 9);
  EXPECT_EQ(counters.stop_tokens, 3);
  engine.table.Abort(ids[2]);
  engine.Collect();
  EXPECT_EQ(counters.held_bytes, 6);
  engine.Give(ids[3], 3, "", GenerationEnd::kLength);
  EXPECT_EQ(counters.held_bytes, 3);

  EXPECT_EQ(counters.abort_steps.sum, 0);
  engine.table.SetStep(0, 102);
  engine.Give(ids[1], 7, "tu", GenerationEnd::kCancelled);
  EXPECT_EQ(counters.stop_tokens, 5);
  engine.table.SetStep(0, 103);
  engine.Give(ids[2], 3, "x", GenerationEnd::kCancelled);
  EXPECT_EQ(counters.stop_tokens, 5) << "behind an abort";
  EXPECT_EQ(counters.stale_tokens, 6);
  EXPECT_EQ(counters.abort_steps.sum, 2 + 3);
  EXPECT_EQ(counters.abort_steps.counts[1], 1);
  EXPECT_EQ(counters.abort_steps.counts[2], 1);
  engine.Add(Asks());
  const RequestId unheard = engine.Add(Asks());
  EXPECT_EQ(counters.waiting, 2);
  engine.table.Abort(unheard);
  EXPECT_EQ(counters.waiting, 1);
  engine.table.Lose(0, "gone");
  EXPECT_EQ(counters.waiting, 0);
  EXPECT_EQ(counters.held_bytes, 0);
  EXPECT_EQ(counters.abort_steps.sum, 5);
}

TEST(RequestTable, CountsBytesThatAreNoText) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"a"}, {"\xE4\xBD"}, {"\xA0"}, {"\xFF"}});
  OneEngine engine(tokenizer);
  const RequestId id = engine.Add(Asks());
  auto give = [&, count = int64_t{0}](const std::vector<int32_t>& ids) mutable {
    engine.table.Take(0, {.address = engine.AddressOf(id), .first_token = count, .ids = ids});
    count += std::ssize(ids);
  };
  give({0, 1, 2});
  EXPECT_EQ(engine.table.counters.invalid_bytes, 0);
  give({3, 1, 0, 1});
  EXPECT_EQ(engine.table.counters.invalid_bytes, 1 + 2);
  engine.table.Lose(0, "gone");
  EXPECT_EQ(engine.table.counters.invalid_bytes, 1 + 2 + 2) << "incomplete at the end";
}

TEST(RequestTable, RefusesListsThatAreLongerThanAnEngineTakes) {
  OneEngine engine(Letters());
  const auto refused = [&](auto change) {
    ClientRequest request = Asks();
    change(request.params);
    return RefusedFor([&] { engine.table.Add(0, std::move(request)); });
  };
  EXPECT_EQ(refused([](SamplingParams& p) { p.stop_token_ids.assign(1025, 1); }), "stop_token_ids");
  EXPECT_EQ(refused([](SamplingParams& p) { p.bad_words.assign(1025, {1}); }), "bad_words");
  EXPECT_EQ(refused([](SamplingParams& p) { p.bad_words = {TokenIds(16385, 1)}; }), "bad_words");
  EXPECT_EQ(refused([](SamplingParams& p) { p.dry_sequence_breakers.assign(1025, 1); }),
            "dry_sequence_breakers");
  EXPECT_EQ(refused([](SamplingParams& p) { p.logit_bias.assign(28, {1, 1.0f}); }), "logit_bias");
  EXPECT_EQ(refused([](SamplingParams& p) { p.allowed_token_ids.emplace(28, 1); }),
            "allowed_token_ids");
  EXPECT_EQ(engine.table.taken_slots(0), 0);
}

TEST(RequestTable, CompletesARequestSoThatItGivesTheSameAgain) {
  OneEngine engine(Letters());
  ClientRequest request = Asks();
  request.params.stop_token_ids = {3};
  const RequestId random = engine.Add(request);
  EXPECT_EQ(engine.sent.at(random.value).params.stop_token_ids, (TokenIds{3, kEnd}));
  EXPECT_EQ(engine.sent.at(random.value).params.seed, engine.table.Seed(random));
  request.params.seed = 7;
  EXPECT_EQ(engine.table.Seed(engine.Add(request)), 7u);
  EXPECT_EQ(RefusedFor([&] { engine.table.Seed(RequestId{}); }), "request");

  EngineInfo info = InfoOf(engine.table.tokenizer());
  info.has_text = false;  // then they are looked for here
  EXPECT_EQ(link::CompleteRequest(Asks(), info, StopAt::kEngine).stop_at, StopAt::kFrontend);
}

TEST(RequestTable, RefusesWhatIsOutOfRangeByName) {
  OneEngine engine(Letters());
  const auto with = [&](auto change) {
    ClientRequest request = Asks();
    change(request);
    return engine.table.Add(0, std::move(request));
  };
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.prompt = {}; }); }), "prompt");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.prompt.resize(4096); }); }), "prompt");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.prompt = {27}; }); }), "prompt");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.max_tokens = -1; }); }), "max_tokens");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.choice = 1u << 24; }); }), "choice");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.stream_interval = 0; }); }),
            "stream_interval");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.params.logprobs = 21; }); }),
            "logprobs");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.params.logprobs = -1; }); }),
            "logprobs");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.params.top_p = 0; }); }), "top_p");
  EXPECT_EQ(RefusedFor([&] { with([](ClientRequest& r) { r.text.stops = {""}; }); }),
            "stops[0].size()");
  EXPECT_EQ(
      RefusedFor([&] { with([](ClientRequest& r) { r.mode = static_cast<OutputMode>(3); }); }),
      "mode");
  EXPECT_EQ(engine.table.taken_slots(0), 0);
  EXPECT_EQ(engine.table.counters.requests, 0);

  const RequestId id = engine.table.Add(0, Asks());
  engine.table.Withdraw(id);
  EXPECT_EQ(engine.table.live_requests(), 0);
  EXPECT_EQ(engine.table.taken_slots(0), 0);
  EXPECT_EQ(engine.Collect(), 0u);
}

TEST(RequestTable, TakesNoMemoryForATokenOnceItsBuffersHaveGrown) {
  const Tokenizer letters = Letters();
  OneEngine engine(letters);
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    ClientRequest request = Asks(4000, {"abcx", "zzz"});
    request.params.logprobs = 2;
    request.ignores_end = true;
    ids.push_back(engine.Add(std::move(request)));
  }
  std::vector<RowScript> scripts;
  for (const RequestId id : ids) {
    scripts.emplace_back(engine.sent.at(id.value), letters, Ids("abcabczz"), letters.size());
  }
  size_t bytes = 0;
  const auto run = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      for (RowScript& script : scripts) engine.table.Take(0, script.Next(1));
      engine.table.Release();
      for (const ClientOutput& output : engine.table.Outputs()) bytes += output.text.size();
    }
  };
  run(100);
  const int64_t before = AllocationCount();
  run(800);
  EXPECT_EQ(AllocationCount() - before, 0);
  EXPECT_GT(bytes, 3000u);
}

}  // namespace
}  // namespace sluice::test
