#include "cli/engine/engine_supervisor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <system_error>

#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// False when a stop came first.
bool Wait(milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

std::string Seconds(milliseconds time) {
  return Fixed(static_cast<double>(time.count()) / 1000, time.count() % 1000 == 0 ? 0 : 1) + " s";
}

}  // namespace

EngineSupervisor::EngineSupervisor(EngineSupervisorOptions options, const std::stop_token& stop)
    : options_(std::move(options)), stopped_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stopped_.IsOpen()) throw std::system_error(errno, std::generic_category(), "eventfd");
  process_.emplace(options_.command, options_.start_timeout, stop);
  endpoint_ = process_->endpoint();
  pid_ = process_->pid();
  thread_ = std::jthread([this](const std::stop_token& end) { Watch(end); });
}

EngineSupervisor::~EngineSupervisor() {
  thread_.request_stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(stopped_.get(), &one, sizeof one);
  thread_.join();
}

int EngineSupervisor::pid() const {
  const std::lock_guard lock(mutex_);
  return pid_;
}

int64_t EngineSupervisor::restarts() const {
  const std::lock_guard lock(mutex_);
  return restarts_;
}

void EngineSupervisor::Log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

void EngineSupervisor::Watch(const std::stop_token& stop) {
  Clock::time_point start = Clock::now();
  milliseconds delay{0};
  while (const std::optional<std::string> end = WaitForEnd(stop)) {
    process_.reset();
    if (Clock::now() - start >= options_.settled) delay = milliseconds(0);
    std::string what = "the engine ended (" + *end + ")";
    do {
      Log(what + "; it is started again" +
          (delay.count() > 0 ? " in " + Seconds(delay) : std::string()));
      if (!Wait(delay, stop)) return;
      delay = delay.count() == 0 ? options_.delay : std::min(2 * delay, options_.longest_delay);
      start = Clock::now();
      what = "the engine did not start";
    } while (!StartAgain(stop) && !stop.stop_requested());
    if (stop.stop_requested()) return;
  }
}

std::optional<std::string> EngineSupervisor::WaitForEnd(const std::stop_token& stop) {
  if (!process_.has_value()) return std::nullopt;
  std::array<pollfd, 2> files = {{{stopped_.get(), POLLIN, 0}, {process_->pidfd(), POLLIN, 0}}};
  while (::poll(files.data(), files.size(), -1) < 0 && errno == EINTR) continue;
  return stop.stop_requested() ? std::nullopt : process_->Ended();
}

bool EngineSupervisor::StartAgain(const std::stop_token& stop) {
  const Clock::time_point begin = Clock::now();
  try {
    process_.emplace(options_.command, options_.start_timeout, stop);
  } catch (const Error&) {  // what it said is on standard error
    return false;
  } catch (const std::exception& error) {  // no memory, thread or descriptor: there may be later
    Log(error.what());
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    pid_ = process_->pid();
    ++restarts_;
  }
  const auto time = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  Log("the engine is there again, after " + Number(time.count()) + " ms");
  return true;
}

}  // namespace sluice::cli
