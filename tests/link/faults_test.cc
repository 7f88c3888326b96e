// What becomes of requests when an engine misbehaves, dies, hangs or comes back: each has one end,
// none has text of another, and the client goes on.
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/link/fake_engine.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

using link::FrameType;

// A client with some requests, which the engine has.
struct Linked {
  explicit Linked(int requests, const RemoteClientOptions& options = {}, int32_t slots = 8)
      : engine(InfoOf(Letters(), slots)), frontend({&engine}, options) {
    for (int i = 0; i < requests; ++i) ids.push_back(frontend.Submit());
    EXPECT_TRUE(AreThere(requests));
  }
  bool AreThere(int requests) {
    return frontend.Until([&] { return std::ssize(engine.peer().requests) == requests; });
  }
  void Say(size_t request, int64_t first, std::string_view letters,
           GenerationEnd end = GenerationEnd::kNone) {
    engine.SendText(engine.peer(), engine.peer().requests[request], first, letters, end);
  }
  const ClientCounters& counters() { return frontend->counters(); }
  // All requests have ended with kEngineLost, and the client is at work again.
  void ExpectNewBeginning(std::string_view why) {
    const size_t links = engine.peers();
    ASSERT_TRUE(frontend.Until([&] { return frontend->live_requests() == 0; }));
    for (const RequestId id : ids) {
      EXPECT_EQ(frontend.got[id].end, GenerationEnd::kEngineLost);
      EXPECT_NE(frontend.got[id].message.find(why), std::string::npos) << frontend.got[id].message;
    }
    ASSERT_TRUE(frontend.UntilHealth(EngineHealth::kReady));
    EXPECT_GE(engine.peers(), links);
    const RequestId id = frontend.Submit();
    ASSERT_TRUE(AreThere(1));
    Say(0, 0, "again", GenerationEnd::kLength);
    ASSERT_TRUE(frontend.UntilEnded(id));
    EXPECT_EQ(frontend.got[id].text, "again");
  }

  FakeEngine engine;
  Frontend frontend;
  std::vector<RequestId> ids;
};

TEST(Faults, AKilledEngineEndsEachRequestOnceAndIsTakenUpAgain) {
  Linked linked(256, {}, 256);
  for (size_t i = 0; i < 256; i += 2) linked.Say(i, 0, "text");
  ASSERT_TRUE(linked.frontend.UntilText(linked.ids[254], "text"));
  linked.engine.Kill();
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.frontend->live_requests() == 0; }));
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(linked.frontend.got[linked.ids[i]].end, GenerationEnd::kEngineLost);
    EXPECT_EQ(linked.frontend.got[linked.ids[i]].text, i % 2 == 0 ? "text" : "");
  }
  EXPECT_EQ(linked.frontend->health(), EngineHealth::kConnecting);
  try {
    linked.frontend.Submit();
    ADD_FAILURE() << "submitted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  }
  linked.engine.Start();
  ASSERT_TRUE(linked.frontend.UntilHealth(EngineHealth::kReady));
  linked.ids.clear();
  linked.ExpectNewBeginning("");
}

// No time-out has to run out for it: the connection's end wakes it.
TEST(Faults, AKilledEngineWakesAPollThatWaits) {
  Linked linked(1);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    linked.engine.Kill();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(linked.frontend.Poll(kPatience), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience / 2);
  killer.join();
  EXPECT_TRUE(linked.frontend.got.HasEnded(linked.ids[0]));
}

