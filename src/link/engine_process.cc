#include "sluice/engine_process.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "link/child_process.h"
#include "support/system_error.h"

namespace sluice {
namespace {

using link::FileDescriptor;

constexpr std::string_view kAnnouncement = "listening on ";
constexpr size_t kLongestLine = 4096;
constexpr size_t kLastWords = 2048;        // bytes of standard error that an Error has
constexpr int kReadsAtOnce = 16;           // a full pipe, and then it looks at the rest
constexpr std::chrono::seconds kMercy{2};  // from SIGTERM to SIGKILL

// What standard error does not take at once is dropped. It is polled each time, because its flags
// belong to others as well; a pipe that has room takes PIPE_BUF bytes.
void PassOn(std::string_view text) {
  while (!text.empty()) {
    pollfd errors{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&errors, 1, 0) != 1 || (errors.revents & POLLOUT) == 0) return;
    const ssize_t size =
        ::write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;  // it has no reader
    text.remove_prefix(static_cast<size_t>(size));
  }
}

std::string Joined(std::span<const std::string> command) {
  std::string text;
  for (const std::string& part : command) text.append(text.empty() ? "" : " ").append(part);
  return text;
}

}  // namespace

// The process is started by the thread that passes its words on: that thread lives as long as this
// object, and the kernel kills a child when the thread that started it ends.
class EngineProcess::Impl {
 public:
  Impl(std::span<const std::string> command, std::chrono::milliseconds timeout,
       const std::stop_token& stop)
      : command_(command.begin(), command.end()), stop_(::eventfd(0, EFD_CLOEXEC)) {
    if (!stop_.IsOpen()) ThrowSystemError("eventfd");
    thread_ = std::thread([this] { Watch(); });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, timeout, [this] { return !endpoint_.empty() || is_over_; });
    if (!endpoint_.empty()) return;
    std::string why = child_.pid < 0 ? "" : link::EndOfChild(child_.pidfd);
    if (why.empty()) {
      why = stop.stop_requested() ? "it was stopped"
            : is_over_            ? "nothing was said"
                                  : "nothing was said in time";
    }
    if (!last_words_.empty()) why.append("; ").append(last_words_);
    const std::exception_ptr failure = failure_;
    lock.unlock();
    Stop();
    if (failure != nullptr) std::rethrow_exception(failure);
    throw Error(ErrorCode::kUnavailable, "engine process", Joined(command_) + " (" + why + ")",
                "a command that prints \"listening on ENDPOINT\"");
  }
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // In a forked process the thread does not exist, and the process is another's child: this is left
  // as it lies, which may be in the middle of a change. Its descriptors are set once.
  bool IsForked() const { return ::getpid() != owner_; }
  void CloseFiles() {
    stop_.Close();
    child_.pidfd.Close();
    child_.output.Close();
    child_.errors.Close();
  }

  const std::string& endpoint() const { return endpoint_; }
  int pid() const { return child_.pid; }
  int pidfd() const { return child_.pidfd.get(); }
  std::optional<std::string> Ended() const {
    std::string end = link::EndOfChild(child_.pidfd);
    return end.empty() ? std::nullopt : std::optional(std::move(end));
  }

 private:
  void Stop() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  // --- the thread

  void Watch() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    try {
      link::ChildProcess child = link::StartChild(command_);
      {
        const std::lock_guard lock(mutex_);
        child_ = std::move(child);
      }
      PassWordsOn();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      is_over_ = true;
      changed_.notify_all();
    }
  }

  // Until the process has ended, which the end of this object causes.
  void PassWordsOn() {
    using Clock = std::chrono::steady_clock;
    std::array<pollfd, 4> files = {{{stop_.get(), POLLIN, 0},
                                    {child_.output.get(), POLLIN, 0},
                                    {child_.errors.get(), POLLIN, 0},
                                    {child_.pidfd.get(), POLLIN, 0}}};
    auto& [stop, output, errors, end] = files;
    auto patience = std::chrono::milliseconds(-1);
    Clock::time_point signalled;
    bool was_signalled = false;
    while (!was_signalled || end.fd >= 0) {
      if (was_signalled) {
        const auto waited = Clock::now() - signalled;
        if (waited >= kMercy) break;
        patience = std::chrono::ceil<std::chrono::milliseconds>(kMercy - waited);
      }
      if (::poll(files.data(), files.size(), static_cast<int>(patience.count())) < 0) continue;
      const bool has_ended = end.revents != 0;
      if (has_ended || output.revents != 0) Take(output, &Impl::TakeOutput);
      if (has_ended || errors.revents != 0) Take(errors, &Impl::TakeErrors);
      if (has_ended) {
        end = {-1, 0, 0};
        const std::lock_guard lock(mutex_);
        is_over_ = true;
        changed_.notify_all();
      }
      if (stop.revents != 0) {
        stop = {-1, 0, 0};
        was_signalled = true;
        signalled = Clock::now();
        link::SignalGroup(child_, SIGTERM);
      }
    }
    link::KillGroup(child_);
  }

  // Everything in the pipe, unless more comes all the time.
  void Take(pollfd& file, void (Impl::*take)(std::string_view)) {
    std::array<char, 4096> buffer;
    for (int i = 0; i < kReadsAtOnce && file.fd >= 0; ++i) {
      const ssize_t size = ::read(file.fd, buffer.data(), buffer.size());
      if (size > 0) {
        (this->*take)({buffer.data(), static_cast<size_t>(size)});
      } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        file.fd = -1;  // poll looks away
      } else if (errno == EAGAIN) {
        return;
      }
    }
  }

  void TakeErrors(std::string_view text) {
    PassOn(text);
    const std::lock_guard lock(mutex_);
    last_words_.append(text);
    if (last_words_.size() <= 2 * kLastWords) return;
    const size_t line = last_words_.find('\n', last_words_.size() - kLastWords);
    last_words_.erase(0, line == std::string::npos ? last_words_.size() - kLastWords : line + 1);
  }

  // One line is for us, the others for the reader of standard error.
  void TakeOutput(std::string_view text) {
    if (was_announced_) return PassOn(text);
    line_.append(text);
    for (size_t end = line_.find('\n'); end != std::string::npos; end = line_.find('\n')) {
      if (line_.starts_with(kAnnouncement) && end > kAnnouncement.size()) {
        was_announced_ = true;
        const std::lock_guard lock(mutex_);
        endpoint_ = line_.substr(kAnnouncement.size(), end - kAnnouncement.size());
        changed_.notify_all();
      } else {
        PassOn(std::string_view(line_).substr(0, end + 1));
      }
      line_.erase(0, end + 1);
      if (was_announced_) break;
    }
    if (!was_announced_ && line_.size() <= kLongestLine) return;
    PassOn(line_);
    line_.clear();
  }

  const std::vector<std::string> command_;
  const pid_t owner_ = ::getpid();
  FileDescriptor stop_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  link::ChildProcess child_;  // set once, before the constructor is done
  std::string endpoint_;      // likewise
  std::string last_words_;
  std::exception_ptr failure_;
  bool is_over_ = false;

  // The state of the thread:
  std::string line_;
  bool was_announced_ = false;
};

void EngineProcess::End::operator()(Impl* impl) const noexcept {
  impl->IsForked() ? impl->CloseFiles() : delete impl;
}

EngineProcess::EngineProcess(std::span<const std::string> command,
                             std::chrono::milliseconds timeout, const std::stop_token& stop)
    : impl_(new Impl(command, timeout, stop)) {}
EngineProcess::~EngineProcess() = default;
EngineProcess::EngineProcess(EngineProcess&&) noexcept = default;
EngineProcess& EngineProcess::operator=(EngineProcess&&) noexcept = default;

const std::string& EngineProcess::endpoint() const { return impl_->endpoint(); }
int EngineProcess::pid() const { return impl_->pid(); }
int EngineProcess::pidfd() const { return impl_->pidfd(); }
std::optional<std::string> EngineProcess::Ended() { return impl_->Ended(); }

}  // namespace sluice
