// An engine keeps its promises to every frontend, whatever another one does.
#include "sluice/engine_server.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "sluice/error.hpp"
#include "tests/link/frontend/raw_frontend.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

using link::FrameHead;
using link::FrameType;
using std::chrono::milliseconds;

TEST(EngineServer, HelloIsAnsweredWithWhatTheEngineIs) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  const link::Ready ready = frontend.Connect();
  EXPECT_EQ(ready.protocol, link::kProtocol);
  EXPECT_EQ(ready.info.model, "script");
  EXPECT_EQ(ready.info.vocab, 1000);
  EXPECT_EQ(ready.info.max_requests, 64);
  EXPECT_EQ(ready.info.max_client_requests, 64);
  EXPECT_NE(frontend.epoch(), 0u);
  frontend.Say(FrameType::kPing);
  frontend.Expect(FrameType::kPong);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().clients == 1; }));
}

// Over every kind of endpoint.
class EngineServerOn : public ::testing::TestWithParam<std::string> {};

TEST_P(EngineServerOn, EveryRequestGetsItsTokensInOrderAndOneEnd) {
  std::string folder = std::filesystem::temp_directory_path() / "sluice-link-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string listen = GetParam() == "file" ? "ipc://" + folder + "/socket" : GetParam();
  {
    RunningServer server(CountingScript(), {.listen = listen});
    RawFrontend frontend(server.endpoint());
    frontend.Connect();
    for (uint32_t generation = 0; generation < 3; ++generation) {  // the slots again and again
      for (int32_t slot = 0; slot < 64; ++slot) {
        frontend.Add(CountingRequest(slot, generation, 10 * slot, 1 + slot));
      }
      EXPECT_EQ(frontend.Collect(64), std::nullopt);
    }
    ASSERT_EQ(frontend.outputs.size(), 3u * 64);
    for (const auto& [address, output] : frontend.outputs) {
      EXPECT_EQ(output.ids, Counted(10 * address.first, 1 + address.first));
      EXPECT_EQ(output.ends, 1);
      EXPECT_EQ(output.end, GenerationEnd::kLength);
    }
    frontend.ExpectAllNumbers();
    EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().ended == 3 * 64; }));
    EXPECT_TRUE(RunningServer::Becomes([&] {
      return server->link_counters().tokens_out == server->engine_counters().tokens_given;
    }));
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Endpoints, EngineServerOn,
                         ::testing::Values("file", LocalEndpoint(), "tcp://127.0.0.1:*"));

TEST(EngineServer, LogprobsComeAlong) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect(2);  // some of them held back
  EngineRequest request = CountingRequest(0, 0, 5, 100);
  request.params.logprobs = 0;
  frontend.Add(request);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().ended == 1; }));
  frontend.Grant(10);
  frontend.Collect(1);
  const auto& output = frontend.outputs[{0, 0}];
  EXPECT_EQ(output.ids, Counted(5, 100));
  ASSERT_EQ(output.logprobs.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(output.logprobs[i], ScriptLogprob(output.ids[i]));
}

TEST(EngineServer, AnAbortedRequestEndsAsCancelledAndItsSlotIsFree) {
  ScriptOptions script = CountingScript();
  script.step_time = milliseconds(1);
  RunningServer server(script);
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  frontend.Add(CountingRequest(3, 7, 0, 100'000));
  ASSERT_NE(frontend.Receive(), nullptr);
  frontend.Abort({3, 7});
  frontend.Abort({3, 7});   // again
  frontend.Abort({3, 6});   // an old one
  frontend.Abort({99, 0});  // of nobody
  frontend.outputs.clear();
  for (const auto* frame = frontend.Receive(); frame != nullptr; frame = frontend.Receive()) {
    ASSERT_EQ(frame->head.type, FrameType::kOutput);
    ASSERT_EQ(frame->rows.size(), 1u);
    if (frame->rows[0].end == GenerationEnd::kNone) continue;
    EXPECT_EQ(frame->rows[0].end, GenerationEnd::kCancelled);
    break;
  }
  frontend.Add(CountingRequest(3, 8, 1, 2));
  EXPECT_EQ(frontend.Collect(1), std::nullopt);
  EXPECT_EQ((frontend.outputs[{3, 8}].ids), Counted(1, 2));
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().stale_aborts >= 2; }));
}