TEST(Faults, WhatAnEngineSaidBeforeItsEndIsRead) {
  Linked linked(2);
  const std::vector<EngineRequest>& requests = linked.engine.peer().requests;
  const std::vector<int32_t> all = Ids("all");
  const std::vector<int32_t> half = Ids("half");
  const std::vector<OutputRow> rows = {
      {.address = requests[0].address, .ids = all, .end = GenerationEnd::kLength},
      {.address = requests[1].address, .ids = half}};
  linked.frontend.Poll();
  linked.engine.SendRows(linked.engine.peer(), rows);
  pollfd here{linked.frontend->event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&here, 1, static_cast<int>(kPatience.count())), 1);
  linked.engine.Kill();
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.frontend->live_requests() == 0; }));
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].end, GenerationEnd::kLength);
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "all");
  EXPECT_EQ(linked.frontend.got[linked.ids[1]].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(linked.frontend.got[linked.ids[1]].text, "half");
}

TEST(Faults, AnEngineThatSaysItEndsIsTakenUpAgain) {
  Linked linked(3);
  linked.engine.SendReason(linked.engine.peer(), FrameType::kDead, "no electricity");
  linked.ExpectNewBeginning("no electricity");
  EXPECT_EQ(linked.counters().resets, 0);
}

TEST(Faults, AResetBeginsAgain) {
  Linked linked(3);
  linked.engine.SendReason(linked.engine.peer(), FrameType::kReset, "a bad frame");
  linked.ExpectNewBeginning("a bad frame");
  EXPECT_EQ(linked.counters().resets, 1);
}

// A frame that cannot be taken resets the link; nothing in it is believed.
TEST(Faults, FramesThatCannotBeReadResetTheLink) {
  Random random(3);
  const std::vector<int32_t> ids = Ids("evil");
  std::vector<std::string> bad = {"", std::string(1, '\0'), std::string(64, '\xff'),
                                  std::string("\x12\xdd\xff\xff\xff\xff", 6)};  // 4 GiB of fields
  for (int i = 0; i < 4; ++i) bad.push_back("truncated");
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    Linked linked(2);
    std::string frame = bad[i];
    if (frame == "truncated") {
      const OutputRow row{.address = linked.engine.peer().requests[0].address, .ids = ids};
      frame = FakeEngine::Output(linked.engine.NextHead(FrameType::kOutput, linked.engine.peer()),
                                 {&row, 1});
      frame.resize(static_cast<size_t>(random.Between(1, std::ssize(frame) - 1)));
    }
    linked.engine.Send(linked.engine.peer(), frame);
    linked.ExpectNewBeginning("cannot be read");
    EXPECT_EQ(linked.counters().malformed_frames, 1);
    EXPECT_EQ(linked.counters().resets, 1);
    EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "");
  }
}

TEST(Faults, ARepeatedFrameIsDroppedAndAMissingOneResetsTheLink) {
  Linked linked(1);
  Peer& peer = linked.engine.peer();
  const std::vector<int32_t> ids = Ids("abc");
  const OutputRow row{.address = peer.requests[0].address, .ids = ids};
  const std::string frame =
      FakeEngine::Output(linked.engine.NextHead(FrameType::kOutput, peer), {&row, 1});
  for (int i = 0; i < 3; ++i) linked.engine.Send(peer, frame);
  linked.Say(0, 3, "d");
  ASSERT_TRUE(linked.frontend.UntilText(linked.ids[0], "abcd"));
  EXPECT_EQ(linked.counters().repeated_frames, 2);
  ++peer.number_out;
  linked.Say(0, 4, "e");
  linked.ExpectNewBeginning("missing");
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "abcd");
  EXPECT_EQ(linked.counters().resets, 1);
}

TEST(Faults, AnotherEpochsFramesAreDropped) {
  Linked linked(1);
  Peer& peer = linked.engine.peer();
  const std::vector<int32_t> ids = Ids("evil");
  const OutputRow row{.address = peer.requests[0].address, .ids = ids};
  for (const uint64_t epoch : {uint64_t{0}, linked.engine.epoch + 1, UINT64_MAX}) {
    linked.engine.Send(
        peer,
        FakeEngine::Output({.type = FrameType::kOutput, .epoch = epoch, .number = peer.number_out},
                           {&row, 1}));
  }
  linked.Say(0, 0, "fine", GenerationEnd::kLength);
  ASSERT_TRUE(linked.frontend.UntilEnded(linked.ids[0]));
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "fine");
  EXPECT_EQ(linked.counters().foreign_frames, 3);
  EXPECT_EQ(linked.counters().resets, 0);
}

