// What a hostile, broken or vanishing frontend costs the others: nothing.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <vector>

#include "link/mailbox.h"
#include "sluice/engine_server.hpp"
#include "tests/link/frontend/raw_frontend.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

using link::FrameHead;
using link::FrameType;
using std::chrono::milliseconds;

// Five a second, in each that was begun.
int64_t MostLines(std::chrono::steady_clock::time_point begin) {
  const auto time = std::chrono::steady_clock::now() - begin;
  return 5 * (std::chrono::duration_cast<std::chrono::seconds>(time).count() + 2);
}

// Half of them run, half wait for a slot, and some have not been told of their first token.
TEST(HostileFrontends, AThousandRequestsWhoseFrontendsVanishTogetherAreAFewLines) {
  ScriptOptions script = CountingScript();
  script.max_requests = 500;
  script.step_time = std::chrono::milliseconds(1);
  RunningServer server(script, {.listen = LocalEndpoint()},
                       {.max_clients = 51, .max_client_requests = 20});
  RawFrontend other(server.endpoint());
  other.Connect();
  other.Add(CountingRequest(0, 0, 0, 300));
  std::deque<RawFrontend> frontends;
  for (int i = 0; i < 50; ++i) {
    frontends.emplace_back(server.endpoint()).Connect();
    for (int32_t slot = 0; slot < 20; ++slot) {
      frontends.back().Add(CountingRequest(slot, 0, slot, 1 << 20));
    }
  }
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().waiting >= 500; }));
  const auto lines_before = std::ssize(server.lines());
  const auto begin = std::chrono::steady_clock::now();
  frontends.clear();
  EXPECT_TRUE(RunningServer::Becomes([&] {
    const EngineCounters counters = server->engine_counters();
    return counters.running + counters.waiting <= 1 && counters.aborted == 1000;
  }));
  EXPECT_LE(std::ssize(server.lines()) - lines_before, MostLines(begin));
  EXPECT_EQ(other.Collect(1), std::nullopt);
  EXPECT_EQ((other.outputs[{0, 0}].ids), Counted(0, 300));
}

struct BadFrame {
  std::string what;
  std::function<void(RawFrontend&)> send;
  int64_t LinkCounters::* counter;
};

std::vector<BadFrame> BadFrames() {
  constexpr auto kMalformed = &LinkCounters::malformed_frames;
  constexpr auto kForeign = &LinkCounters::foreign_frames;
  constexpr auto kBad = &LinkCounters::bad_requests;
  const auto bytes = [](std::string frame) {
    return [frame](RawFrontend& frontend) { frontend.SendBytes(frame); };
  };
  return {
      {"nothing", bytes(""), kMalformed},
      {"garbage", bytes("GET / HTTP/1.1\r\n\r\n"), kMalformed},
      {"an unknown type", bytes(std::string("\x63\x92\x00\x00", 4)), kMalformed},
      {"a frame of an engine", bytes(std::string("\x13\x92\x00\x00", 4)), kMalformed},
      {"a length of 4 GiB", bytes(std::string("\x03\x93\x00\x00\xdd\xff\xff\xff\xff", 9)),
       kMalformed},
      {"a truncated request",
       [](RawFrontend& frontend) {
         std::string frame;
         link::WriteAdd(frontend.Head(FrameType::kAdd), CountingRequest(0, 0, 0, 1), frame);
         frontend.SendBytes(std::string_view(frame).substr(0, frame.size() / 2));
       },
       kMalformed},
      {"several parts", [](RawFrontend& frontend) { frontend.SendParts({"a", "b", "c"}); },
       kMalformed},
      {"another epoch",
       [](RawFrontend& frontend) {
         frontend.set_epoch(frontend.epoch() + 2);
         frontend.Add(CountingRequest(0, 0, 0, 1));
       },
       kForeign},
      {"a frame that is missing",
       [](RawFrontend& frontend) {
         frontend.Head(FrameType::kAdd);
         frontend.Add(CountingRequest(0, 0, 0, 1));
       },
       kForeign},
      {"another protocol",
       [](RawFrontend& frontend) {
         frontend.SendBytes(std::string("\x01\x94\x00\x00\x63\x00", 6));
       },
       kForeign},
      {"a slot outside the table",
       [](RawFrontend& frontend) { frontend.Add(CountingRequest(64, 0, 0, 1)); }, kBad},
      {"a negative slot", [](RawFrontend& frontend) { frontend.Add(CountingRequest(-1, 0, 0, 1)); },
       kBad},
      {"a slot that is taken",
       [](RawFrontend& frontend) {
         frontend.Add(CountingRequest(0, 0, 0, 1 << 20));
         frontend.Add(CountingRequest(0, 1, 0, 1));
       },
       kBad},
  };
}

