// A client of engines in other processes: how it says hello, what it sends, and when it wakes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/link/fake_engine.h"

namespace sluice::test {
namespace {

using link::FrameType;

bool IsReadable(int fd, milliseconds timeout = milliseconds(0)) {
  pollfd item{fd, POLLIN, 0};
  return poll(&item, 1, static_cast<int>(timeout.count())) == 1;
}

TEST(RemoteClient, SaysHelloAndTakesTheEnginesInfo) {
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.credits = 5});
  EXPECT_EQ(frontend->info(), engine.info);
  EXPECT_EQ(frontend->health(), EngineHealth::kReady);
  EXPECT_EQ(engine.peer().hello.credits, 5);
  EXPECT_EQ(engine.peer().hello.pid, getpid());
  frontend.Close();
  const auto begin = std::chrono::steady_clock::now();
  while (!engine.peer().said_bye && std::chrono::steady_clock::now() - begin < kPatience) {
    engine.Pump();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(engine.peer().said_bye);
}

// The first PING goes out with the READY.
TEST(RemoteClient, HasTheCountersThatTheEngineSendsWithItsPong) {
  FakeEngine engine(InfoOf(Letters()));
  engine.grammars = {.compiling = 1,
                     .compiled = 2,
                     .cached = 3,
                     .masks = 4,
                     .mask_waits = 5,
                     .mask_wait_ns = 6'000'000'000};
  Frontend frontend({&engine});
  ASSERT_TRUE(frontend.Until([&] { return frontend->counters().round_trips.sum > 0; }));
  EXPECT_EQ(frontend->engines()[0].grammars, engine.grammars);
}

TEST(RemoteClient, SendsWhatTheObserverSeesAndGivesItsText) {
  FakeEngine engine(InfoOf(Letters()));
  EngineRequest seen;
  RequestId seen_id;
  Frontend frontend({&engine}, {.observer = [&](RequestId id, const EngineRequest& request) {
                      seen_id = id;
                      seen = request;
                    }});
  ClientRequest asked = Asks(8, {"stop"});
  asked.params.logprobs = 2;
  const RequestId id = frontend.Submit(asked);
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  EXPECT_EQ(seen_id, id);
  EXPECT_EQ(engine.peer().requests[0], seen);
  EXPECT_EQ(frontend->Seed(id), *seen.params.seed);
  EXPECT_EQ(frontend->live_requests(), 1);

  RowScript script(seen, Letters(), Ids("gostopx"), 27);
  while (!script.has_ended()) engine.SendRow(engine.peer(), script.Next(1));
  ASSERT_TRUE(frontend.UntilEnded(id));
  const Collected& all = frontend.got[id];
  EXPECT_EQ(all.text, "go");
  EXPECT_EQ(all.stop, "stop");
  EXPECT_EQ(all.output_tokens, 6);
  EXPECT_EQ(all.logprob_ids.size(), 6u * 3);
  EXPECT_EQ(frontend->live_requests(), 0);
  EXPECT_EQ(frontend->counters().tokens, 6);
}

TEST(RemoteClient, NamesTheEngineThatIsNotReadyAndWhatItSaid) {
  const auto refusal = [](FakeEngine& engine, milliseconds timeout) -> std::string {
    try {
      Frontend frontend({&engine}, {.connect_timeout = timeout});
      ADD_FAILURE() << "connected";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
      EXPECT_NE(error.value().find(engine.endpoint()), std::string::npos);
      return error.allowed();
    }
    return {};
  };
  // A machine that is busy may need longer to come to what the engine says.
  const auto expect_refusal = [&](FakeEngine& engine, const std::string& said) {
    milliseconds timeout{300};
    std::string why;
    do {
      why = refusal(engine, timeout);
      timeout *= 10;
    } while (why.find(said) == std::string::npos && timeout < 2 * kPatience);
    EXPECT_NE(why.find(said), std::string::npos) << why;
  };
  FakeEngine silent(InfoOf(Letters()));
  silent.answers_hello = false;
  expect_refusal(silent, "does not answer");
  const std::string nobody = "ipc://@sluice-test-of-nobody";
  try {
    ConnectClient({&nobody, 1}, Letters(), {.connect_timeout = milliseconds(50)});
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_NE(error.allowed().find("nothing listens"), std::string::npos) << error.what();
  }
  FakeEngine foreign(InfoOf(Letters()));
  ++foreign.info.tokenizer_hash;
  expect_refusal(foreign, "tokenizer");
  FakeEngine newer(InfoOf(Letters()));
  ++newer.protocol;
  expect_refusal(newer, "protocol " + std::to_string(newer.protocol) + ", not " +
                            std::to_string(link::kProtocol));
  FakeEngine absurd(InfoOf(Letters()));
  absurd.info.max_client_requests = 0;
  expect_refusal(absurd, "READY");
  // An engine that knows no text has no tokenizer to compare.
  FakeEngine ids_only(InfoOf(Letters()));
  ids_only.info.tokenizer_hash = 0;
  ids_only.info.has_text = false;
  Frontend frontend({&ids_only});
  EXPECT_EQ(frontend->health(), EngineHealth::kReady);
}

// Sent, it would end the connection, and with it every request of this frontend.
TEST(RemoteClient, ARequestThatIsLargerThanItsEngineTakesIsNotSent) {
  FakeEngine engine(InfoOf(Letters()));
  engine.info.max_frame_bytes = 1000;
  Frontend frontend({&engine});
  const RequestId before = frontend.Submit();
  ClientRequest large = Asks();
  large.prompt.assign(1000, 1);
  try {
    frontend->Submit(large);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidValue);
    EXPECT_EQ(error.parameter(), "request");
    EXPECT_NE(error.allowed().find("at most 1000 bytes"), std::string::npos) << error.what();
  }
  EXPECT_EQ(frontend->live_requests(), 1);
  const RequestId behind = frontend.Submit();
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 2; }));
  for (size_t i = 0; i < 2; ++i) {
    engine.SendText(engine.peer(), engine.peer().requests[i], 0, "y", GenerationEnd::kLength);
  }
  for (const RequestId id : {before, behind}) {
    ASSERT_TRUE(frontend.UntilEnded(id));
    EXPECT_EQ(frontend.got[id].text, "y");
  }
}