TEST(EngineServer, ARequestThatCannotBeTakenIsRejectedAndTheLinkGoesOn) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  EngineRequest bad = CountingRequest(0, 0, 0, 5);
  bad.params.top_p = 1.5f;
  frontend.Add(bad);
  bad = CountingRequest(1, 0, 0, 5);
  bad.prompt = {1'000'000};
  frontend.Add(bad);
  frontend.Add(CountingRequest(2, 0, 0, 5));
  EXPECT_EQ(frontend.Collect(3), std::nullopt);
  EXPECT_EQ((frontend.outputs[{0, 0}].end), GenerationEnd::kRejected);
  EXPECT_NE((frontend.outputs[{0, 0}].message.find("top_p")), std::string::npos);
  EXPECT_EQ((frontend.outputs[{0, 0}].code), ErrorCode::kInvalidValue);
  EXPECT_EQ((frontend.outputs[{0, 0}].parameter), "top_p");
  EXPECT_EQ((frontend.outputs[{1, 0}].parameter), "prompt");
  EXPECT_EQ((frontend.outputs[{1, 0}].end), GenerationEnd::kRejected);
  EXPECT_EQ((frontend.outputs[{2, 0}].ids), Counted(0, 5));
}

TEST(EngineServer, WithoutCreditsTheStepsGoOnAndNothingIsLost) {
  RunningServer server;
  RawFrontend slow(server.endpoint());
  RawFrontend quick(server.endpoint());
  slow.Connect(3);
  quick.Connect(100'000);
  for (int32_t slot = 0; slot < 8; ++slot) slow.Add(CountingRequest(slot, 0, slot, 3000));
  quick.Add(CountingRequest(0, 0, 0, 3000));
  EXPECT_EQ(quick.Collect(1), std::nullopt) << "whatever the other one takes";
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().ended == 9; }));
  for (int i = 0; i < 3; ++i) slow.Take(slow.Expect(FrameType::kOutput));
  EXPECT_TRUE(slow.HearsNothing());
  ASSERT_TRUE(RunningServer::Becomes([&] {
    return server->link_counters().held_tokens + server->link_counters().tokens_out == 9 * 3000;
  }));
  slow.Say(FrameType::kPing);  // costs nothing
  slow.Expect(FrameType::kPong);

  slow.Grant(1);
  EXPECT_EQ(slow.Take(slow.Expect(FrameType::kOutput)), 8) << "all that was held, in one message";
  for (int32_t slot = 0; slot < 8; ++slot) {
    EXPECT_EQ((slow.outputs[{slot, 0}].ids), Counted(slot, 3000));
    EXPECT_EQ((slow.outputs[{slot, 0}].end), GenerationEnd::kLength);
  }
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().held_tokens == 0; }));
}

// A frontend takes no frame of 256 MiB, and should not have to wait for one of 100.
TEST(EngineServer, WhatWasHeldComesInFramesOfAMebibyteAndCostsACreditEach) {
  std::atomic<size_t> largest{0};
  EngineServerOptions options{.listen = LocalEndpoint()};
  options.on_frame = [&](std::string& frame, const std::function<void(std::string_view)>& send) {
    if (frame.size() > largest) largest = frame.size();
    send(frame);
  };
  RunningServer server(CountingScript(), options);
  RawFrontend frontend(server.endpoint());
  frontend.Connect(0);
  constexpr int64_t kTokens = 30'000;  // of 17 bytes
  for (int32_t slot = 0; slot < 8; ++slot) {
    EngineRequest request = CountingRequest(slot, 0, slot, kTokens);
    request.params.logprobs = 0;
    frontend.Add(request);
  }
  ASSERT_TRUE(
      RunningServer::Becomes([&] { return server->link_counters().held_tokens == 8 * kTokens; }));
  int64_t ended = 0;
  int frames = 0;
  for (; ended < 8 && frames < 20; ++frames) {
    frontend.Grant(1);
    ended += frontend.Take(frontend.Expect(FrameType::kOutput));
    EXPECT_TRUE(frontend.HearsNothing(milliseconds(5)));
  }
  EXPECT_GE(frames, 4);
  EXPECT_LE(largest, size_t{1} << 20);
  for (int32_t slot = 0; slot < 8; ++slot) {
    EXPECT_EQ((frontend.outputs[{slot, 0}].ids), Counted(slot, kTokens));
    EXPECT_EQ((frontend.outputs[{slot, 0}].logprobs.size()), size_t{kTokens});
  }
  EXPECT_EQ(server->link_counters().held_tokens, 0);
}

