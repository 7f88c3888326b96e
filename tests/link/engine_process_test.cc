// A child that says where it listens, lives no longer than its parent, and does not end unseen.
#include "sluice/engine_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "sluice/error.hpp"

namespace sluice::test {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatience{60'000};  // with what must come

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

bool IsReadable(int fd, milliseconds timeout) {
  pollfd file{fd, POLLIN, 0};
  return ::poll(&file, 1, static_cast<int>(timeout.count())) == 1;
}

int PidFd(int pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

// What `act` does in a forked process: there, what hangs is a failure and not a test that hangs.
bool EndsWell(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const int pidfd = PidFd(child);
  const bool is_in_time = IsReadable(pidfd, kPatience);
  ::close(pidfd);
  if (!is_in_time) ::kill(child, SIGKILL);
  int status = -1;
  ::waitpid(child, &status, 0);
  return is_in_time && status == 0;
}

// What the constructor throws, with all its parts.
std::string Refusal(const std::vector<std::string>& command, milliseconds timeout = kPatience) {
  try {
    EngineProcess process(command, timeout);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    return error.what();
  }
  return "";
}

TEST(EngineProcess, TellsWhereItListens) {
  EngineProcess process(Shell("echo listening on ipc://@here; exec sleep 100"));
  EXPECT_EQ(process.endpoint(), "ipc://@here");
  EXPECT_EQ(process.Ended(), std::nullopt);
  EXPECT_FALSE(IsReadable(process.pidfd(), milliseconds(0)));
  EXPECT_EQ(::kill(process.pid(), 0), 0);
}

TEST(EngineProcess, IsNotWaitedForWhenAStopIsAskedFor) {
  std::stop_source stop;
  std::jthread asker([&] {
    std::this_thread::sleep_for(milliseconds(50));  // mostly in the middle of it; else before it
    stop.request_stop();
  });
  try {
    EngineProcess process(Shell("exec sleep 100"), milliseconds(90'000), stop.get_token());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.value().find("(it was stopped)"), std::string::npos) << error.value();
  }
}

TEST(EngineProcess, TakesTheLineInPiecesAndBehindOthers) {
  testing::internal::CaptureStderr();
  {
    EngineProcess process(
        Shell("echo loading; printf 'listening '; sleep 0.1; printf 'on tcp://x:1'; sleep 0.1; "
              "echo; echo done; exec sleep 100"));
    EXPECT_EQ(process.endpoint(), "tcp://x:1");
  }
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_NE(errors.find("loading\n"), std::string::npos);
  EXPECT_EQ(errors.find("listening"), std::string::npos);
}

TEST(EngineProcess, ItsEndIsSeenAtOnceAndSaysHow) {
  EngineProcess killed(Shell("echo listening on a; exec sleep 100"));
  ::kill(killed.pid(), SIGKILL);
  EXPECT_TRUE(IsReadable(killed.pidfd(), kPatience));
  EXPECT_EQ(killed.Ended(), "signal 9 (Killed)");
  EXPECT_EQ(killed.Ended(), "signal 9 (Killed)") << "and says it again";
  EngineProcess failed(Shell("echo listening on a; exit 3"));
  EXPECT_TRUE(IsReadable(failed.pidfd(), kPatience));
  EXPECT_EQ(failed.Ended(), "exit status 3");
}

TEST(EngineProcess, AnEarlyEndIsAnErrorWithItsLastWords) {
  testing::internal::CaptureStderr();
  const std::string why = Refusal(Shell("echo no such model >&2; exit 7"));
  EXPECT_NE(why.find("exit status 7"), std::string::npos) << why;
  EXPECT_NE(why.find("no such model"), std::string::npos) << why;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "no such model\n") << "passed on as well";
}

TEST(EngineProcess, OfManyWordsTheLastAreKept) {
  testing::internal::CaptureStderr();
  const std::string why =
      Refusal(Shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2; exit 1"));
  testing::internal::GetCapturedStderr();
  EXPECT_NE(why.find("line 19999"), std::string::npos);
  EXPECT_EQ(why.find("line 10000\n"), std::string::npos);
  EXPECT_LT(why.size(), 6000u);
}

TEST(EngineProcess, SilenceIsAnErrorInTimeAndLeavesNoProcess) {
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  const std::string why = Refusal(Shell("echo pid=$$. >&2; exec sleep 100"), milliseconds(2000));
  testing::internal::GetCapturedStderr();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_NE(why.find("in time"), std::string::npos) << why;
  const size_t at = why.rfind("pid=");  // behind the command, which is shown as well
  ASSERT_NE(at, std::string::npos) << why;
  EXPECT_NE(::kill(std::atoi(why.c_str() + at + 4), 0), 0);
}

TEST(EngineProcess, WhatCannotBeRunSaysWhy) {
  EXPECT_NE(Refusal({"/no/such/program"}).find("No such file"), std::string::npos);
  EXPECT_NE(Refusal({"/etc"}).find("denied"), std::string::npos);
  EXPECT_THROW(EngineProcess({}), Error);
}

TEST(EngineProcess, EndsWithItsOwnerEvenWhenItWillNot) {
  int child = -1;
  testing::internal::CaptureStderr();
  {
    EngineProcess process(
        Shell("trap 'echo asked >&2; exit' TERM; echo listening on a; sleep 100 & wait"));
    child = PidFd(process.pid());
    process = EngineProcess(Shell("trap '' TERM; echo listening on b; while :; do sleep 1; done"));
    EXPECT_NE(testing::internal::GetCapturedStderr().find("asked\n"), std::string::npos);
    EXPECT_EQ(process.endpoint(), "b");
    EXPECT_TRUE(IsReadable(child, milliseconds(0)));
    ::close(child);
    child = PidFd(process.pid());
  }
  EXPECT_TRUE(IsReadable(child, milliseconds(0)));
  ::close(child);
}

TEST(EngineProcess, OutlivesTheThreadThatStartedIt) {
  std::optional<EngineProcess> process;
  std::thread([&] { process.emplace(Shell("echo listening on a; exec sleep 100")); }).join();
  EXPECT_FALSE(IsReadable(process->pidfd(), milliseconds(200)));
}

TEST(EngineProcess, DoesNotOutliveItsParent) {
  int words[2];
  ASSERT_EQ(::pipe(words), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    EngineProcess process(Shell("echo listening on a; exec sleep 100"));
    const int pid = process.pid();
    if (::write(words[1], &pid, sizeof pid) == sizeof pid) ::pause();
    ::_exit(0);
  }
  int pid = -1;
  ASSERT_EQ(::read(words[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  const int pidfd = PidFd(pid);
  ASSERT_GE(pidfd, 0);
  EXPECT_FALSE(IsReadable(pidfd, milliseconds(0)));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(IsReadable(pidfd, kPatience));
  for (const int fd : {words[0], words[1], pidfd}) ::close(fd);
}

TEST(EngineProcess, GetsNothingThatIsOpenHere) {
  const int file = ::dup2(0, 77);  // not closed by exec
  ASSERT_EQ(file, 77);
  testing::internal::CaptureStderr();
  EngineProcess process(
      Shell("[ -e /proc/$$/fd/77 ] && echo has it >&2; echo listening on a; exec sleep 100"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ::close(file);
}

TEST(EngineProcess, IsNotStoppedByWhatItPrints) {
  testing::internal::CaptureStderr();
  {
    EngineProcess process(
        Shell("echo listening on a; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"));
    EXPECT_TRUE(IsReadable(process.pidfd(), kPatience));
    EXPECT_EQ(process.Ended(), "exit status 0");
  }
  testing::internal::GetCapturedStderr();
}

// Each is faster than what it says is passed on: line by line, or to a reader that is slow.
TEST(EngineProcess, OneThatNeverStopsTalkingIsEndedInTime) {
  EXPECT_TRUE(EndsWell([] {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    EXPECT_NE(Refusal({"yes", ""}, milliseconds(300)).find("in time"), std::string::npos);
  })) << "in the constructor";
  EXPECT_TRUE(EndsWell([] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ::dup2(ends[1], STDERR_FILENO);
    std::thread([from = ends[0]] {
      std::array<char, 4096> buffer;
      while (::read(from, buffer.data(), buffer.size()) > 0) {
        std::this_thread::sleep_for(milliseconds(5));
      }
    }).detach();
    EngineProcess process(Shell("echo listening on a; exec yes >&2"));
    std::this_thread::sleep_for(milliseconds(100));
  })) << "in the destructor";
}

TEST(EngineProcess, AStandardErrorThatNobodyReadsHoldsNothingUp) {
  EXPECT_TRUE(EndsWell([] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (::write(ends[1], "full", 1) == 1) continue;
    ::fcntl(ends[1], F_SETFL, 0);
    ::dup2(ends[1], STDERR_FILENO);
    EngineProcess process(
        Shell("head -c 1000000 /dev/zero >&2; echo listening on a; echo more; exec sleep 100"));
    EXPECT_EQ(process.endpoint(), "a");
    EXPECT_EQ(::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "which others write to as well";
  }));
}

TEST(EngineProcess, AForkedProcessThatDropsItsCopyEndsNothing) {
  std::optional<EngineProcess> process(Shell("echo listening on a; exec sleep 100"));
  EXPECT_TRUE(EndsWell([&] {
    EXPECT_EQ(process->Ended(), std::nullopt);
    process.reset();
  }));
  EXPECT_FALSE(IsReadable(process->pidfd(), milliseconds(500)));
  EXPECT_EQ(process->Ended(), std::nullopt);
}

TEST(EngineProcess, AnEndThatSomebodyElseWaitedForIsSeenAndTheGroupLeftAlone) {
  int other = -1;
  {
    EngineProcess process(Shell("sleep 100 & echo listening on $!"));
    other = PidFd(std::atoi(process.endpoint().c_str()));
    ASSERT_EQ(::waitpid(process.pid(), nullptr, 0), process.pid());
    EXPECT_EQ(process.Ended(), "status unknown");
  }
  // The number of the group may be somebody else's by now.
  EXPECT_FALSE(IsReadable(other, milliseconds(300)));
  ::syscall(SYS_pidfd_send_signal, other, SIGKILL, nullptr, 0);
  ::close(other);
}

TEST(EngineProcess, WhatItsFirstProcessLeftRunningEndsWithIt) {
  int other = -1;
  {
    EngineProcess process(Shell("sleep 100 & echo listening on $!"));
    other = PidFd(std::atoi(process.endpoint().c_str()));
    EXPECT_TRUE(IsReadable(process.pidfd(), kPatience));
  }
  EXPECT_TRUE(IsReadable(other, kPatience));
  ::close(other);
}

// Not with glibc's function, which refuses two: whom make starts has these ignored.
void Ignore(int signal) {
  const std::array<uint64_t, 4> ignored = {reinterpret_cast<uint64_t>(SIG_IGN)};
  ASSERT_EQ(::syscall(SYS_rt_sigaction, signal, ignored.data(), nullptr, sizeof(uint64_t)), 0);
}

// A shell that sends itself a signal lives on only where the signal is ignored.
TEST(EngineProcess, HasNoSignalIgnored) {
  EXPECT_TRUE(EndsWell([] {
    for (const int signal : {SIGHUP, SIGUSR1, SIGALRM, SIGPIPE, 32, 33, SIGRTMAX}) Ignore(signal);
    EngineProcess process(
        Shell("echo listening on ignored$(for signal in 1 10 14 13 32 33 64; do"
              " sh -c \"kill -$signal \\$\\$; echo :$signal\"; done); exec sleep 100"));
    EXPECT_EQ(process.endpoint(), "ignored");
  }));
}

}  // namespace
}  // namespace sluice::test
