#include "cli/serve/access_log.h"

#include <fcntl.h>
#include <limits.h>  // NOLINT(modernize-deprecated-headers): PIPE_BUF
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::cli {
namespace {

constexpr int kPollInterval = 50;  // milliseconds, of a wait for a reader

// A named pipe without a reader is an error, not a wait.
int Open(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  return path == "-" ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                     : ::open(path.c_str(), kFlags, 0640);
}

// A pipe that can be written takes PIPE_BUF bytes at once, and may wait for its reader with more.
size_t AtOnce(int file) {
  struct stat status = {};
  const bool is_file = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  return is_file ? SIZE_MAX : PIPE_BUF;
}

bool IsSameFile(int a, int b) {
  struct stat of_a = {}, of_b = {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// They are for the threads that wait for them, and would end each wait here.
void BlockSignals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

AccessLog::AccessLog(const std::string& path, std::function<void(std::string_view)> say)
    : path_(path), say_(std::move(say)), file_(Open(path)) {
  if (file_ < 0) {
    throw std::runtime_error("cannot write the access log " + path + ": " + std::strerror(errno));
  }
  Begin();
}

AccessLog::AccessLog(int file, std::string name, std::function<void(std::string_view)> say)
    : name_(std::move(name)), say_(std::move(say)), file_(::fcntl(file, F_DUPFD_CLOEXEC, 0)) {
  if (file_ < 0) throw std::runtime_error("cannot write " + name_ + ": " + std::strerror(errno));
  Begin();
}

void AccessLog::Begin() {
  at_once_ = AtOnce(file_);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (...) {
    ::close(file_);
    throw;
  }
}

AccessLog::~AccessLog() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    give_up_at_ = std::chrono::steady_clock::now() + kLastWrites;
  }
  changed_.notify_one();
  thread_.join();
  ::close(file_);
}

void AccessLog::Write(std::string_view line) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() + line.size() >= kMostBytes) {
      ++dropped_;
      return;
    }
    waiting_.append(line).push_back('\n');
  }
  changed_.notify_one();
}

void AccessLog::Reopen() {
  {
    const std::lock_guard lock(mutex_);
    reopens_ = true;
  }
  changed_.notify_one();
}

bool AccessLog::MustGiveUp() {
  const std::lock_guard lock(mutex_);
  return is_over_ && std::chrono::steady_clock::now() >= give_up_at_;
}

bool AccessLog::MustReopen() {
  const std::lock_guard lock(mutex_);
  return reopens_;
}

size_t AccessLog::WriteSome(std::string_view bytes) {
  while (!MustGiveUp()) {
    pollfd waits{.fd = file_, .events = POLLOUT, .revents = 0};
    // Only what can be written is: without O_NONBLOCK a full pipe would block.
    if (::poll(&waits, 1, kPollInterval) <= 0) {
      if (MustReopen()) break;
      continue;
    }
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), at_once_));
    if (written > 0) return static_cast<size_t>(written);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return 0;
  }
  errno = EAGAIN;
  return 0;
}

bool AccessLog::EndsLine() {
  while (!rest_.empty()) {
    pollfd waits{.fd = file_, .events = POLLOUT, .revents = 0};
    if (::poll(&waits, 1, 0) <= 0) return false;
    const ssize_t written = ::write(file_, rest_.data(), std::min(rest_.size(), at_once_));
    if (written <= 0) return false;
    rest_.erase(0, static_cast<size_t>(written));
  }
  return true;
}

int64_t AccessLog::WriteLines(std::string lines) {
  bool is_in_line = !rest_.empty();
  lines.insert(0, rest_);
  rest_.clear();
  size_t at = 0;
  while (at < lines.size()) {
    const size_t count = WriteSome(std::string_view(lines).substr(at));
    if (count == 0) break;
    at += count;
    is_in_line = lines[at - 1] != '\n';
  }
  if (at == lines.size()) return 0;
  const int error = errno;
  if (is_in_line) {
    const size_t end = lines.find('\n', at) + 1;
    rest_ = lines.substr(at, end - at);
    at = end;
  }
  if (error == EAGAIN && !MustGiveUp()) {
    const std::lock_guard lock(mutex_);
    waiting_.insert(0, lines, at);
    return 0;
  }
  if (!std::exchange(has_failed_, true)) {
    say_(name_ + " cannot be written: " + std::strerror(error));
  }
  return std::count(lines.begin() + static_cast<std::ptrdiff_t>(at), lines.end(), '\n');
}

int64_t AccessLog::OpenAgain() {
  const int file = Open(path_);
  if (file < 0) {
    say_("the access log stays where it is: cannot open " + path_ + ": " + std::strerror(errno));
    return 0;
  }
  const bool loses_line = !IsSameFile(file_, file) && !EndsLine();
  if (loses_line) rest_.clear();
  ::close(std::exchange(file_, file));
  at_once_ = AtOnce(file_);
  has_failed_ = false;
  return loses_line ? 1 : 0;
}

void AccessLog::SayLeftOut(bool is_last) {
  const auto now = std::chrono::steady_clock::now();
  if (left_out_ == 0 || (!is_last && now < count_at_)) return;
  const int64_t count = std::exchange(left_out_, 0);
  count_at_ = now + kBetweenCounts;
  say_(name_ + " left out " + std::to_string(count) + (count == 1 ? " line" : " lines"));
}

void AccessLog::Run() {
  BlockSignals();
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [&] { return is_over_ || reopens_ || !waiting_.empty(); };
    if (left_out_ == 0) {
      changed_.wait(lock, has_work);
    } else {
      changed_.wait_until(lock, count_at_, has_work);
    }
    const bool is_last = is_over_ && waiting_.empty() && !reopens_;
    std::string lines = std::exchange(waiting_, {});
    left_out_ += std::exchange(dropped_, 0);
    const bool reopens = std::exchange(reopens_, false);
    lock.unlock();
    if (reopens) left_out_ += OpenAgain();
    left_out_ += WriteLines(std::move(lines));
    if (is_last && !rest_.empty()) ++left_out_;
    SayLeftOut(is_last);
    if (is_last) return;
    lock.lock();
  }
}

}  // namespace sluice::cli