// Every row that must not come, among rows that must: only their own request can suffer.
TEST(Faults, BadRowsReachNobodysText) {
  Linked linked(4);
  Peer& peer = linked.engine.peer();
  const std::vector<int32_t> evil = Ids("evil");
  const std::vector<int32_t> above = {27};
  const std::vector<int32_t> largest = {-1};
  const std::vector<int32_t> many(100'000, 1);
  const RequestAddress one = peer.requests[0].address;
  const auto end = GenerationEnd::kLength;
  linked.Say(0, 0, "a");
  const OutputRow rows[] = {
      {.address = {-1, 1}, .ids = evil},
      {.address = {4, 1}, .ids = evil},
      {.address = {INT32_MAX, 1}, .ids = evil, .end = end},
      {.address = {one.slot, one.generation - 1}, .first_token = 1, .ids = evil},
      {.address = {one.slot, one.generation + 1}, .first_token = 1, .ids = evil},
      {.address = {one.slot, UINT32_MAX}, .first_token = 1, .ids = evil, .end = end},
      {.address = peer.requests[1].address, .ids = above},
      {.address = peer.requests[2].address, .ids = largest},
      {.address = peer.requests[3].address, .ids = many},
  };
  linked.engine.SendRows(peer, rows);
  linked.Say(0, 1, "b", end);
  linked.Say(0, 1, "b", end);
  linked.Say(0, 2, "evil");
  for (const RequestId id : linked.ids) ASSERT_TRUE(linked.frontend.UntilEnded(id));
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.counters().stale_rows > 0; }));
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "ab");
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].end, end);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(linked.frontend.got[linked.ids[i]].text, "");
    EXPECT_EQ(linked.frontend.got[linked.ids[i]].end, GenerationEnd::kEngineLost);
  }
  EXPECT_EQ(linked.counters().unknown_rows, 6);
  EXPECT_EQ(linked.counters().foreign_ids, 2);
  EXPECT_EQ(linked.counters().gaps, 1);
  EXPECT_EQ(linked.counters().repeated_ends, 1);
  EXPECT_EQ(linked.counters().stale_tokens, 1 + 4);
  EXPECT_EQ(linked.counters().resets, 0);
  // The engine is asked to stop what was lost.
  ASSERT_TRUE(linked.frontend.Until([&] { return peer.aborted.size() == 3; }));
}

TEST(Faults, AStoppedEngineIsWaitedForThenGivenUpThenTakenUpAgain) {
  constexpr milliseconds kStall{2000};
  Linked linked(2, {.stall_timeout = kStall});
  linked.Say(0, 0, "a");
  ASSERT_TRUE(linked.frontend.UntilText(linked.ids[0], "a"));
  // Shorter than the time-out: nothing is lost.
  for (int i = 0; i < 10; ++i) linked.frontend.Poll(milliseconds(10));
  EXPECT_EQ(linked.frontend->live_requests(), 2);
  const auto begin = std::chrono::steady_clock::now();
  linked.Say(0, 1, "b");
  ASSERT_TRUE(linked.frontend.UntilText(linked.ids[0], "ab"));
  // Longer.
  while (linked.frontend->live_requests() > 0 &&
         std::chrono::steady_clock::now() - begin < kPatience) {
    linked.frontend.Poll(milliseconds(10));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kStall);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_EQ(linked.frontend->health(), EngineHealth::kStalled);
  for (const RequestId id : linked.ids) {
    EXPECT_EQ(linked.frontend.got[id].end, GenerationEnd::kEngineLost);
    EXPECT_NE(linked.frontend.got[id].message.find("2000 ms"), std::string::npos);
  }
  EXPECT_THROW(linked.frontend.Submit(), Error);
  // It goes on: it hears of the aborts, and its late tokens are nobody's.
  linked.Say(0, 2, "late");
  ASSERT_TRUE(linked.frontend.UntilHealth(EngineHealth::kReady));
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.engine.peer().aborted.size() == 2; }));
  EXPECT_EQ(linked.counters().stale_tokens, 4);
  EXPECT_EQ(linked.counters().resets, 0);
  EXPECT_EQ(linked.engine.peers(), 1u);
}

