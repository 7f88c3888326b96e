// Every way in which an engine of vLLM may go, and come back.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "sluice/error.hpp"
#include "tests/link/fake_engine.h"
#include "tests/link/vllm/vllm_pair.h"

namespace sluice::test {
namespace {

TEST(VllmFailures, EndsTheRequestsOfAnEngineThatIsKilledAndTakesItsNextLife) {
  VllmPair pair;
  for (int life = 0; life < 3; ++life) {
    const RequestId id = HalfWay(pair);
    pair.engine.Kill();
    ExpectLost(pair, id, "lost");
    EXPECT_EQ(pair.frontend->health(), EngineHealth::kConnecting);
    EXPECT_THROW(pair.frontend->Submit(Asks()), Error);
    pair.engine.Start();
    ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
    pair.ExpectWorks();
  }
}

TEST(VllmFailures, EndsTheRequestsOfAnEngineThatSaysItIsDead) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  pair.engine.SendLetters(pair.last(), "");
  pair.engine.Send({"ENGINE_CORE_DEAD"});
  ExpectLost(pair, id, "failed");
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kConnecting);
}

TEST(VllmFailures, TakesUpAnEngineAgainWhoseConnectionWasLost) {
  VllmPair pair;
  for (int round = 0; round < 3; ++round) {
    const RequestId id = HalfWay(pair);
    const std::string half = pair.last();
    pair.engine.Disconnect();
    ExpectLost(pair, id, "lost");
    EXPECT_EQ(pair.frontend->health(), EngineHealth::kConnecting);
    pair.engine.Reconnect();
    ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
    ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
    EXPECT_EQ(pair.engine.aborted.back(), half);  // it computed it all the time
    pair.engine.aborted.clear();
    pair.engine.SendLetters(half, "late");
    pair.ExpectWorks();
  }
  EXPECT_EQ(pair.engine.lives, 1);
}

// The end of the one before is seen late, or never: of a machine that vanished, say.
TEST(VllmFailures, TakesAnEngineThatIsStartedInThePlaceOfAnother) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  FakeVllm second(pair.engine.endpoint());
  ASSERT_TRUE(pair.frontend.Until([&] {
    second.Pump();
    return second.lives == 1 && pair.frontend->health() == EngineHealth::kReady;
  }));
  ExpectLost(pair, id, "in its place");
  pair.frontend.Submit();
  EXPECT_TRUE(pair.frontend.Until([&] {
    second.Pump();
    return second.requests.size() == 1;
  }));
}

TEST(VllmFailures, AnEngineThatIsSilentIsAskedAndThenGivenUp) {
  VllmPair pair(VllmOptions(milliseconds(2'000)));
  const RequestId first = HalfWay(pair);
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.engine.pings >= 6; }));
  EXPECT_FALSE(pair.frontend.got.HasEnded(first));  // it computes, and answers
  pair.engine.answers_ping = false;
  ExpectLost(pair, first, "said nothing");
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kStalled);
  pair.engine.answers_ping = true;
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
}

// --- connections

// Tokens that were on their way are gone, and their numbers do not tell.
TEST(VllmFailures, NoticesThatTheConnectionForOutputsAloneEnds) {
  VllmPair pair;
  for (int round = 0; round < 3; ++round) {
    const RequestId id = HalfWay(pair);
    pair.engine.DisconnectOutputs();
    ExpectLost(pair, id, "lost");
    pair.engine.ReconnectOutputs();
    ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
    pair.ExpectWorks();
  }
  EXPECT_EQ(pair.engine.lives, 1);
}

TEST(VllmFailures, NoticesWhatHasEndedAndIsBackWhenItLooks) {
  VllmPair pair;
  const auto expect_noticed = [&](auto&& go_and_come) {
    const RequestId id = HalfWay(pair);
    go_and_come();  // both ends have it behind them when it returns
    ExpectLost(pair, id, "lost");
    ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
    pair.ExpectWorks();
  };
  for (int round = 0; round < 3; ++round) {
    expect_noticed([&] { pair.engine.Disconnect(), pair.engine.Reconnect(); });
    expect_noticed([&] { pair.engine.DisconnectInput(), pair.engine.ReconnectInput(); });
    expect_noticed([&] { pair.engine.DisconnectOutputs(), pair.engine.ReconnectOutputs(); });
  }
}