// Ctrl-C, say.
TEST(RemoteClient, ConnectingEndsWhenItIsAskedToStop) {
  FakeEngine silent(InfoOf(Letters()));
  const std::string nobody = "ipc://@sluice-test-of-nobody";
  for (const std::string& endpoint : {nobody, silent.endpoint()}) {
    std::stop_source stop;
    const auto begin = std::chrono::steady_clock::now();
    std::thread stopper([&stop] {
      std::this_thread::sleep_for(milliseconds(50));
      stop.request_stop();
    });
    EXPECT_THROW(ConnectClient({&endpoint, 1}, Letters(),
                               {.connect_timeout = 2 * kPatience, .stop = stop.get_token()}),
                 Error);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    stopper.join();
  }
}

TEST(RemoteClient, RefusesEndpointsThatAreNone) {
  const auto connect = [](std::vector<std::string> endpoints) {
    return RefusedFor([&] { ConnectClient(endpoints, Letters()); });
  };
  EXPECT_EQ(connect({}), "endpoints");
  EXPECT_EQ(connect({"nonsense"}), "endpoint");
  EXPECT_EQ(connect({"tcp://127.0.0.1"}), "endpoint");
  EXPECT_EQ(connect({"ipc://" + std::string(200, 'x')}), "endpoint");
}

TEST(RemoteClient, ARequestGoesToTheEngineWithTheFewest) {
  FakeEngine one(InfoOf(Letters(), 2));
  FakeEngine two(InfoOf(Letters(), 4));
  Frontend frontend({&one, &two});
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(frontend.Submit());
  EXPECT_EQ(RefusedFor([&] { frontend.Submit(); }), "requests");
  ASSERT_TRUE(frontend.Until(
      [&] { return one.peer().requests.size() == 2 && two.peer().requests.size() == 4; }));
  // The same addresses at both, and no text in the wrong place.
  one.SendText(one.peer(), one.peer().requests[0], 0, "one");
  two.SendText(two.peer(), two.peer().requests[0], 0, "two");
  ASSERT_TRUE(frontend.UntilText(ids[0], "one"));
  ASSERT_TRUE(frontend.UntilText(ids[1], "two"));
}

TEST(RemoteClient, GivesCreditsBackAsItTakesOutputs) {
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.credits = 4});
  const RequestId id = frontend.Submit();
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  for (int64_t i = 0; i < 3; ++i) {
    engine.SendText(engine.peer(), engine.peer().requests[0], i, "x");
  }
  ASSERT_TRUE(frontend.UntilText(id, "xxx"));
  engine.Pump();
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().credits == 2; }));
  engine.SendText(engine.peer(), engine.peer().requests[0], 3, "x");
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().credits == 4; }));
}