// An engine that had nothing to say was not silent: the time of a stall begins with a request.
TEST(Faults, AnEngineThatIdledIsNotStalledByTheNextRequest) {
  constexpr milliseconds kStall(400);
  Linked linked(0, {.stall_timeout = kStall});
  linked.engine.answers_ping = false;
  const auto idle = std::chrono::steady_clock::now();
  ASSERT_TRUE(
      linked.frontend.Until([&] { return std::chrono::steady_clock::now() - idle > 2 * kStall; }));
  const auto begin = std::chrono::steady_clock::now();
  linked.ids.push_back(linked.frontend.Submit());
  ASSERT_TRUE(linked.frontend.UntilHealth(EngineHealth::kStalled));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kStall);
  EXPECT_GE(linked.engine.peer().pings, 3);
}

// A request may wait for its turn longer than a time-out: what answers is the step loop.
TEST(Faults, AnEngineThatIsBusyIsNotStalled) {
  Linked linked(1, {.stall_timeout = milliseconds(1000)});
  // Four that are not answered are a stall.
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.engine.peer().pings > 6; }));
  EXPECT_EQ(linked.frontend->live_requests(), 1);
  EXPECT_EQ(linked.frontend->health(), EngineHealth::kReady);
}

TEST(Faults, AFrontendThatDoesNotPollForAWhileLosesNothing) {
  Linked linked(1, {.credits = 8, .stall_timeout = milliseconds(500)});
  for (int64_t i = 0; i < 8; ++i) linked.Say(0, i, "x");
  std::this_thread::sleep_for(milliseconds(800));
  linked.frontend.Poll();
  std::this_thread::sleep_for(milliseconds(800));  // now with nothing to read
  linked.frontend.Poll();
  EXPECT_EQ(linked.frontend->live_requests(), 1);
  linked.Say(0, 8, "yz", GenerationEnd::kLength);
  ASSERT_TRUE(linked.frontend.UntilEnded(linked.ids[0]));
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].text, "xxxxxxxxyz");
  EXPECT_EQ(linked.frontend.got[linked.ids[0]].end, GenerationEnd::kLength);
}

TEST(Faults, TwoFrontendsHearNothingOfEachOther) {
  FakeEngine engine(InfoOf(Letters(), 4));
  Frontend one({&engine});
  Peer& peer_of_one = engine.peer();
  auto two = std::make_unique<Frontend>(std::vector<FakeEngine*>{&engine});
  Peer& peer_of_two = engine.peer();
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(one.Submit());
    two->Submit();
  }
  ASSERT_TRUE(one.Until([&] { return peer_of_one.requests.size() == 4; }));
  ASSERT_TRUE(two->Until([&] { return peer_of_two.requests.size() == 4; }));
  EXPECT_EQ(peer_of_one.requests[0].address, peer_of_two.requests[0].address);
  EXPECT_THROW(one.Submit(), Error);
  two.reset();
  for (size_t i = 0; i < 4; ++i) {
    engine.SendText(peer_of_one, peer_of_one.requests[i], 0, "mine", GenerationEnd::kLength);
  }
  for (const RequestId id : ids) ASSERT_TRUE(one.UntilEnded(id));
  for (const RequestId id : ids) EXPECT_EQ(one.got[id].text, "mine");
  ASSERT_TRUE(one.Until([&] { return peer_of_two.said_bye; }));
}