TEST(EngineServer, ASlotIsTakenUntilItsEndHasBeenSent) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect(0);
  frontend.Add(CountingRequest(0, 0, 0, 2));
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->link_counters().held_tokens == 2; }));
  frontend.Add(CountingRequest(0, 1, 0, 2));
  EXPECT_EQ(frontend.Expect(FrameType::kReset).reason, "slot 0 is taken");
}

TEST(EngineServer, WhoeverVanishesTakesItsRequestsAlong) {
  ScriptOptions script = CountingScript();
  script.step_time = std::chrono::microseconds(200);
  RunningServer server(script);
  RawFrontend other(server.endpoint());
  other.Connect();
  other.Add(CountingRequest(0, 0, 0, 1000));
  {
    RawFrontend frontend(server.endpoint());
    frontend.Connect();
    for (int32_t slot = 0; slot < 32; ++slot) frontend.Add(CountingRequest(slot, 0, 0, 1 << 20));
    ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running >= 32; }));
  }
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running <= 1; }));
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().clients == 1; }));
  EXPECT_EQ(other.Collect(1), std::nullopt);
  EXPECT_EQ((other.outputs[{0, 0}].ids), Counted(0, 1000));

  RawFrontend polite(server.endpoint());
  polite.Connect();
  polite.Add(CountingRequest(0, 0, 0, 1 << 20));
  polite.Say(FrameType::kBye);
  EXPECT_TRUE(RunningServer::Becomes([&] {
    return server->link_counters().clients == 1 && server->engine_counters().aborted == 33;
  }));
}

TEST(EngineServer, ManyComeAndGoOnTheSameDescriptors) {
  RunningServer server;
  for (int i = 0; i < 100; ++i) {
    RawFrontend frontend(server.endpoint());
    if (i % 3 == 0) {
      frontend.SayHello();  // and does not wait for the answer
      continue;
    }
    frontend.Connect();
    frontend.Add(CountingRequest(0, 0, 0, 1 + i % 2 * (1 << 20)));
    if (i % 2 == 0) frontend.Collect(1);
  }
  EXPECT_TRUE(RunningServer::Becomes([&] {
    return server->link_counters().clients == 0 && server->engine_counters().running == 0;
  }));
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
}

TEST(EngineServer, WhoNeverSaidHelloIsToldOnce) {
  RunningServer server;
  RawFrontend stranger(server.endpoint());
  for (int i = 0; i < 10; ++i) stranger.Add(CountingRequest(0, 0, 0, 1));
  EXPECT_EQ(stranger.Expect(FrameType::kReset).reason, "no HELLO before it");
  EXPECT_TRUE(stranger.HearsNothing());
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().foreign_frames == 10; }));
  stranger.Connect();
}

TEST(EngineServer, HelloAgainEndsTheRequestsOfTheFirst) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect(0);
  frontend.Add(CountingRequest(0, 0, 0, 1 << 20));
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running == 1; }));
  frontend.Connect(1000);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().aborted == 1; }));
  frontend.Add(CountingRequest(0, 0, 3, 4));
  EXPECT_EQ(frontend.Collect(1), std::nullopt);
  EXPECT_EQ((frontend.outputs[{0, 0}].ids), Counted(3, 4));
  EXPECT_TRUE(RunningServer::Becomes([&] {
    return server->link_counters().clients == 1 && server->link_counters().clients_seen == 2;
  }));
}

TEST(EngineServer, ThereIsRoomForSoManyFrontends) {
  RunningServer server;
  std::vector<std::unique_ptr<RawFrontend>> frontends;
  for (int i = 0; i < 4; ++i) {
    frontends.push_back(std::make_unique<RawFrontend>(server.endpoint()));
    frontends.back()->Connect();
  }
  RawFrontend late(server.endpoint());
  late.SayHello();
  EXPECT_EQ(late.Expect(FrameType::kReset).reason, "no room for more than 4 frontends");
  frontends.pop_back();
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->link_counters().clients == 3; }));
  late.Connect();
}