TEST(HostileFrontends, ABadFrameResetsItsOwnLinkAlone) {
  ScriptOptions script = CountingScript();
  script.step_time = std::chrono::microseconds(500);
  RunningServer server(script);
  RawFrontend good(server.endpoint());
  good.Connect(100'000);
  good.Add(CountingRequest(0, 0, 0, 1000));
  for (const BadFrame& bad : BadFrames()) {
    SCOPED_TRACE(bad.what);
    const LinkCounters before = server->link_counters();
    RawFrontend frontend(server.endpoint());
    frontend.Connect();
    frontend.Add(CountingRequest(1, 0, 0, 1 << 20));
    bad.send(frontend);
    const auto head = frontend.Collect(1000);
    ASSERT_TRUE(head.has_value());
    EXPECT_EQ(head->type, FrameType::kReset);
    // What follows is dropped, without another word.
    frontend.Add(CountingRequest(2, 0, 0, 1));
    frontend.SendBytes("more garbage");
    EXPECT_TRUE(frontend.HearsNothing(milliseconds(20)));
    EXPECT_TRUE(RunningServer::Becomes([&] {
      const LinkCounters after = server->link_counters();
      return after.resets == before.resets + 1 && after.clients == 1 &&
             after.*bad.counter >= before.*bad.counter + 1;
    }));
    // And it may begin again.
    frontend.outputs.clear();
    frontend.Connect();
    frontend.Add(CountingRequest(1, 1, 5, 3));
    EXPECT_EQ(frontend.Collect(1), std::nullopt);
    EXPECT_EQ((frontend.outputs[{1, 1}].ids), Counted(5, 3));
  }
  EXPECT_EQ(good.Collect(1), std::nullopt);
  EXPECT_EQ((good.outputs[{0, 0}].ids), Counted(0, 1000));
  good.ExpectAllNumbers();
}

TEST(HostileFrontends, AFrameThatIsTooLargeClosesItsConnectionAlone) {
  RunningServer server(CountingScript(), {.listen = LocalEndpoint(), .max_frame_bytes = 1000});
  RawFrontend good(server.endpoint());
  good.Connect();
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  frontend.Add(CountingRequest(0, 0, 0, 1 << 20));
  frontend.SendBytes(std::string(1001, 'x'));
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().clients == 1; }));
  good.Add(CountingRequest(0, 0, 0, 3));
  EXPECT_EQ(good.Collect(1), std::nullopt);
}

// Greetings of ZMTP 1 and 2, each with a message behind it.
TEST(HostileFrontends, APeerOfAnOldProtocolIsNotHeardAndHarmsNobody) {
  RunningServer server(CountingScript(), {.listen = "tcp://127.0.0.1:*"});
  RawFrontend other(server.endpoint());
  other.Connect();
  const std::string port = server.endpoint().substr(server.endpoint().rfind(':') + 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const std::string& greeting :
       {std::string("\x01\0\x02\0A", 5), std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0\0\x01"
                                                     "A",
                                                     17)}) {
    const int peer = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(write(peer, greeting.data(), greeting.size()), static_cast<ssize_t>(greeting.size()));
    const auto generation = static_cast<uint32_t>(greeting.size());
    other.Add(CountingRequest(0, generation, 0, 50));
    EXPECT_EQ(other.Collect(1), std::nullopt);
    EXPECT_EQ((other.outputs[{0, generation}].ids), Counted(0, 50));
    close(peer);
  }
  EXPECT_EQ(server->link_counters().clients, 1);
}

