// The file of an access log: whole lines on a disk that is full for a while, no wait for a pipe
// that nothing reads, and a new file where the old one was moved away.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/serve/access_log.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

class AccessLogFile : public testing::Test {
 protected:
  AccessLogFile() {
    std::string name = testing::TempDir() + "/access_log_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~AccessLogFile() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name = "log") const { return folder_ / name; }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::function<void(std::string_view)> Say() {
    return [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      said_.append(line).push_back('\n');
    };
  }
  bool HasSaid(std::string_view part) {
    const std::lock_guard lock(mutex_);
    return said_.find(part) != std::string::npos;
  }
  // Within a minute.
  static bool Becomes(const std::function<bool()>& holds) {
    for (int look = 0; look < 6000 && !holds(); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return holds();
  }

  fs::path folder_;
  std::mutex mutex_;
  std::string said_;
};

// A file that may have no more than so many bytes, as a disk that is full.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
};

TEST_F(AccessLogFile, HasWholeLinesAfterADiskWasFull) {
  AccessLog log(Path(), Say());
  {
    const FileLimit limit(10);
    log.Write("first line");  // its line feed has no room
    EXPECT_TRUE(Becomes([&] { return HasSaid("cannot be written: File too large"); }));
    log.Write("second");
    EXPECT_TRUE(Becomes([&] { return HasSaid("left out 1 line\n"); }));
  }
  log.Write("third");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "first line\nthird\n"; })) << TextOf(Path());
}

TEST_F(AccessLogFile, EndsTheLineThatWasCutOffAtItsEndToo) {
  {
    AccessLog log(Path(), Say());
    const FileLimit limit(3);
    log.Write("abcdef");
    EXPECT_TRUE(Becomes([&] { return HasSaid("cannot be written"); }));
    EXPECT_EQ(TextOf(Path()), "abc");
  }
  EXPECT_EQ(TextOf(Path()), "abcdef\n");
}

// SIGHUP may be there for the keys alone.
TEST_F(AccessLogFile, EndsTheLineThatWasCutOffInAFileThatIsOpenedAgain) {
  AccessLog log(Path(), Say());
  {
    const FileLimit limit(3);
    log.Write("abcdef");
    EXPECT_TRUE(Becomes([&] { return HasSaid("cannot be written"); }));
  }
  log.Reopen();
  log.Write("next");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "abcdef\nnext\n"; })) << TextOf(Path());
}

TEST_F(AccessLogFile, EndsTheLineThatWasCutOffBeforeAnotherFile) {
  AccessLog log(Path(), Say());
  {
    const FileLimit limit(3);
    log.Write("abcdef");
    EXPECT_TRUE(Becomes([&] { return HasSaid("cannot be written"); }));
  }
  fs::rename(Path(), Path("moved"));
  log.Reopen();
  log.Write("next");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "next\n"; })) << TextOf(Path());
  EXPECT_EQ(TextOf(Path("moved")), "abcdef\n");
}

TEST_F(AccessLogFile, CountsTheLineThatStaysCutOff) {
  {
    AccessLog log(Path(), Say());
    const FileLimit limit(3);
    log.Write("abcdef");
    EXPECT_TRUE(Becomes([&] { return HasSaid("cannot be written"); }));
    fs::rename(Path(), Path("moved"));
    log.Reopen();
    log.Write("ab");
    EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "ab\n"; }));
  }
  EXPECT_TRUE(HasSaid("left out 1 line\n"));
}

TEST_F(AccessLogFile, SaysOnceInAMinuteHowManyLinesItLeftOut) {
  const FileLimit limit(0);
  int lines = 0;
  {
    AccessLog log(Path(), Say());
    for (; lines < 40; ++lines) {
      log.Write("line");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that it has many batches
    }
  }
  int sum = 0, times = 0;
  const std::string_view part = "left out ";
  for (size_t at = said_.find(part); at != std::string::npos; at = said_.find(part, at + 1)) {
    sum += std::atoi(said_.c_str() + at + part.size());
    ++times;
  }
  EXPECT_EQ(sum, lines) << said_;
  EXPECT_LE(times, 10) << said_;  // two, unless the machine takes minutes
}