// What was sent into the connection that nobody reads any more never comes.
TEST(VllmFailures, NoticesThatANewConnectionTakesThePlaceOfOneThatStands) {
  VllmPair pair;
  const RequestId first = HalfWay(pair);
  pair.engine.TakeOverInput();
  ExpectLost(pair, first, "lost");
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
  const RequestId second = HalfWay(pair);
  pair.engine.TakeOverOutputs();
  ExpectLost(pair, second, "lost");
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
}

// It takes the engine's place, which stands all the time and need not come again.
TEST(VllmFailures, AStrangerThatComesAndGoesLeavesTheEngineInUse) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  zmq::context_t context;
  zmq::socket_t stranger(context, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.connect(pair.engine.input_address());
  ExpectLost(pair, id, "lost");
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  const int64_t before = pair.frontend->counters().resets;
  stranger.close();
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.frontend->counters().resets > before; }));
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
  EXPECT_EQ(pair.engine.lives, 1);
}

TEST(VllmFailures, AnEngineThatIsBackIsNotInUseBeforeItAnswers) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  pair.engine.answers_ping = false;
  pair.engine.Disconnect();
  ExpectLost(pair, id, "lost");
  pair.engine.Reconnect();
  const int before = pair.engine.pings;
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.engine.pings >= before + 2; }));
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kConnecting);
  pair.engine.answers_ping = true;
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  EXPECT_EQ(pair.frontend->engines().at(0).reason, "");
}

TEST(VllmFailures, ANewRequestForAConnectionThatHasJustEndedIsRefused) {
  VllmPair pair;
  pair.engine.DisconnectInput();
  std::vector<RequestId> lost;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  try {
    while (std::chrono::steady_clock::now() < deadline) {
      lost.push_back(pair.frontend.Submit());
      pair.engine.Pump();
    }
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("lost"), std::string::npos) << error.what();
  }
  for (const RequestId id : lost) ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend->live_requests(), 0);
  pair.engine.ReconnectInput();
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
}

// The last tokens of an engine may be behind the news of its end.
TEST(VllmFailures, ReadsWhatWasSaidBeforeTheEnd) {
  RemoteClientOptions options = VllmOptions();
  options.last_outputs = kPatience;  // it ends when the request has
  VllmPair pair(options);
  const RequestId whole = HalfWay(pair);
  pair.engine.DisconnectInput();
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kConnecting));
  EXPECT_FALSE(pair.frontend.got.HasEnded(whole));
  pair.engine.SendLetters(pair.last(), "cd", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(whole));
  EXPECT_EQ(pair.frontend.got[whole].end, GenerationEnd::kContext);
  EXPECT_EQ(pair.frontend.got[whole].text, "abcd");
}

// --- lives

// An engine says it once.
TEST(VllmFailures, AHelloIsNotForgottenWhereThereAreNoSocketsForIt) {
#ifdef __SANITIZE_ADDRESS__
  // The undefined behaviour sanitizer that runs beside it opens a pipe to look at an object it has
  // not seen before, and takes it for a broken one where it gets none.
  GTEST_SKIP() << "this build needs file descriptors of its own";
#endif
  VllmPair pair;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 512);
  const auto is_noticed = [&] {
    return pair.frontend->engines().at(0).reason.find("no sockets") != std::string::npos;
  };
  std::vector<int> all;
  int lives = 0;
  // Sockets that are closed go a little later: where that made room, it is done again.
  for (int tries = 0; tries < 20 && !is_noticed(); ++tries) {
    lives = pair.engine.lives;
    pair.engine.EndOnItsOwn();
    ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kConnecting));
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int file = dup(0); file >= 0; file = dup(0)) all.push_back(file);
    pair.engine.SayHello();
    const bool is_over = pair.frontend.Until(
        [&] { return is_noticed() || pair.frontend->health() == EngineHealth::kReady; });
    if (!is_noticed()) {
      for (const int file : std::exchange(all, {})) close(file);
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    }
    ASSERT_TRUE(is_over);
  }
  EXPECT_TRUE(is_noticed());
  EXPECT_EQ(pair.engine.lives, lives);
  for (const int file : all) close(file);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  EXPECT_EQ(pair.engine.lives, lives + 1);
  EXPECT_EQ(pair.frontend->engines().at(0).reason, "");
  pair.ExpectWorks();
}

