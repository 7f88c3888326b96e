#include "cli/serve/access_log.h"

#include <fcntl.h>
#include <limits.h>  // NOLINT(modernize-deprecated-headers): PIPE_BUF
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::cli {
namespace {

constexpr int kLook = 50;  // milliseconds between two looks whether to wait on for a reader

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

}  // namespace

AccessLog::AccessLog(const std::string& path, std::function<void(std::string_view)> say)
    : path_(path), say_(std::move(say)), file_(Open(path)) {
  if (file_ < 0) {
    throw std::runtime_error("cannot write the access log " + path + ": " + std::strerror(errno));
  }
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

size_t AccessLog::WriteSome(std::string_view bytes) {
  while (!MustGiveUp()) {
    pollfd waits{.fd = file_, .events = POLLOUT, .revents = 0};
    if (::poll(&waits, 1, kLook) == 0) continue;
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), at_once_));
    if (written > 0) return static_cast<size_t>(written);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return 0;
  }
  errno = EAGAIN;
  return 0;
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
  if (!std::exchange(has_failed_, true)) {
    say_(std::string("the access log cannot be written: ") + std::strerror(errno));
  }
  if (is_in_line) {
    const size_t end = lines.find('\n', at) + 1;
    rest_ = lines.substr(at, end - at);
    at = end;
  }
  return std::count(lines.begin() + static_cast<std::ptrdiff_t>(at), lines.end(), '\n');
}

void AccessLog::OpenAgain() {
  const int file = Open(path_);
  if (file < 0) {
    say_("the access log stays where it is: cannot open " + path_ + ": " + std::strerror(errno));
    return;
  }
  ::close(std::exchange(file_, file));
  at_once_ = AtOnce(file_);
  rest_.clear();
  has_failed_ = false;
}

void AccessLog::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_over_ || reopens_ || !waiting_.empty(); });
    const bool is_last = waiting_.empty() && !reopens_;
    std::string lines = std::exchange(waiting_, {});
    int64_t dropped = std::exchange(dropped_, 0);
    const bool reopens = std::exchange(reopens_, false);
    lock.unlock();
    if (reopens) OpenAgain();
    dropped += WriteLines(std::move(lines));
    if (dropped > 0) say_("the access log left out " + std::to_string(dropped) + " lines");
    if (is_last) return;
    lock.lock();
  }
}

}  // namespace sluice::cli