TEST(EngineServer, AStopEndsEveryRequestAndTellsEveryFrontend) {
  ScriptOptions script = CountingScript();
  script.step_time = milliseconds(1);
  RunningServer server(script);
  RawFrontend frontend(server.endpoint());
  RawFrontend without_credits(server.endpoint());
  frontend.Connect(100'000);
  without_credits.Connect(0);
  for (RawFrontend* one : {&frontend, &without_credits}) {
    one->Add(CountingRequest(0, 0, 0, 1 << 20));
    one->Add(CountingRequest(1, 0, 0, 1 << 20));
  }
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running == 4; }));
  EXPECT_EQ(server.Stop(), nullptr);
  for (RawFrontend* one : {&frontend, &without_credits}) {
    EXPECT_EQ(one->Collect(2), std::nullopt);
    EXPECT_EQ((one->outputs[{0, 0}].end), GenerationEnd::kEngineLost);
    EXPECT_EQ(one->Expect(FrameType::kDead).reason, "the engine was stopped");
    one->ExpectAllNumbers();
  }
  // Who comes now learns it at once.
  RawFrontend late(server.endpoint());
  late.SayHello();
  late.Expect(FrameType::kDead);
}

TEST(EngineServer, WhatTheRunnerThrowsIsToldAndThrownAgain) {
  ScriptOptions script = CountingScript();
  script.before_step = [](int64_t step) {
    if (step == 20) throw std::runtime_error("the device is gone");
  };
  RunningServer server(script);
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  frontend.Add(CountingRequest(0, 0, 0, 1 << 20));
  EXPECT_EQ(frontend.Collect(1), std::nullopt);
  const auto& output = frontend.outputs[{0, 0}];
  EXPECT_EQ(output.end, GenerationEnd::kEngineLost);
  EXPECT_EQ(output.message, "the device is gone");
  EXPECT_EQ(output.ids, Counted(0, std::ssize(output.ids)));
  EXPECT_GE(output.ids.size(), 18u);
  EXPECT_EQ(frontend.Expect(FrameType::kDead).reason, "the device is gone");
  const std::exception_ptr thrown = server.Join();
  ASSERT_NE(thrown, nullptr);
  EXPECT_THROW(std::rethrow_exception(thrown), std::runtime_error);
}

TEST(EngineServer, AnEngineThatComesBackHasAnotherEpoch) {
  const std::string endpoint = LocalEndpoint();
  auto server =
      std::make_unique<RunningServer>(CountingScript(), EngineServerOptions{.listen = endpoint});
  RawFrontend frontend(endpoint);
  frontend.Connect();
  const uint64_t first = frontend.epoch();
  server->Stop();
  frontend.Expect(FrameType::kDead);
  server.reset();
  server =
      std::make_unique<RunningServer>(CountingScript(), EngineServerOptions{.listen = endpoint});
  frontend.Add(CountingRequest(0, 0, 0, 1));  // the socket has connected again by itself
  frontend.Expect(FrameType::kReset);
  frontend.Connect();
  EXPECT_NE(frontend.epoch(), first);
  frontend.Add(CountingRequest(0, 0, 0, 1));
  EXPECT_EQ(frontend.Collect(1), std::nullopt);
}

TEST(EngineServer, AHookMayDropAndRepeatFrames) {
  int frames = 0;
  EngineServerOptions options{.listen = LocalEndpoint()};
  options.on_frame = [&](std::string& frame, const std::function<void(std::string_view)>& send) {
    ++frames;
    if (frames == 2) return;
    send(frame);
    if (frames == 3) send(frame);
  };
  RunningServer server(CountingScript(), options);
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 4; ++i) frontend.Say(FrameType::kPing);
  for (int i = 0; i < 4; ++i) numbers.push_back(frontend.Expect(FrameType::kPong).head.number);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{2, 2, 3, 4}));
}

TEST(EngineServer, SaysWhyItCannotListen) {
  RunningServer first;
  ScriptRunner runner(CountingScript());
  Engine engine(runner, std::nullopt);
  for (const std::string& listen :
       {first.endpoint(), std::string("nonsense"), std::string("tcp://no.such.host.here:1"),
        std::string("ipc:///no/such/folder/socket")}) {
    try {
      EngineServer server(engine, {}, {.listen = listen});
      ADD_FAILURE() << listen;
    } catch (const Error& error) {
      EXPECT_EQ(error.parameter(), "listen");
      EXPECT_NE(error.value().find(listen), std::string::npos);
    }
  }
  EXPECT_THROW(EngineServer(engine, {}, {.max_frame_bytes = 0}), Error);
  EXPECT_THROW(EngineServer(engine, {}, {.client_timeout = milliseconds(0)}), Error);
}

}  // namespace
}  // namespace sluice::test
