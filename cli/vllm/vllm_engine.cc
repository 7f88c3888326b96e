#include "cli/vllm/vllm_engine.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <system_error>
#include <utility>

#include "cli/text.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kLongestLine = 16384;
constexpr int kReadsAtOnce = 16;

// The lines of one pipe. What a progress bar draws over itself is not shown.
class Lines {
 public:
  explicit Lines(const std::function<void(std::string_view)>& on_line) : on_line_(on_line) {}

  // Everything in the pipe, unless more comes all the time. False at its end.
  bool Read(int fd) {
    std::array<char, 4096> buffer;
    for (int i = 0; i < kReadsAtOnce; ++i) {
      const ssize_t size = ::read(fd, buffer.data(), buffer.size());
      if (size > 0) {
        Take({buffer.data(), static_cast<size_t>(size)});
      } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        Write();
        return false;
      } else if (errno == EAGAIN) {
        return true;
      }
    }
    return true;
  }

 private:
  void Take(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find_first_of("\r\n");
      line_.append(text.substr(0, end));
      if (line_.size() > kLongestLine) line_.resize(kLongestLine);
      if (end == std::string_view::npos) return;
      if (text[end] == '\n') {
        Write();
      } else {
        drawn_ = std::exchange(line_, {});
      }
      text.remove_prefix(end + 1);
    }
  }
  void Write() {
    const std::string line = std::exchange(line_, {});
    const std::string drawn = std::exchange(drawn_, {});
    const std::string& shown = line.empty() ? drawn : line;
    if (!shown.empty() && on_line_) on_line_(shown);
  }

  const std::function<void(std::string_view)>& on_line_;
  std::string line_;
  std::string drawn_;
};

std::string WholeSeconds(milliseconds time) { return Number(time.count() / 1000) + " s"; }

}  // namespace

VllmEngine::VllmEngine(VllmEngineOptions options)
    : options_(std::move(options)), stopped_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stopped_.IsOpen()) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::jthread([this] { Watch(); });
}

VllmEngine::~VllmEngine() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(stopped_.get(), &one, sizeof one);
  thread_.join();
}

void VllmEngine::SetReady() {
  const std::lock_guard lock(mutex_);
  was_ready_ = true;
  if (!ready_at_.has_value()) ready_at_ = Clock::now();
}

std::optional<Clock::time_point> VllmEngine::ReadyAt() const {
  const std::lock_guard lock(mutex_);
  return ready_at_;
}

bool VllmEngine::WasReady() const {
  const std::lock_guard lock(mutex_);
  return was_ready_;
}

std::string VllmEngine::Failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

int VllmEngine::pid() const {
  const std::lock_guard lock(mutex_);
  return pid_;
}

int32_t VllmEngine::starts() const {
  const std::lock_guard lock(mutex_);
  return starts_;
}

void VllmEngine::GiveUp(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  if (options_.on_given_up) options_.on_given_up();
}

// False when this object ends first.
bool VllmEngine::Wait(milliseconds time) const {
  pollfd file{stopped_.get(), POLLIN, 0};
  const Clock::time_point end = Clock::now() + time;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left.count() < 0) return true;
    const int found = ::poll(&file, 1, static_cast<int>(left.count()));
    if (found > 0) return false;
    if (found == 0) return true;
  }
}

void VllmEngine::Watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  milliseconds delay{0};
  int32_t ends = 0;
  while (true) {
    const std::string end = LiveOnce();
    if (end.empty()) return;
    // A load that takes long and then fails does not count as a life.
    const std::optional<Clock::time_point> ready_at = ReadyAt();
    if (ready_at.has_value() && Clock::now() - *ready_at >= options_.settled) {
      ends = 0;
      delay = milliseconds(0);
    }
    if (!WasReady()) return GiveUp(end);
    if (++ends >= options_.most_ends) {
      return GiveUp(end + ", after " + Number(ends - 1) + " restarts");
    }
    Log("the engine of vLLM ended (" + end + "); it is started again" +
        (delay.count() > 0 ? " in " + WholeSeconds(delay) : std::string()));
    if (!Wait(delay)) return;
    delay = delay.count() == 0 ? options_.delay : std::min(2 * delay, options_.longest_delay);
  }
}

std::string VllmEngine::LiveOnce() {
  try {
    // Its first process ends the others itself where it is not killed.
    link::ChildProcess child = link::StartChild(options_.command, SIGTERM);
    {
      const std::lock_guard lock(mutex_);
      pid_ = child.pid;
      ++starts_;
      ready_at_.reset();
    }
    return PassOn(child);
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string VllmEngine::PassOn(link::ChildProcess& child) {
  Lines output(options_.on_line);
  Lines errors(options_.on_line);
  std::array<pollfd, 4> files = {{{stopped_.get(), POLLIN, 0},
                                  {child.pidfd.get(), POLLIN, 0},
                                  {child.output.get(), POLLIN, 0},
                                  {child.errors.get(), POLLIN, 0}}};
  const Clock::time_point begin = Clock::now();
  Clock::time_point report_at = begin + options_.report_every;
  Clock::time_point kill_at = Clock::time_point::max();
  bool has_ended = false;
  while (!has_ended && Clock::now() < kill_at) {
    ::poll(files.data(), files.size(), 250);
    has_ended = files[1].revents != 0;
    if (files[2].revents != 0 && !output.Read(child.output.get())) files[2].fd = -1;
    if (files[3].revents != 0 && !errors.Read(child.errors.get())) files[3].fd = -1;
    if (files[0].revents != 0) {
      files[0].fd = -1;
      kill_at = Clock::now() + options_.mercy;
      ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), SIGTERM, nullptr, 0);
    }
    if (Clock::now() >= report_at && !ReadyAt().has_value() && files[0].fd >= 0) {
      report_at += options_.report_every;
      Log("the engine of vLLM is loading: " +
          WholeSeconds(std::chrono::duration_cast<milliseconds>(Clock::now() - begin)));
    }
  }
  if (has_ended) {
    output.Read(child.output.get());
    errors.Read(child.errors.get());
  }
  const std::string end = link::EndOfChild(child.pidfd);
  link::KillGroup(child);
  return files[0].fd < 0 ? std::string() : end;
}

void VllmEngine::Log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

}  // namespace sluice::cli