// Nothing tells the connections of such a one apart.
TEST(HostileFrontends, WhoChoosesItsAddressIsNotHeard) {
  RunningServer server;
  RawFrontend other(server.endpoint());
  other.Connect();
  zmq::context_t context;
  int64_t frames = 1;  // the other one's HELLO
  for (const std::string& chosen : {std::string("X3"), std::string("X4")}) {
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, chosen);
    socket.connect(server.endpoint());
    std::string frame;
    link::WriteHello({FrameType::kHello, 0, 0}, {.name = "chosen", .credits = 10}, frame);
    socket.send(zmq::const_buffer(frame.data(), frame.size()), zmq::send_flags::none);
    ++frames;
    EXPECT_TRUE(
        RunningServer::Becomes([&] { return server->link_counters().frames_in == frames; }));
  }
  other.Add(CountingRequest(0, 0, 0, 50));
  EXPECT_EQ(other.Collect(1), std::nullopt);
  EXPECT_EQ((other.outputs[{0, 0}].ids), Counted(0, 50));
  EXPECT_EQ(server->link_counters().clients_seen, 1);
}

TEST(HostileFrontends, AnAbortOfMoreThanThereAreSlotsResetsItsLink) {
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  std::vector<RequestAddress> all(65);
  std::string frame;
  link::WriteAbort(frontend.Head(FrameType::kAbort), all, frame);
  frontend.SendBytes(frame);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().resets == 1; }));
}

// However many wait, the step loop takes a few between two steps, and the link is told to wait.
TEST(HostileFrontends, CommandsComeAFewAtATimeInTheirOrder) {
  using link::Mailbox;
  Mailbox mailbox;
  uint64_t posted = 0;
  while (!mailbox.IsFull()) {
    mailbox.Post({.kind = link::Command::Kind::kGo, .link = {0, posted++}});
    ASSERT_LE(posted, 100'000u);
  }
  EXPECT_EQ(posted, Mailbox::kMostCommands);
  uint64_t taken = 0;
  std::vector<link::Command> commands;
  for (mailbox.Take(commands, {}, false); !commands.empty(); mailbox.Take(commands, {}, false)) {
    EXPECT_LE(commands.size(), 256u);
    for (const link::Command& command : commands)
      EXPECT_EQ(command.link, (link::LinkId{0, taken++}));
  }
  EXPECT_EQ(taken, posted);
}

TEST(HostileFrontends, AFloodOfHellosAndPingsStopsNoSteps) {
  ScriptOptions script = CountingScript();
  script.step_time = std::chrono::microseconds(100);
  RunningServer server(script, {.listen = LocalEndpoint()},
                       {.max_clients = 4, .max_client_requests = 4096});
  RawFrontend other(server.endpoint());
  other.Connect();
  RawFrontend flood(server.endpoint());
  for (int i = 0; i < 20'000; ++i) flood.SayHello(1);
  for (int i = 0; i < 20'000; ++i) flood.Say(FrameType::kPing);
  other.Add(CountingRequest(0, 0, 0, 500));
  EXPECT_EQ(other.Collect(1), std::nullopt);
  EXPECT_EQ((other.outputs[{0, 0}].ids), Counted(0, 500));
}

TEST(HostileFrontends, AFloodOfGarbageIsAFewLines) {
  RunningServer server;
  std::vector<std::unique_ptr<RawFrontend>> frontends;
  for (int i = 0; i < 4; ++i) {
    frontends.push_back(std::make_unique<RawFrontend>(server.endpoint()));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) {
    RawFrontend& frontend = *frontends[static_cast<size_t>(i % 4)];
    frontend.SayHello();
    frontend.SendBytes("garbage");
  }
  EXPECT_TRUE(
      RunningServer::Becomes([&] { return server->link_counters().malformed_frames == 1000; }));
  EXPECT_TRUE(RunningServer::Becomes([&] {
    const auto lines = server.lines();
    return !lines.empty() && lines.back().starts_with("and ");
  }));
  EXPECT_LE(std::ssize(server.lines()), MostLines(begin));
}

}  // namespace
}  // namespace sluice::test
