// Frontends that are killed or stopped: processes of their own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "tests/link/frontend/raw_frontend.h"
#include "tests/link/running_server.h"

namespace sluice::test {
namespace {

using link::FrameType;
using std::chrono::milliseconds;

// A process that is told an endpoint and then does its work. It is forked before this one has
// threads.
class FrontendProcess {
 public:
  // `work` gives the exit status.
  explicit FrontendProcess(const std::function<int(const std::string& endpoint)>& work) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      std::string endpoint(1000, '\0');
      const ssize_t size = ::read(ends[0], endpoint.data(), endpoint.size());
      if (size <= 0) ::_exit(99);
      endpoint.resize(static_cast<size_t>(size));
      ::_exit(work(endpoint));
    }
    ::close(ends[0]);
    to_child_ = ends[1];
  }
  ~FrontendProcess() {
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(to_child_);
  }

  void Start(const std::string& endpoint) {
    EXPECT_EQ(::write(to_child_, endpoint.data(), endpoint.size()), std::ssize(endpoint));
  }
  void Signal(int signal) { ::kill(pid_, signal); }
  int ExitStatus() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int to_child_ = -1;
};

int AddEndlessRequests(const std::string& endpoint) {
  RawFrontend frontend(endpoint);
  frontend.Connect(100);
  for (int32_t slot = 0; slot < 32; ++slot) frontend.Add(CountingRequest(slot, 0, 0, 1 << 20));
  ::pause();
  return 0;
}

ScriptOptions SlowScript() {
  ScriptOptions script = CountingScript();
  script.step_time = milliseconds(1);
  return script;
}

TEST(FrontendFaults, OfAKilledFrontendNoRequestRunsOn) {
  FrontendProcess process(AddEndlessRequests);
  // The time-out is not what ends them.
  RunningServer server(SlowScript(),
                       {.listen = LocalEndpoint(), .client_timeout = std::chrono::minutes(10)});
  process.Start(server.endpoint());
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running == 32; }));
  process.Signal(SIGKILL);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running == 0; }));
  EXPECT_EQ(server->engine_counters().aborted, 32);
  EXPECT_TRUE(RunningServer::Becomes([&] { return server->link_counters().clients == 0; }));
}

TEST(FrontendFaults, AStoppedFrontendFindsEverythingWhenItGoesOn) {
  constexpr int64_t kTokens = 4000;
  FrontendProcess process([](const std::string& endpoint) {
    RawFrontend frontend(endpoint);
    frontend.Connect(8);
    for (int32_t slot = 0; slot < 4; ++slot) frontend.Add(CountingRequest(slot, 0, slot, kTokens));
    for (int64_t ended = 0; ended < 4;) {
      const link::EngineFrame* const frame = frontend.Receive();
      if (frame == nullptr || frame->head.type != FrameType::kOutput) return 1;
      ended += frontend.Take(*frame);
      frontend.Grant(1);
    }
    for (int32_t slot = 0; slot < 4; ++slot) {
      if (frontend.outputs[{slot, 0}].ids != Counted(slot, kTokens)) return 2;
    }
    return testing::Test::HasFailure() ? 3 : 0;
  });
  ScriptOptions script = CountingScript();
  script.step_time = std::chrono::microseconds(200);
  RunningServer server(script);
  process.Start(server.endpoint());
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().tokens > 100; }));
  process.Signal(SIGSTOP);
  RawFrontend other(server.endpoint());
  other.Connect(100'000);
  other.Add(CountingRequest(0, 0, 0, 1000));
  EXPECT_EQ(other.Collect(1), std::nullopt);
  ASSERT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().ended == 5; }))
      << "the steps go on";
  EXPECT_EQ(server->link_counters().clients, 2) << "and it is not given up";
  EXPECT_GT(server->link_counters().held_tokens, 0);
  EXPECT_LE(server->link_counters().held_tokens, 4 * kTokens);
  process.Signal(SIGCONT);
  EXPECT_EQ(process.ExitStatus(), 0);
}

TEST(FrontendFaults, AFrontendThatIsSilentForTooLongIsGone) {
  constexpr milliseconds kTimeout{2000};
  // The socket of a frontend answers, whatever the frontend does. On a machine that does other
  // things it may be late by the time-out; then the next one is looked at.
  bool has_stayed = false;
  for (int attempt = 0; attempt < 10 && !has_stayed; ++attempt) {
    FrontendProcess process(AddEndlessRequests);
    RunningServer server(SlowScript(), {.listen = LocalEndpoint(), .client_timeout = kTimeout});
    process.Start(server.endpoint());
    if (!RunningServer::Becomes([&] { return server->engine_counters().running == 32; })) continue;
    std::this_thread::sleep_for(kTimeout * 5 / 4);
    has_stayed = server->engine_counters().running == 32;
    process.Signal(SIGSTOP);
    EXPECT_TRUE(RunningServer::Becomes([&] { return server->engine_counters().running == 0; }));
  }
  EXPECT_TRUE(has_stayed);
}

}  // namespace
}  // namespace sluice::test