TEST(VllmFailures, SaysThatAnEngineEndedWhileItLoaded) {
  VllmPair pair;
  pair.engine.loads = false;
  pair.engine.Start();
  const auto says = [&](const char* what) {
    return pair.frontend->engines().at(0).reason.find(what) != std::string::npos;
  };
  ASSERT_TRUE(pair.frontend.Until([&] { return says("it loads its model"); }));
  pair.engine.Kill();
  ASSERT_TRUE(pair.frontend.Until([&] { return says("ended while it loaded"); }));
  pair.engine.loads = true;
  pair.engine.Start();
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.ExpectWorks();
}

// --- several engines

TEST(VllmFailures, OfSeveralEnginesTheOthersGoOn) {
  FakeVllm engines[2];
  VllmFrontend frontend({&engines[0], &engines[1]}, VllmOptions());
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(frontend.Submit());
  ASSERT_TRUE(frontend.Until(
      [&] { return engines[0].requests.size() == 2 && engines[1].requests.size() == 2; }));
  engines[0].Kill();
  ASSERT_TRUE(frontend.Until(
      [&] { return frontend.got.HasEnded(ids[0]) && frontend.got.HasEnded(ids[2]); }));
  EXPECT_EQ(frontend->health(), EngineHealth::kReady);
  const std::vector<EngineState> states = frontend->engines();
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].endpoint, engines[0].endpoint());
  EXPECT_EQ(states[0].health, EngineHealth::kConnecting);
  EXPECT_EQ(states[0].reason, "the connection was lost");
  EXPECT_EQ(states[1].health, EngineHealth::kReady);
  EXPECT_EQ(states[1].reason, "");
  for (int i = 0; i < 3; ++i) ids.push_back(frontend.Submit());
  ASSERT_TRUE(frontend.Until([&] { return engines[1].requests.size() == 5; }));
  for (const VllmRequest& request : engines[1].requests) {
    engines[1].SendLetters(request.id, "ok", kLength);
  }
  for (const int i : {1, 3, 4, 5, 6}) {
    ASSERT_TRUE(frontend.UntilEnded(ids[static_cast<size_t>(i)]));
    EXPECT_EQ(frontend.got[ids[static_cast<size_t>(i)]].text, "ok");
  }
}

// An engine of Sluice has less time to come, and need not stay ready until one of vLLM comes.
TEST(VllmFailures, AnEngineThatIsLostWhileAnotherComesDoesNotEndTheWait) {
  FakeEngine soon(InfoOf(Letters(), 4));
  FakeVllm late;
  late.Kill();
  std::atomic<bool> was_ready = false, was_lost = false;
  RemoteClientOptions options = VllmOptions();
  options.connect_timeout = milliseconds(4'000);
  options.engine_observer = [&](const EngineState& state) {
    if (state.endpoint != soon.endpoint()) return;
    if (state.health == EngineHealth::kReady) was_ready = true;
    if (state.health != EngineHealth::kReady && was_ready) was_lost = true;
  };
  const std::vector<std::string> endpoints = {soon.endpoint(), late.endpoint()};
  auto connecting =
      std::async(std::launch::async, [&] { return ConnectClient(endpoints, Letters(), options); });
  const auto is_over = [&] {
    soon.Pump();
    late.Pump();
    return connecting.wait_for(milliseconds(1)) == std::future_status::ready;
  };
  while (!was_ready && !is_over()) continue;
  const auto its_time_is_over = std::chrono::steady_clock::now() + options.connect_timeout;
  soon.Kill();
  while (!was_lost && !is_over()) continue;
  while (std::chrono::steady_clock::now() < its_time_is_over && !is_over()) continue;
  EXPECT_TRUE(was_lost);
  late.Start();
  while (!is_over()) continue;
  const std::vector<EngineState> states = connecting.get()->engines();
  EXPECT_EQ(states[0].health, EngineHealth::kConnecting);
  EXPECT_EQ(states[1].health, EngineHealth::kReady);
}

// A rank of several that share one address is not answered; that is said although another serves.
TEST(VllmFailures, SaysThatAnotherRankIsNotTaken) {
  VllmPair pair;
  const FakeVllm rank(pair.engine.endpoint(), std::string("\1\0", 2));
  const auto is_said = [&] {
    return pair.frontend->engines().at(0).reason.find("of rank 1") != std::string::npos;
  };
  ASSERT_TRUE(pair.frontend.Until(is_said));
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kReady);
  pair.engine.Start();  // it says it once, so it waits in vain in the next life as well
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.engine.lives == 2; }));
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  EXPECT_TRUE(is_said());
  pair.ExpectWorks();
}

}  // namespace
}  // namespace sluice::test