TEST(Faults, OneOfTwoEnginesThatDiesTakesItsOwnRequestsAlone) {
  FakeEngine one(InfoOf(Letters()));
  FakeEngine two(InfoOf(Letters()));
  Frontend frontend({&one, &two});
  const RequestId at_one = frontend.Submit();
  const RequestId at_two = frontend.Submit();
  ASSERT_TRUE(frontend.Until(
      [&] { return one.peer().requests.size() == 1 && two.peer().requests.size() == 1; }));
  one.Kill();
  ASSERT_TRUE(frontend.UntilEnded(at_one));
  EXPECT_EQ(frontend->health(), EngineHealth::kReady);
  two.SendText(two.peer(), two.peer().requests[0], 0, "alive", GenerationEnd::kLength);
  ASSERT_TRUE(frontend.UntilEnded(at_two));
  EXPECT_EQ(frontend.got[at_two].text, "alive");
  frontend.Submit();  // to the other one
  ASSERT_TRUE(frontend.Until([&] { return two.peer().requests.size() == 2; }));
  one.Start();
  ASSERT_TRUE(frontend.Until([&] { return one.peers() == 1; }));
}

// An engine that hangs up on everyone is asked less and less often.
TEST(Faults, AnEngineThatRefusesIsNotAskedWithoutPause) {
  Linked linked(0);
  linked.engine.SendReason(linked.engine.peer(), FrameType::kReset, "go");
  linked.engine.answers_hello = false;
  const auto begin = std::chrono::steady_clock::now();
  size_t refused = 1;
  const auto lasts = [&](milliseconds time) {
    return std::chrono::steady_clock::now() - begin < time;
  };
  while (lasts(milliseconds(700)) || (refused < 2 && lasts(kPatience))) {
    linked.engine.Pump();
    for (; refused < linked.engine.peers(); ++refused) {
      linked.engine.SendReason(linked.engine.peer(), FrameType::kReset, "go away");
    }
    linked.frontend.Poll(milliseconds(1));
  }
  EXPECT_GE(refused, 2u);
  EXPECT_LE(refused, 8u);
}

// Frames of random bytes and of good ones with a byte changed, over and over.
TEST(Faults, RandomFramesHurtNobody) {
  Random random(5);
  Linked linked(2);
  const std::vector<int32_t> ids = Ids("abcdefgh");
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(linked.frontend.UntilHealth(EngineHealth::kReady));
    while (linked.frontend->live_requests() < 2) linked.ids.push_back(linked.frontend.Submit());
    Peer& peer = linked.engine.peer();
    linked.engine.Pump();
    linked.engine.SendRows(peer, {});  // a good one, so that it is asked again soon
    const OutputRow row{
        .address = {static_cast<int32_t>(random.Below(3)), static_cast<uint32_t>(random.Below(20))},
        .first_token = random.Below(3),
        .ids = ids};
    std::string frame = FakeEngine::Output(
        {.type = FrameType::kOutput, .epoch = linked.engine.epoch, .number = peer.number_out},
        {&row, 1});
    for (int64_t n = random.Between(1, 3); n > 0; --n) {
      random.Pick(frame) = static_cast<char>(random.Bits());
    }
    if (random.Coin(0.1)) frame.resize(static_cast<size_t>(random.Below(std::ssize(frame))));
    linked.engine.Send(peer, frame);
    linked.frontend.Poll(milliseconds(2));
  }
  linked.engine.Kill();
  ASSERT_TRUE(linked.frontend.Until([&] { return linked.frontend->live_requests() == 0; }));
  for (const RequestId id : linked.ids) {
    EXPECT_TRUE(linked.frontend.got.HasEnded(id));
    EXPECT_LE(linked.frontend.got[id].text.size(), 100u);
  }
}

}  // namespace
}  // namespace sluice::test
