// A client in front of a vLLM engine: how they find each other, and what goes and comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <random>

#include "sluice/error.hpp"
#include "tests/link/vllm/vllm_pair.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

TEST(VllmLink, TakesTheEngineThatSaysHello) {
  VllmPair pair;
  const EngineInfo& info = pair.frontend->info();
  EXPECT_EQ(info.version, "vLLM 0.33.0");
  EXPECT_EQ(info.vocab, Letters().size());
  EXPECT_EQ(info.context, 4096);
  EXPECT_EQ(info.max_requests, 8);
  EXPECT_EQ(info.end_tokens, std::vector<int32_t>{kEnd});
  EXPECT_FALSE(info.has_text);
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kReady);
}

// They are said here, and go into every request: nobody behind it would know whose they are.
TEST(VllmLink, EndTokensAreOfTheVocabulary) {
  const std::vector<std::string> endpoints = {FreeVllmEndpoint()};
  const auto expect_refused = [&](int32_t end_token, int64_t vocab) {
    RemoteClientOptions options = VllmOptions();
    options.end_tokens = {kEnd, end_token};
    options.vocab = vocab;
    try {
      ConnectClient(endpoints, Letters(), options);
      ADD_FAILURE() << end_token;
    } catch (const Error& error) {
      EXPECT_EQ(error.parameter(), "end_tokens");
    }
  };
  expect_refused(-1, 0);
  expect_refused(Letters().size(), 0);
  expect_refused(Letters().size() + 5, Letters().size() + 5);
}

TEST(VllmLink, SendsRequestsAndGivesTheirText) {
  VllmPair pair;
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
  VllmPair pair;
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
  VllmPair pair;
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
  VllmPair pair;
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
  VllmPair pair;
  const RequestId id = pair.Ask();
  pair.engine.Send({Renamed(VllmMessage("outputs.refused").at(0), "sluice-77-1-2", pair.last())});
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].end, GenerationEnd::kRejected);
  EXPECT_EQ(pair.frontend.got[id].message, "no such thing");
  pair.ExpectWorks();
}

TEST(VllmLink, AbortsWhatIsAbortedAndFreesItsPlaceAtOnce) {
  VllmPair pair;
  const RequestId id = pair.Ask();
  pair.engine.SendLetters(pair.last(), "ab");
  ASSERT_TRUE(pair.frontend.UntilText(id, "ab"));
  pair.frontend->Abort(id);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].end, GenerationEnd::kCancelled);
  ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{pair.last()});
  EXPECT_EQ(pair.last_place(), "-0-1");
  pair.Ask();
  EXPECT_EQ(pair.last_place(), "-0-2");  // the same place
}

TEST(VllmLink, RefusesByNameWhatTheEngineHasNot) {
  VllmPair pair;
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

TEST(VllmLink, WhatCannotBeReadEndsTheRequestsAndNothingElse) {
  VllmPair pair;
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
  VllmPair pair;
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

TEST(VllmLink, OneRequestIsLostWhereItsOwnLogprobsAreNoNumbers) {
  VllmPair pair;
  ClientRequest asked = Asks();
  asked.params.logprobs = 1;
  const RequestId bad = pair.Ask(asked);
  const std::string bad_name = pair.last();
  const RequestId good = HalfWay(pair);
  pair.engine.SendWithLogprobs(bad_name, "a", 2, 0, std::nanf(""));
  ASSERT_TRUE(pair.frontend.UntilEnded(bad));
  EXPECT_EQ(pair.frontend.got[bad].end, GenerationEnd::kEngineLost);
  EXPECT_NE(pair.frontend.got[bad].message.find("NaN"), std::string::npos);
  ASSERT_TRUE(pair.frontend.Until([&] { return !pair.engine.aborted.empty(); }));
  EXPECT_EQ(pair.engine.aborted[0], bad_name);
  pair.engine.SendLetters(pair.last(), "cd", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(good));
  EXPECT_EQ(pair.frontend.got[good].text, "abcd");
  EXPECT_EQ(pair.frontend->counters().malformed_frames, 0);
}

// Heads are padded: such a token has no text, and is none that cannot be.
TEST(VllmLink, TokensOfTheModelThatTheTokenizerHasNotAreTaken) {
  RemoteClientOptions options = VllmOptions();
  options.vocab = Letters().size() + 10;
  VllmPair pair(options);
  EXPECT_EQ(pair.frontend->info().vocab, options.vocab);
  const auto last = static_cast<int32_t>(options.vocab - 1);
  ClientRequest asked = Asks(3);
  asked.prompt = {last};
  asked.params.logit_bias = {{last, 1.0f}};
  const RequestId id = pair.Ask(asked);
  pair.engine.SendIds(pair.last(), {last});
  pair.engine.SendLetters(pair.last(), "ab", kLength);
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  EXPECT_EQ(pair.frontend.got[id].end, GenerationEnd::kLength);
  EXPECT_EQ(pair.frontend.got[id].text, "ab");
  const RequestId bad = pair.Ask();
  pair.engine.SendIds(pair.last(), {last + 1});
  ASSERT_TRUE(pair.frontend.UntilEnded(bad));
  EXPECT_EQ(pair.frontend.got[bad].end, GenerationEnd::kEngineLost);
  EXPECT_EQ(pair.frontend->counters().foreign_ids, 1);
}

// Another life's, of which somebody knows by chance, or who guesses.
TEST(VllmLink, RequestsOfEachLifeHaveNamesOfTheirOwn) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  const std::string name = pair.last();
  const std::string place = pair.last_place();
  for (const std::string& other : {"sluice-0" + place, "sluice-1" + place, "sluice" + place}) {
    pair.engine.SendLetters(other, "bad", kLength);
  }
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.frontend->counters().stale_rows == 3; }));
  EXPECT_FALSE(pair.frontend.got.HasEnded(id));
  pair.engine.Start();
  ASSERT_TRUE(pair.frontend.UntilEnded(id));
  ASSERT_TRUE(pair.frontend.UntilHealth(EngineHealth::kReady));
  pair.Ask();
  EXPECT_NE(pair.last().substr(0, pair.last().find('-', 7)), name.substr(0, name.find('-', 7)));
}

