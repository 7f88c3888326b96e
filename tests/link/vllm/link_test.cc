// A client in front of a vLLM engine: how they find each other, what goes and comes, and every way
// in which an engine may go.
#include <gtest/gtest.h>

#include <random>

#include "sluice/error.hpp"
#include "tests/link/vllm/fake_vllm.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr int kStop = 0, kLength = 1;  // vLLM's reasons

RemoteClientOptions Options(milliseconds stall = milliseconds(30'000)) {
  return {.connect_timeout = kPatience, .stall_timeout = stall, .end_tokens = {kEnd}};
}

// A frontend with its engine, and a request that the engine has.
struct Pair {
  explicit Pair(RemoteClientOptions options = Options()) : frontend({&engine}, options) {}

  RequestId Ask(ClientRequest request = Asks()) {
    const RequestId id = frontend.Submit(std::move(request));
    const size_t before = engine.requests.size();
    EXPECT_TRUE(frontend.Until([&] { return engine.requests.size() > before; }));
    return id;
  }
  const std::string& last() const { return engine.requests.back().id; }
  void ExpectWorks() {
    const RequestId id = Ask();
    engine.SendLetters(last(), "fine", kLength);
    ASSERT_TRUE(frontend.UntilEnded(id));
    EXPECT_EQ(frontend.got[id].text, "fine");
  }

  FakeVllm engine;
  VllmFrontend frontend;
};

TEST(VllmLink, TakesTheEngineThatSaysHello) {
  Pair pair;
  const EngineInfo& info = pair.frontend->info();
  EXPECT_EQ(info.version, "vLLM 0.33.0");
  EXPECT_EQ(info.vocab, Letters().size());
  EXPECT_EQ(info.context, 4096);
  EXPECT_EQ(info.max_requests, 8);
  EXPECT_EQ(info.end_tokens, std::vector<int32_t>{kEnd});
  EXPECT_FALSE(info.knows_text);
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kReady);
}

TEST(VllmLink, SendsRequestsAndGivesTheirText) {
  Pair pair;
  ClientRequest asked = Asks(50);
  asked.prompt = Ids("hello");
  asked.params.temperature = 0.5f;
  const RequestId id = pair.Ask(asked);
  const VllmRequest& got = pair.engine.requests[0];
  EXPECT_EQ(got.prompt, Ids("hello"));
  EXPECT_EQ(got.params.at("temperature").as<double>(), 0.5);
  EXPECT_EQ(got.params.at("max_tokens").as<int>(), 50);
  EXPECT_EQ(got.params.at("stop_token_ids").as<std::vector<int32_t>>(), std::vector<int32_t>{kEnd});
  EXPECT_EQ(got.params.at("seed").as<uint64_t>(), pair.frontend->Seed(id) & INT64_MAX);
  pair.engine.SendLetters(got.id, "wor");
  pair.engine.SendLetters(got.id, "ld");
  pair.engine.SendIds(got.id, {kEnd}, kStop);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  const Collected& all = pair.frontend.got[id];
  EXPECT_EQ(all.text, "world");
  EXPECT_EQ(all.end, GenerationEnd::kStopToken);
  EXPECT_EQ(all.stop_token, kEnd);
  EXPECT_EQ(all.output_tokens, 6);
  EXPECT_TRUE(pair.engine.aborted.empty());
}

TEST(VllmLink, TellsWhyATextEnds) {
  Pair pair;
  const RequestId length = pair.Ask(Asks(3));
  pair.engine.SendLetters(pair.last(), "abc", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(length));
  EXPECT_EQ(pair.frontend.got[length].end, GenerationEnd::kLength);
  const RequestId context = pair.Ask(Asks(1000));
  pair.engine.SendLetters(pair.last(), "abc", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(context));
  EXPECT_EQ(pair.frontend.got[context].end, GenerationEnd::kContext);
}

// The engine knows no text: the stop is found here, and it is told to stop.
TEST(VllmLink, FindsStopStringsItselfAndAborts) {
  Pair pair;
  const RequestId id = pair.Ask(Asks(100, {"stop"}));
  const std::string first = pair.last();
  pair.engine.SendLetters(first, "gost");
  pair.engine.SendLetters(first, "opmore");
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].text, "go");
  EXPECT_EQ(pair.frontend.got[id].stop, "stop");
  ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{first});
  // What the engine had on its way reaches nobody, though the place is another request's by now.
  const RequestId next = pair.Ask();
  EXPECT_NE(pair.last(), first);
  pair.engine.SendLetters(first, "late");
  pair.engine.SendLetters(pair.last(), "next", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(next));
  EXPECT_EQ(pair.frontend.got[next].text, "next");
  EXPECT_EQ(pair.frontend->counters().stale_rows, 1);
}

