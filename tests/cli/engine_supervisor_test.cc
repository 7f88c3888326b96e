// A child that ends is started again, at once, then ever later, and never after a stop.
#include "cli/engine/engine_supervisor.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "sluice/error.hpp"

// The linker puts this before the library's (--wrap).
static std::atomic<bool> has_threads = true;
extern "C" int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
extern "C" int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                     void* (*begin)(void*), void* argument) {
  return has_threads ? __real_pthread_create(thread, attributes, begin, argument) : EAGAIN;
}

namespace sluice::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What was logged, to be waited for.
class Lines {
 public:
  std::function<void(std::string_view)> log() {
    return [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
      changed_.notify_all();
    };
  }
  // The first of them, within a minute.
  std::vector<std::string> First(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return lines_.size() >= count; }));
    std::vector<std::string> first = lines_;
    first.resize(count);
    return first;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// A folder of this test's own: what its engine remembers from start to start.
class Supervised : public testing::Test {
 protected:
  Supervised()
      : folder_(std::filesystem::path(testing::TempDir()) /
                (std::string("sluice_supervisor_") +
                 testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
                 std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Supervised() override { std::filesystem::remove_all(folder_); }

  // `script` runs after a line in the file `starts`.
  EngineSupervisorOptions Options(const std::string& script) {
    EngineSupervisorOptions options;
    options.command = {"/bin/sh", "-c", "cd \"$0\"; echo x >> starts; " + script, folder_.string()};
    options.delay = milliseconds(100);
    options.longest_delay = milliseconds(200);
    options.log = lines_.log();
    return options;
  }
  int Starts() const {
    std::ifstream file(folder_ / "starts");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  Lines lines_;
  std::filesystem::path folder_;
};

constexpr const char* kListen = "echo listening on ipc://here; ";

TEST_F(Supervised, IsStartedAgainAtOnceWhenItWasKilled) {
  EngineSupervisor engine(Options(std::string(kListen) + "exec sleep 100"), {});
  EXPECT_EQ(engine.endpoint(), "ipc://here");
  const int first = engine.pid();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const std::vector<std::string> lines = lines_.First(2);
  EXPECT_EQ(lines[0], "the engine ended (signal 9 (Killed)); it is started again");
  EXPECT_EQ(lines[1].find("the engine is there again, after "), 0u) << lines[1];
  EXPECT_NE(engine.pid(), first);
  EXPECT_EQ(::kill(engine.pid(), 0), 0);
  EXPECT_EQ(engine.restarts(), 1);
}

TEST_F(Supervised, IsStartedLaterAndLaterWhileItEndsAtOnce) {
  EngineSupervisor engine(Options(std::string(kListen) + "exit 3"), {});
  std::vector<std::string> ends;
  for (const std::string& line : lines_.First(9)) {
    if (line.find("the engine ended") == 0) ends.push_back(line);
  }
  const std::string again = "the engine ended (exit status 3); it is started again";
  ASSERT_GE(ends.size(), 4u);
  EXPECT_EQ(ends[0], again);
  EXPECT_EQ(ends[1], again + " in 0.1 s");
  EXPECT_EQ(ends[2], again + " in 0.2 s");
  EXPECT_EQ(ends[3], again + " in 0.2 s");
}

TEST_F(Supervised, IsStartedAtOnceBehindOneThatLivedLong) {
  EngineSupervisorOptions options = Options(std::string(kListen) + "exit 3");
  options.settled = milliseconds(0);
  EngineSupervisor engine(options, {});
  for (const std::string& line : lines_.First(8)) {
    EXPECT_EQ(line.find(" in "), std::string::npos) << line;
  }
}

TEST_F(Supervised, GoesOnWhereAStartFails) {
  EngineSupervisor engine(Options(R"(case $(wc -l < starts) in 2|3) exit 1;; esac; )" +
                                  std::string(kListen) + "exec sleep 100"),
                          {});
  ::kill(engine.pid(), SIGKILL);
  const std::vector<std::string> lines = lines_.First(4);
  EXPECT_EQ(lines[0], "the engine ended (signal 9 (Killed)); it is started again");
  EXPECT_EQ(lines[1], "the engine did not start; it is started again in 0.1 s");
  EXPECT_EQ(lines[2], "the engine did not start; it is started again in 0.2 s");
  EXPECT_EQ(lines[3].find("the engine is there again"), 0u) << lines[3];
  EXPECT_EQ(Starts(), 4);
  EXPECT_EQ(engine.restarts(), 1);
}

// No Error, whose words are out already, and no reason to give up either.
TEST_F(Supervised, SaysWhatThisProcessHasNotToStartItWithAndGoesOn) {
  has_threads = false;
  try {
    std::thread([] {}).join();
    has_threads = true;
    GTEST_SKIP() << "threads are made inside a library";
  } catch (const std::system_error&) {
    has_threads = true;
  }
  EngineSupervisor engine(Options(std::string(kListen) + "exec sleep 100"), {});
  has_threads = false;
  ::kill(engine.pid(), SIGKILL);
  const std::vector<std::string> lines = lines_.First(5);
  has_threads = true;
  EXPECT_EQ(lines[1], "Resource temporarily unavailable");
  EXPECT_EQ(lines[2], "the engine did not start; it is started again in 0.1 s");
  EXPECT_EQ(lines[3], lines[1]);
  EXPECT_EQ(lines[4], "the engine did not start; it is started again in 0.2 s");
  for (size_t count = 6; engine.restarts() == 0; ++count) lines_.First(count);
  EXPECT_EQ(::kill(engine.pid(), 0), 0);
}

TEST_F(Supervised, EndsWithItsOwner) {
  int pid = -1;
  {
    EngineSupervisor engine(Options(std::string(kListen) + "exec sleep 100"), {});
    pid = engine.pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(Starts(), 1);
  EXPECT_EQ(lines_.size(), 0u);
}

TEST_F(Supervised, EndsAlsoWhileItWaitsAndWhileItStarts) {
  {
    EngineSupervisorOptions options = Options(std::string(kListen) + "exit 3");
    options.delay = std::chrono::hours(1);
    options.longest_delay = std::chrono::hours(1);
    EngineSupervisor engine(options, {});
    EXPECT_EQ(lines_.First(3)[2],
              "the engine ended (exit status 3); it is started again in 3600 s");
  }
  EngineSupervisor engine(Options(R"(case $(wc -l < starts) in 4) exec sleep 100;; esac; )" +
                                  std::string(kListen) + "exec sleep 100"),
                          {});
  ::kill(engine.pid(), SIGKILL);
  lines_.First(4);
}

TEST_F(Supervised, IsNotWaitedForWhenAStopComes) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(EngineSupervisor(Options("exec sleep 100"), stop.get_token()), Error);
}

}  // namespace
}  // namespace sluice::cli
