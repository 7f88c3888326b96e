#include "cli/serve/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::cli {

AccessLog::AccessLog(const std::string& path, std::function<void(std::string_view)> say)
    : say_(std::move(say)) {
  file_ = path == "-" ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                      : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
  if (file_ < 0) {
    throw std::runtime_error("cannot write the access log " + path + ": " + std::strerror(errno));
  }
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

bool AccessLog::WriteAll(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void AccessLog::Run() {
  bool has_failed = false;
  std::string lines;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_over_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    lines.clear();
    std::swap(lines, waiting_);
    const int64_t dropped = std::exchange(dropped_, 0);
    lock.unlock();
    const bool is_written = WriteAll(lines);
    if (!is_written && !std::exchange(has_failed, true)) {
      say_(std::string("the access log cannot be written: ") + std::strerror(errno));
    }
    if (dropped > 0) say_("the access log left out " + std::to_string(dropped) + " lines");
    lock.lock();
  }
}

}  // namespace sluice::cli