TEST(VllmLink, GivesLogprobsAsWideAsAskedFor) {
  Pair pair;
  ClientRequest asked = Asks();
  asked.prompt = Ids("abc");
  asked.params.logprobs = 1;
  asked.prompt_logprobs = 2;
  const RequestId id = pair.Ask(asked);
  EXPECT_TRUE(pair.engine.requests[0].params.at("skip_reading_prefix_cache").as<bool>());
  pair.engine.SendWithLogprobs(pair.last(), "x", 3, 2);
  pair.engine.SendWithLogprobs(pair.last(), "yz", 4);
  pair.engine.SendIds(pair.last(), {}, kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  const Collected& all = pair.frontend.got[id];
  EXPECT_EQ(all.text, "xyz");
  EXPECT_EQ(all.width, 2);
  EXPECT_EQ(all.logprobs, (std::vector<float>{-1, -1, -5}));
  EXPECT_EQ(all.logprob_values, (std::vector<float>{-1, -2, -1, -2, -5, -6}));
  EXPECT_EQ(all.prompt_logprobs, (std::vector<float>{-1, -4}));
  EXPECT_EQ(all.prompt_ids.size(), 6u);
}

TEST(VllmLink, EndsWithTheWordsOfAnEngineThatRefuses) {
  Pair pair;
  const RequestId id = pair.Ask();
  ASSERT_EQ(pair.last(), "sluice-0-1");
  std::string bytes = VllmMessage("outputs.refused").at(0);
  bytes.replace(bytes.find("sluice-1-2"), 10, pair.last());
  pair.engine.Send({bytes});
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].end, GenerationEnd::kRejected);
  EXPECT_EQ(pair.frontend.got[id].message, "no such thing");
  pair.ExpectWorks();
}

TEST(VllmLink, AbortsWhatIsAbortedAndFreesItsPlaceAtOnce) {
  Pair pair;
  const RequestId id = pair.Ask();
  pair.engine.SendLetters(pair.last(), "ab");
  ASSERT_TRUE(pair.frontend.UntilText(id, "ab"));
  pair.frontend->Abort(id);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].end, GenerationEnd::kCancelled);
  ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{"sluice-0-1"});
  pair.Ask();
  EXPECT_EQ(pair.last(), "sluice-0-2");  // the same place
}

TEST(VllmLink, RefusesByNameWhatTheEngineHasNot) {
  Pair pair;
  ClientRequest asked = Asks();
  asked.params.xtc_probability = 0.5f;
  try {
    pair.frontend->Submit(asked);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.parameter(), "xtc_probability");
    EXPECT_EQ(error.code(), ErrorCode::kInvalidValue);
  }
  EXPECT_EQ(pair.frontend->live_requests(), 0);
  pair.ExpectWorks();
}

void ExpectLost(Pair& pair, RequestId id, const std::string& why) {
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  const Collected& all = pair.frontend.got[id];
  EXPECT_EQ(all.end, GenerationEnd::kEngineLost);
  EXPECT_EQ(all.text, "ab");
  EXPECT_NE(all.message.find(why), std::string::npos) << all.message;
}
RequestId HalfWay(Pair& pair) {
  const RequestId id = pair.Ask();
  pair.engine.SendLetters(pair.last(), "ab");
  EXPECT_TRUE(pair.frontend.UntilText(id, "ab"));
  return id;
}

TEST(VllmLink, EndsTheRequestsOfAnEngineThatIsKilledAndTakesItsNextLife) {
  Pair pair;
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

TEST(VllmLink, EndsTheRequestsOfAnEngineThatSaysItIsDead) {
  Pair pair;
  const RequestId id = HalfWay(pair);
  pair.engine.SendLetters(pair.last(), "");
  pair.engine.Send({"ENGINE_CORE_DEAD"});
  ExpectLost(pair, id, "failed");
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kConnecting);
}