TEST(RemoteClient, AStopFoundHereIsAbortedThereAndLateTokensAreDropped) {
  FakeEngine engine(InfoOf(Letters(), 1));
  Frontend frontend({&engine}, {.stop_at = StopAt::kFrontend});
  const RequestId id = frontend.Submit(Asks(100, {"stop"}));
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  const EngineRequest request = engine.peer().requests[0];
  engine.SendText(engine.peer(), request, 0, "gostopx");
  ASSERT_TRUE(frontend.UntilEnded(id));
  EXPECT_EQ(frontend.got[id].text, "go");
  EXPECT_EQ(RefusedFor([&] { frontend.Submit(); }), "requests");
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().aborted.size() == 1; }));
  EXPECT_EQ(engine.peer().aborted[0], request.address);
  engine.SendText(engine.peer(), request, 7, "zombie");
  engine.SendText(engine.peer(), request, 13, "", GenerationEnd::kCancelled);
  RequestId next;
  ASSERT_TRUE(frontend.Until([&] {
    if (RefusedFor([&] { next = frontend.Submit(); }).empty()) return true;
    return false;
  }));
  engine.SendText(engine.peer(), request, 13, "zombie");
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 2; }));
  engine.SendText(engine.peer(), engine.peer().requests[1], 0, "new");
  ASSERT_TRUE(frontend.UntilText(next, "new"));
  EXPECT_EQ(frontend->counters().stale_rows, 2);
  EXPECT_EQ(frontend->counters().stale_tokens, 1 + 6 + 6);
  EXPECT_EQ(frontend->counters().aborts, 1);
  EXPECT_EQ(frontend->counters().resets, 0);
}

TEST(RemoteClient, AnAbortEndsWithTheNextPollAndIsSentAtOnce) {
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine});
  const RequestId id = frontend.Submit();
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  EXPECT_FALSE(IsReadable(frontend->event_fd()));
  frontend->Abort(id);
  frontend->Abort(id);
  frontend->Abort(RequestId{});
  EXPECT_TRUE(IsReadable(frontend->event_fd(), kPatience));
  EXPECT_EQ(frontend.Poll(), 1u);
  EXPECT_EQ(frontend.got[id].end, GenerationEnd::kCancelled);
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().aborted.size() == 1; }));
  EXPECT_EQ(frontend->counters().aborts, 1);
}

// An event loop that polls only when the descriptor is readable misses nothing, whatever else it
// calls in between.
TEST(RemoteClient, TheDescriptorIsReadableWheneverPollHasSomethingToDo) {
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.stall_timeout = 5 * kPatience});  // no ping may wake it
  const int fd = frontend->event_fd();
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    engine.peer().requests.clear();
    const RequestId id = frontend.Submit();
    const auto has_come = [&] {
      engine.Pump();
      return !engine.peer().requests.empty();
    };
    while (!has_come()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const bool ends = round % 2 == 0;
    engine.SendText(engine.peer(), engine.peer().requests[0], 0, "a",
                    ends ? GenerationEnd::kLength : GenerationEnd::kNone);
    // What it has by now, it sees when it sends.
    if (round % 3 == 0) std::this_thread::sleep_for(milliseconds(4));
    RequestId other;
    if (round % 4 < 2) other = frontend.Submit();
    while (frontend.got[id].text.empty()) {
      ASSERT_TRUE(IsReadable(fd, kPatience)) << "never woken";
      frontend.Poll();
    }
    frontend->Abort(id);
    frontend->Abort(other);
    while (engine.peer().aborted.size() < (ends ? 0u : 1u) + (other == RequestId{} ? 0u : 1u)) {
      engine.Pump();
    }
    for (const RequestAddress& address : engine.peer().aborted) {
      engine.SendRow(engine.peer(), {.address = address, .end = GenerationEnd::kCancelled});
    }
    engine.peer().aborted.clear();
  }
  // The engine's last row may come behind the last Poll, and wakes it then.
  const auto sleeps = [&] { return frontend->live_requests() == 0 && !IsReadable(fd); };
  EXPECT_TRUE(frontend.Until(sleeps)) << "always awake";
}

TEST(RemoteClient, AForkedProcessThatDropsItsCopyDisturbsNothing) {
  FakeEngine engine(InfoOf(Letters()));
  Frontend frontend({&engine}, {.stall_timeout = 5 * kPatience});  // no ping may wake it
  const RequestId id = frontend.Submit();
  ASSERT_TRUE(frontend.Until([&] { return engine.peer().requests.size() == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    frontend.Close();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  frontend.Poll();
  EXPECT_FALSE(IsReadable(frontend->event_fd()));
  engine.SendText(engine.peer(), engine.peer().requests[0], 0, "a");
  EXPECT_TRUE(IsReadable(frontend->event_fd(), kPatience));
  EXPECT_TRUE(frontend.UntilText(id, "a"));
  EXPECT_FALSE(engine.peer().said_bye);
  EXPECT_EQ(engine.peers(), 1u);
}

}  // namespace
}  // namespace sluice::test
