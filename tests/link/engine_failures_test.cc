// An engine that hangs or whose own link fails, and a machine that has no descriptor left:
// frontends are told, and learn it in time.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <latch>
#include <stdexcept>

#include "sluice/client.hpp"
#include "tests/link/frontend/raw_frontend.h"
#include "tests/link/letters.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

using link::FrameType;
using std::chrono::milliseconds;

// A script whose step `number` does not end before it is allowed to.
struct HangingScript {
  explicit HangingScript(int64_t number) : script(CountingScript()) {
    script.before_step = [this, number](int64_t step) {
      if (step != number) return;
      hangs = true;
      may_go_on.wait();
    };
  }
  ScriptOptions script;
  std::atomic<bool> hangs{false};
  std::latch may_go_on{1};
};

TEST(EngineFailures, APingIsAnsweredByTheStepLoop) {
  HangingScript hanging(5);
  RunningServer server(hanging.script);
  RawFrontend frontend(server.endpoint());
  frontend.Connect(0);
  frontend.Say(FrameType::kPing);  // idle
  frontend.Expect(FrameType::kPong);
  frontend.Add(CountingRequest(0, 0, 0, 20));
  ASSERT_TRUE(RunningServer::Becomes([&] { return hanging.hangs.load(); }));
  frontend.Say(FrameType::kPing);
  EXPECT_TRUE(frontend.HearsNothing());
  hanging.may_go_on.count_down();
  frontend.Expect(FrameType::kPong);
}

TEST(EngineFailures, AnEngineWhoseStepHangsIsStalledUntilItGoesOn) {
  HangingScript hanging(5);
  RunningServer server(hanging.script);
  const auto client = ConnectClient(std::span(&server.endpoint(), 1), Letters(),
                                    {.stall_timeout = milliseconds(300)});
  client->Submit(Asks(1000));
  GenerationEnd end = GenerationEnd::kNone;
  std::string message;
  ASSERT_TRUE(RunningServer::Becomes([&] {
    for (const ClientOutput& output : client->Poll(milliseconds(10))) {
      end = output.end;
      message = output.message;
    }
    return end != GenerationEnd::kNone;
  }));
  EXPECT_EQ(end, GenerationEnd::kEngineLost);
  EXPECT_NE(message.find("300 ms"), std::string::npos) << message;
  EXPECT_EQ(client->health(), EngineHealth::kStalled);
  hanging.may_go_on.count_down();
  EXPECT_TRUE(RunningServer::Becomes([&] {
    client->Poll(milliseconds(10));
    return client->health() == EngineHealth::kReady;
  }));
  EXPECT_EQ(client->counters().resets, 0);
}

// The hook runs on the link's thread, and what it throws ends that.
TEST(EngineFailures, ALinkThatFailsTellsItsFrontendsAndEndsTheStepLoop) {
  std::atomic<bool> fails{false};
  EngineServerOptions options{.listen = LocalEndpoint()};
  options.on_frame = [&](std::string& frame, const std::function<void(std::string_view)>& send) {
    if (fails) throw std::runtime_error("the link is broken");
    send(frame);
  };
  RunningServer server(CountingScript(), options);
  RawFrontend idle(server.endpoint());
  idle.Connect();
  RawFrontend frontend(server.endpoint());
  frontend.Connect();
  fails = true;
  frontend.Add(CountingRequest(0, 0, 0, 20));
  EXPECT_EQ(frontend.Expect(FrameType::kDead).reason, "the link is broken");
  EXPECT_EQ(idle.Expect(FrameType::kDead).reason, "the link is broken");
  const std::exception_ptr thrown = server.Join();
  ASSERT_NE(thrown, nullptr);
  EXPECT_THROW(std::rethrow_exception(thrown), std::runtime_error);
}

// Where not even that can be said, connections close: a frontend's requests end.
TEST(EngineFailures, ALinkThatFailsClosesItsConnections) {
  std::atomic<bool> fails{false};
  EngineServerOptions options{.listen = LocalEndpoint()};
  options.on_frame = [&](std::string& frame, const std::function<void(std::string_view)>& send) {
    if (fails) throw 1;
    send(frame);
  };
  RunningServer server(CountingScript(), options);
  const auto client = ConnectClient(std::span(&server.endpoint(), 1), Letters());
  client->Submit(Asks(INT32_MAX / 2));
  client->Poll(milliseconds(1000));
  fails = true;
  EXPECT_TRUE(RunningServer::Becomes([&] {
    client->Poll(milliseconds(10));
    return client->live_requests() == 0 && client->health() == EngineHealth::kConnecting;
  }));
  EXPECT_NE(server.Join(), nullptr);
}

int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Of the process's descriptors; as it was at the end.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit fewer{.rlim_cur = most, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &fewer), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// A process that connects so often, and says nothing, until it is killed.
pid_t ConnectOften(const std::string& endpoint, int times) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = endpoint.substr(std::string("ipc://@").size());
  EXPECT_LT(name.size(), sizeof address.sun_path - 1);
  name.copy(address.sun_path + 1, name.size());  // behind a zero byte: no file
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(60);
  for (int i = 0; i < times; ++i) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    [[maybe_unused]] const int result =
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), size);
    ::usleep(1000);  // faster than anybody who means well
  }
  ::pause();
  ::_exit(0);
}

// They would take every descriptor, and with none left ZeroMQ aborts when it accepts a connection.
TEST(EngineFailures, WhoeverConnectsTooOftenTakesNoDescriptorThatIsNeeded) {
  const DescriptorLimit limit(300);
  RunningServer server;
  RawFrontend frontend(server.endpoint());
  frontend.Connect(100'000);
  const pid_t child = ConnectOften(server.endpoint(), 600);
  int status = 0;
  EXPECT_TRUE(RunningServer::Becomes([&] { return OpenDescriptors() > 90; }));
  frontend.Add(CountingRequest(0, 0, 0, 50'000));
  EXPECT_EQ(frontend.Collect(1), std::nullopt);
  EXPECT_LT(OpenDescriptors(), 200);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  // And others are welcome again.
  RawFrontend late(server.endpoint());
  late.Connect();
  EXPECT_EQ(frontend.outputs.size(), 1u);
}

}  // namespace
}  // namespace sluice::test