TEST(VllmLink, TakesUpAnEngineAgainWhoseConnectionWasLost) {
  Pair pair;
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
TEST(VllmLink, TakesAnEngineThatIsStartedInThePlaceOfAnother) {
  Pair pair;
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

TEST(VllmLink, AnEngineThatIsSilentIsAskedAndThenGivenUp) {
  Pair pair(Options(milliseconds(400)));
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

TEST(VllmLink, WhatCannotBeReadEndsTheRequestsAndNothingElse) {
  Pair pair;
  const RequestId id = HalfWay(pair);
  const std::string half = pair.last();
  pair.engine.Send({"no MessagePack"});
  ExpectLost(pair, id, "cannot be read");
  EXPECT_EQ(pair.frontend->counters().malformed_frames, 1);
  ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
  EXPECT_EQ(pair.engine.aborted[0], half);
  pair.ExpectWorks();
}

TEST(VllmLink, OneRequestIsLostWhereItsOwnOutputCannotBe) {
  Pair pair;
  const RequestId bad = pair.Ask();
  const std::string bad_name = pair.last();
  const RequestId good = pair.Ask();
  const std::string good_name = pair.last();
  pair.engine.SendIds(bad_name, {1000});  // no such token
  ClientRequest asked = Asks();
  asked.params.logprobs = 5;
  const RequestId narrow = pair.Ask(asked);
  const std::string narrow_name = pair.last();
  pair.engine.SendWithLogprobs(narrow_name, "a", 3);
  ASSERT_TRUE(pair.frontend.UntilEnded(bad));
  ASSERT_TRUE(pair.frontend.UntilEnded(narrow));
  EXPECT_EQ(pair.frontend.got[bad].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(pair.frontend.got[narrow].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(pair.frontend.got[narrow].text, "");
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.engine.aborted.size() == 2; }));
  pair.engine.SendLetters(good_name, "ok", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(good));
  EXPECT_EQ(pair.frontend.got[good].text, "ok");
}

TEST(VllmLink, StrangersAreCountedAndChangeNothing) {
  Pair pair;
  const RequestId id = HalfWay(pair);
  zmq::context_t context;
  zmq::socket_t stranger(context, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.connect(pair.engine.endpoint().substr(5));
  stranger.send(zmq::str_buffer("hello?"));
  stranger.send(zmq::buffer(VllmMessage("handshake.hello").at(0)));  // without the identity
  ASSERT_TRUE(pair.frontend.Until([&] {
    const ClientCounters& counters = pair.frontend->counters();
    return counters.malformed_frames == 1 && counters.foreign_frames == 1;
  }));
  pair.engine.SendLetters(pair.last(), "cd", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].text, "abcd");
}

// Whatever it is, the next request goes through.
TEST(VllmLink, AnythingOnItsSocketLeavesItInUse) {
  Pair pair;
  std::mt19937 random(3);
  std::vector<Frames> all;
  for (const auto& [name, frames] : VllmMessages()) all.push_back(frames);
  for (int round = 0; round < 2000 / kSlowdown; ++round) {
    Frames frames = all[random() % all.size()];
    std::string& frame = frames[random() % frames.size()];
    frame[random() % frame.size()] = static_cast<char>(random());
    if (random() % 8 == 0) frame.resize(random() % frame.size());
    if (frames[0] == "ENGINE_CORE_DEAD") continue;
    if (round % 50 == 0) pair.Ask();
    pair.engine.Send(frames);
    if (round % 50 == 49) pair.frontend.Poll();
  }
  // Behind all of it, of nobody, and more tokens than the rest together.
  constexpr int64_t kMany = 1'000'000;
  pair.engine.SendIds("sluice-999-1", std::vector<int32_t>(kMany, 1));
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.frontend->counters().stale_tokens >= kMany; }));
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kReady);
  EXPECT_GT(pair.frontend->counters().malformed_frames, 100);
  pair.ExpectWorks();
}

TEST(VllmLink, AbortsWhatItHasWhenItEnds) {
  Pair pair;
  const RequestId id = HalfWay(pair);
  static_cast<void>(id);
  pair.frontend.Close();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (pair.engine.aborted.empty() && std::chrono::steady_clock::now() < deadline) {
    pair.engine.Pump();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{"sluice-0-1"});
}

std::string WhyNot(const std::string& endpoint, FakeVllm* engine = nullptr) {
  try {
    if (engine == nullptr) {
      ConnectClient({&endpoint, 1}, Letters(), {.connect_timeout = milliseconds(1)});
    } else {
      VllmFrontend({engine}, {.connect_timeout = milliseconds(500)});
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "connected";
}

TEST(VllmLink, NamesWhatIsWrongWithAnEngine) {
  const auto expect = [](const char* why, auto set) {
    FakeVllm engine;
    set(engine);
    engine.Start();
    std::string said;
    for (int tries = 0; tries < 20 && said.find(why) == std::string::npos; ++tries) {
      if (tries > 0) engine.Start();
      said = WhyNot(engine.endpoint(), &engine);
    }
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  expect("vLLM 0.99.1", [](FakeVllm& engine) { engine.facts["vllm_version"] = "0.99.1"; });
  expect("cannot be read", [](FakeVllm& engine) { engine.facts.clear(); });
  expect("--data-parallel-size 1", [](FakeVllm& engine) { engine.data_parallel_size = 4; });
  expect("another rank", [](FakeVllm& engine) { engine.identity = std::string("\1\0", 2); });
  expect("loads its model", [](FakeVllm& engine) { engine.loads = false; });
}

TEST(VllmLink, RefusesAnAddressThatAnEngineCannotBeTold) {
  for (const char* const endpoint :
       {"vllm+tcp://", "vllm+tcp://127.0.0.1", "vllm+tcp://:5000", "vllm+tcp://0.0.0.0:5000",
        "vllm+tcp://*:5000", "vllm+tcp://[::]:5000", "vllm+tcp://no.such.host.invalid:5000",
        "vllm+tcp://127.0.0.1:x"}) {
    EXPECT_NE(WhyNot(endpoint).find("vllm+tcp://ADDRESS:PORT"), std::string::npos) << endpoint;
  }
  Pair pair;  // whose address is taken
  EXPECT_NE(WhyNot(pair.engine.endpoint()).find("in use"), std::string::npos);
  EXPECT_NE(WhyNot(FreeVllmEndpoint()).find("has said hello"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