// As where the abort was lost with a connection.
TEST(VllmLink, AbortsWhatNobodyKnowsAndStillComes) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  ASSERT_TRUE(pair.frontend.Until([&] {
    pair.engine.SendLetters("sluice-5-0-9", "orphan");
    pair.engine.SendLetters("of-somebody-else", "orphan");
    return !pair.engine.aborted.empty();
  }));
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{"sluice-5-0-9"});
  EXPECT_FALSE(pair.frontend.got.HasEnded(id));
}

TEST(VllmLink, StrangersAreCountedAndChangeNothing) {
  VllmPair pair;
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

TEST(VllmLink, AGreetingIsShort) {
  VllmPair pair;
  zmq::context_t context;
  zmq::socket_t stranger(context, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::linger, 0);
  zmq::socket_t monitor =
      link::OpenMonitor(context, stranger, "inproc://stranger", ZMQ_EVENT_DISCONNECTED);
  stranger.connect(pair.engine.endpoint().substr(5));
  const std::string huge(100'000, 'x');
  stranger.send(zmq::buffer(huge));
  EXPECT_TRUE(pair.frontend.Until([&] { return link::HasInput(monitor); }));
  zmq_socket_monitor(stranger.handle(), nullptr, 0);
  EXPECT_EQ(pair.frontend->counters().malformed_frames, 0);  // it was not even read
  pair.ExpectWorks();
}

// Whatever it is, the next request goes through.
TEST(VllmLink, AnythingOnItsSocketLeavesItInUse) {
  VllmPair pair;
  std::mt19937 random(3);
  std::vector<Frames> all;
  for (const auto& [name, frames] : VllmMessages()) all.push_back(frames);
  pair.Ask();
  const std::string life = pair.last().substr(0, pair.last().find('-', 7));
  for (int round = 0; round < 2000 / kSlowdown; ++round) {
    Frames frames = all[random() % all.size()];
    frames[0] = Renamed(frames[0], "sluice-77-0-1", life + "-0-1");
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
  pair.engine.SendIds("sluice-0-999-1", std::vector<int32_t>(kMany, 1));
  ASSERT_TRUE(pair.frontend.Until([&] { return pair.frontend->counters().stale_tokens >= kMany; }));
  EXPECT_EQ(pair.frontend->health(), EngineHealth::kReady);
  EXPECT_GT(pair.frontend->counters().malformed_frames, 100);
  pair.ExpectWorks();
}

TEST(VllmLink, AbortsWhatItHasWhenItEnds) {
  VllmPair pair;
  const RequestId id = HalfWay(pair);
  static_cast<void>(id);
  pair.frontend.Close();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (pair.engine.aborted.empty() && std::chrono::steady_clock::now() < deadline) {
    pair.engine.Pump();
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(pair.engine.aborted, std::vector<std::string>{pair.last()});
}

std::string WhyNot(const std::string& endpoint, FakeVllm* engine = nullptr) {
  try {
    if (engine == nullptr) {
      ConnectClient({&endpoint, 1}, Letters(), {.start_timeout = milliseconds(1)});
    } else {
      VllmFrontend({engine}, {.start_timeout = milliseconds(500)});
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
  expect("vLLM 0.30.1", [](FakeVllm& engine) { engine.facts["vllm_version"] = "0.30.1"; });
  expect("cannot be read", [](FakeVllm& engine) { engine.facts.clear(); });
  expect("--data-parallel-size 1", [](FakeVllm& engine) { engine.data_parallel_size = 4; });
  expect("of rank 257", [](FakeVllm& engine) { engine.identity = "\1\1"; });
  expect("of no rank", [](FakeVllm& engine) { engine.identity = "somebody"; });
  expect("loads its model", [](FakeVllm& engine) { engine.loads = false; });
}

// Each kind has its own time: one that is not there is not waited for as long as one that loads.
TEST(VllmLink, OfBothKindsOfEnginesEachHasItsOwnTimeToCome) {
  const std::string endpoints[] = {FreeVllmEndpoint(), FreeVllmEndpoint().substr(5)};
  const auto why = [&](RemoteClientOptions options) -> std::string {
    try {
      ConnectClient(endpoints, Letters(), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "connected";
  };
  const std::string of_sluice =
      why({.connect_timeout = milliseconds(20), .start_timeout = std::chrono::hours(1)});
  EXPECT_NE(of_sluice.find('"' + endpoints[1]), std::string::npos) << of_sluice;
  EXPECT_NE(of_sluice.find("20 ms"), std::string::npos) << of_sluice;
  const std::string of_vllm =
      why({.connect_timeout = std::chrono::hours(1), .start_timeout = milliseconds(30)});
  EXPECT_NE(of_vllm.find('"' + endpoints[0]), std::string::npos) << of_vllm;
  EXPECT_NE(of_vllm.find("30 ms"), std::string::npos) << of_vllm;
}

// While it waits for another one.
TEST(VllmLink, SaysWhatIsWrongWithAnEngineWhenItKnows) {
  FakeVllm engine;
  engine.facts["vllm_version"] = "0.30.1";
  std::mutex mutex;
  std::vector<std::string> said;
  RemoteClientOptions options = VllmOptions();
  options.engine_observer = [&](const EngineState& state) {
    const std::lock_guard lock(mutex);
    said.push_back(std::string(Name(state.health)) + ": " + state.reason);
  };
  const auto has_said = [&](const char* what) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(
        said, [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  const std::string endpoint = engine.endpoint();
  auto connecting = std::async(std::launch::async,
                               [&] { return ConnectClient({&endpoint, 1}, Letters(), options); });
  while (connecting.wait_for(milliseconds(1)) != std::future_status::ready) {
    engine.Pump();
    if (engine.facts["vllm_version"] == "0.32.1" || !has_said("it is vLLM 0.30.1")) continue;
    engine.facts["vllm_version"] = "0.32.1";
    engine.Start();
  }
  const auto client = connecting.get();
  EXPECT_EQ(client->info().version, "vLLM 0.32.1");
  EXPECT_TRUE(has_said("connecting: it is vLLM 0.30.1, and what is spoken here is vLLM 0.31"));
  EXPECT_EQ(said.back(), "ready: ");
}

TEST(VllmLink, GivesAdaptersThatWereNamedToAnEngineThatTakesThem) {
  RemoteClientOptions options = VllmOptions();
  options.adapters = {{"one", "/adapters/1"}, {"two", "/adapters/2"}};
  for (const bool takes : {false, true}) {
    FakeVllm engine;
    engine.supports_lora = takes;
    engine.Start();
    VllmFrontend frontend({&engine}, options);
    const auto submit = [&](const char* name) -> std::string {
      ClientRequest asked = Asks();
      asked.extras = {.cache_salt = "s", .adapter = name};
      try {
        frontend.Submit(std::move(asked));
      } catch (const Error& error) {
        return error.what();
      }
      return "taken";
    };
    EXPECT_NE(submit("three").find("one of those that were given"), std::string::npos);
    if (!takes) {
      EXPECT_NE(submit("two").find("--enable-lora"), std::string::npos);
      continue;
    }
    EXPECT_EQ(submit("two"), "taken");
    ASSERT_TRUE(frontend.Until([&] { return engine.requests.size() == 1; }));
    EXPECT_EQ(engine.requests[0].salt, "s");
    EXPECT_EQ(engine.requests[0].adapter, "two 2 /adapters/2");
  }
}

// A newer one is taken, and a line names it.
TEST(VllmLink, SaysThatAnEngineIsNewerThanItKnows) {
  FakeVllm engine;
  engine.facts["vllm_version"] = "0.34.0";
  engine.Start();
  VllmFrontend frontend({&engine}, VllmOptions());
  const EngineState state = frontend->engines().at(0);
  EXPECT_EQ(state.health, EngineHealth::kReady);
  EXPECT_TRUE(state.reason.starts_with("it is vLLM 0.34.0, newer than")) << state.reason;
}

TEST(VllmLink, RefusesAnAddressThatAnEngineCannotBeTold) {
  for (const char* const endpoint :
       {"vllm+tcp://", "vllm+tcp://127.0.0.1", "vllm+tcp://:5000", "vllm+tcp://0.0.0.0:5000",
        "vllm+tcp://*:5000", "vllm+tcp://[::]:5000", "vllm+tcp://no.such.host.invalid:5000",
        "vllm+tcp://127.0.0.1:x"}) {
    EXPECT_NE(WhyNot(endpoint).find("vllm+tcp://ADDRESS:PORT"), std::string::npos) << endpoint;
  }
  VllmPair pair;  // whose address is taken
  EXPECT_NE(WhyNot(pair.engine.endpoint()).find("in use"), std::string::npos);
  EXPECT_NE(WhyNot(FreeVllmEndpoint()).find("has said hello"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