// Without a bound the end of the log, and so of the server, would wait for a reader for ever.
TEST_F(AccessLogFile, EndsWithAPipeThatNothingReads) {
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  const int reader = ::open(Path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  {
    AccessLog log(Path(), Say());
    const std::string line(999, 'a');
    for (int i = 0; i < 1000; ++i) log.Write(line);  // a pipe has room for 64
  }
  EXPECT_TRUE(HasSaid("cannot be written"));
  EXPECT_TRUE(HasSaid("left out"));
  std::string text(1 << 20, '\0');
  const ssize_t size = ::read(reader, text.data(), text.size());
  ASSERT_GT(size, 0);
  text.resize(static_cast<size_t>(size));
  EXPECT_TRUE(text.starts_with(std::string(999, 'a') + "\n"));
  ::close(reader);
}

// Standard output has no O_NONBLOCK: a write to it when it is full would block for ever.
TEST_F(AccessLogFile, EndsWithAFullStandardOutputWhateverSignalsCome) {
  std::signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ::sigaction(SIGUSR1, &action, &before);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  std::optional<AccessLog> log;
  {
    const int output = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    ::dup2(ends[1], STDOUT_FILENO);
    log.emplace("-", Say());
    ::dup2(output, STDOUT_FILENO);
    ::close(output);
    ::close(ends[1]);
  }
  for (int i = 0; i < 200; ++i) log->Write(std::string(999, 'a'));
  const auto is_full = [&] {
    int bytes = 0;
    return ::ioctl(ends[0], FIONREAD, &bytes) == 0 && bytes > 60'000;
  };
  EXPECT_TRUE(Becomes(is_full));
  for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
    const int id = std::stoi(thread.path().filename());
    if (id != ::gettid()) ::syscall(SYS_tgkill, ::getpid(), id, SIGUSR1);
  }
  std::atomic<bool> has_ended = false;
  std::jthread end([&] {
    log.reset();
    has_ended = true;
  });
  EXPECT_TRUE(Becomes([&] { return has_ended.load(); }));
  ::close(ends[0]);  // which ends a write that blocks
  end.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(AccessLogFile, LeavesAPipeThatNothingReadsForANewFile) {
  constexpr int kLines = 1000;
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  const int reader = ::open(Path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  AccessLog log(Path(), Say());
  for (int i = 0; i < kLines; ++i) log.Write(std::string(999, 'a'));
  const auto in_pipe = [&] {
    int bytes = 0;
    ::ioctl(reader, FIONREAD, &bytes);
    return bytes;
  };
  EXPECT_TRUE(Becomes([&] { return in_pipe() > 60'000; }));
  fs::rename(Path(), Path("moved"));
  log.Reopen();
  log.Write("last");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()).ends_with("\nlast\n"); }));
  const std::string text = TextOf(Path());
  // But for the line that the pipe has half of.
  EXPECT_GE(in_pipe() / 1000 + std::count(text.begin(), text.end(), '\n'), kLines);
  EXPECT_TRUE(text.starts_with(std::string(999, 'a') + "\n"));
  ::close(reader);
}

TEST_F(AccessLogFile, ANamedPipeWithoutAReaderIsAnError) {
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  EXPECT_THROW(AccessLog(Path(), Say()), std::runtime_error);
}

TEST_F(AccessLogFile, GoesOnInANewFileWhenTheOldOneWasMovedAway) {
  AccessLog log(Path(), Say());
  log.Write("old");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "old\n"; }));
  fs::rename(Path(), Path("moved"));
  log.Write("between");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path("moved")) == "old\nbetween\n"; }));
  log.Reopen();
  log.Write("new");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "new\n"; }));
  EXPECT_EQ(TextOf(Path("moved")), "old\nbetween\n");
}

TEST_F(AccessLogFile, StaysWhereItIsWhereThereIsNoNewFile) {
  AccessLog log(Path(), Say());
  fs::rename(folder_, folder_.string() + "_moved");
  log.Reopen();
  EXPECT_TRUE(Becomes([&] { return HasSaid("stays where it is: cannot open " + Path()); }));
  fs::rename(folder_.string() + "_moved", folder_);
  log.Write("line");
  EXPECT_TRUE(Becomes([&] { return TextOf(Path()) == "line\n"; }));
}

TEST_F(AccessLogFile, LosesNoLineOfThreadsThatWriteWhileItIsOpenedAgain) {
  constexpr int kThreads = 3, kLines = 500;
  {
    AccessLog log(Path(), Say());
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < kLines; ++i) log.Write("line");
      });
    }
    for (int i = 0; i < 20; ++i) {
      std::error_code ignored;
      fs::rename(Path(), Path(std::to_string(i)), ignored);
      log.Reopen();
    }
  }
  size_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) bytes += TextOf(entry.path()).size();
  EXPECT_EQ(bytes, size_t{kThreads * kLines} * 5);
}

}  // namespace
}  // namespace sluice::cli
