// An engine of vLLM as a child: what it says, how it ends, and how often it is started again.
#include "cli/vllm/vllm_engine.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/vllm/held_port.h"

namespace sluice::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

class VllmEngineTest : public ::testing::Test {
 protected:
  // A shell's script as the engine.
  VllmEngine& Start(const std::string& script, VllmEngineOptions options = {}) {
    options.command = {"/bin/sh", "-c", script};
    options.on_line = [this](std::string_view line) { Add(lines_, line); };
    options.log = [this](std::string_view line) { Add(log_, line); };
    options.on_given_up = [this] { Add(log_, "given up"); };
    return engine_.emplace(std::move(options));
  }
  void Add(std::vector<std::string>& list, std::string_view line) {
    const std::lock_guard lock(mutex_);
    list.emplace_back(line);
    changed_.notify_all();
  }
  // The first `count` of them.
  std::vector<std::string> First(std::vector<std::string>& list, size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, minutes(2), [&] { return list.size() >= count; }));
    std::vector<std::string> first = list;
    first.resize(count);
    return first;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::vector<std::string> log_;
  std::optional<VllmEngine> engine_;
};

TEST_F(VllmEngineTest, LinesOfBothPipesAreGivenWithoutWhatProgressBarsDrawOver) {
  Start("printf 'a\\nhalf 1\\rhalf 2\\r'; printf 'done\\n\\nb'; echo c >&2; sleep 600");
  const std::vector<std::string> lines = First(lines_, 3);
  std::string all;
  for (const std::string& line : lines) all += line + "|";
  EXPECT_NE(all.find("a|"), std::string::npos) << all;
  EXPECT_NE(all.find("done|"), std::string::npos) << all;
  EXPECT_NE(all.find("c|"), std::string::npos) << all;
  EXPECT_EQ(all.find("half"), std::string::npos) << all;
}

TEST_F(VllmEngineTest, AnEndBeforeItIsReadyIsFinal) {
  VllmEngine& engine = Start("echo last words; exit 3");
  EXPECT_EQ(First(log_, 1), std::vector<std::string>{"given up"});
  EXPECT_EQ(engine.Failure(), "exit status 3");
  EXPECT_EQ(engine.starts(), 1);
  EXPECT_EQ(First(lines_, 1), std::vector<std::string>{"last words"});
}

TEST_F(VllmEngineTest, AProgramThatDoesNotExistIsAFailureWithItsName) {
  VllmEngineOptions options;
  options.command = {"/no/such/program"};
  options.on_given_up = [this] { Add(log_, "given up"); };
  engine_.emplace(options);
  First(log_, 1);
  EXPECT_NE(engine_->Failure().find("/no/such/program"), std::string::npos) << engine_->Failure();
}

TEST_F(VllmEngineTest, ItIsStartedAgainForABoundedNumberOfTimes) {
  VllmEngineOptions options;
  options.delay = milliseconds(1);
  options.most_ends = 3;
  VllmEngine& engine = Start("read line < /dev/null; sleep 0.2; exit 7", options);
  engine.SetReady();
  const std::vector<std::string> log = First(log_, 3);
  EXPECT_EQ(log[0], "the engine of vLLM ended (exit status 7); it is started again");
  EXPECT_EQ(log[2], "given up");
  EXPECT_EQ(engine.starts(), 3);
  EXPECT_EQ(engine.Failure(), "exit status 7, after 2 restarts");
}

TEST_F(VllmEngineTest, ALifeThatAnsweredForLongBeginsTheCountAgain) {
  VllmEngineOptions options;
  options.delay = options.longest_delay = milliseconds(1);
  options.settled = milliseconds(0);  // every life that answers is long
  options.most_ends = 2;
  const std::string go = testing::TempDir() + "/vllm_engine_go_" + std::to_string(::getpid());
  VllmEngine& engine =
      Start("echo up; while [ ! -e " + go + ".$$ ]; do sleep 0.02; done; exit 7", options);
  for (size_t life = 1; life <= 4; ++life) {
    First(lines_, life);
    engine.SetReady();
    const std::string file = go + "." + std::to_string(engine.pid());
    std::ofstream(file).put('1');
    EXPECT_EQ(First(log_, life)[life - 1],
              "the engine of vLLM ended (exit status 7); it is started again");
    First(lines_, life + 1);  // it has seen the file
    std::filesystem::remove(file);
  }
  EXPECT_EQ(engine.Failure(), "");
}

TEST_F(VllmEngineTest, ALongLoadThatFailsIsNoLife) {
  VllmEngineOptions options;
  options.delay = options.longest_delay = milliseconds(1);
  options.settled = milliseconds(0);  // any time at all
  options.most_ends = 3;
  // Each process loads for longer than that, and only the first one answers.
  VllmEngine& engine = Start("echo up; read line < /dev/null; sleep 0.1; exit 7", options);
  engine.SetReady();
  EXPECT_EQ(First(log_, 3)[2], "given up");
  EXPECT_EQ(engine.starts(), 3);
}

TEST(HeldPortTest, OnlyASocketThatReusesAddressesGetsIt) {
  const HeldPort held("127.0.0.1");
  const auto listens = [&held](bool reuses) {
    const link::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(held.number());
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const int value = reuses ? 1 : 0;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
    return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           ::listen(socket.get(), 1) == 0;
  };
  EXPECT_FALSE(listens(false));
  EXPECT_TRUE(listens(true));
  EXPECT_NE(HeldPort("127.0.0.1").number(), held.number());
}

TEST_F(VllmEngineTest, TheEndLetsItsFirstProcessEndTheOthersAndKillsWhatIsLeft) {
  VllmEngineOptions options;
  options.mercy = minutes(5);
  // A child that ignores the signal, in a group with a first process that ends at it.
  Start(
      "trap 'echo ended; exit 0' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $!; "
      "while :; do sleep 0.05; done",
      options);
  const pid_t child = std::stoi(First(lines_, 1)[0]);
  engine_.reset();
  EXPECT_EQ(First(lines_, 2)[1], "ended");
  for (int i = 0; i < 6000 && ::kill(child, 0) == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));  // until its new parent has waited for it
  }
  EXPECT_EQ(::kill(child, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(VllmEngineTest, OneThatDoesNotEndIsKilled) {
  VllmEngineOptions options;
  options.mercy = milliseconds(10);
  VllmEngine& engine = Start("trap '' TERM; echo up; while :; do sleep 1; done", options);
  First(lines_, 1);
  const pid_t pid = engine.pid();
  engine_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(log_.size(), 0U);
}

}  // namespace
}  // namespace sluice::cli
