#include "link/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "support/system_error.h"

namespace sluice::link {

Mailbox::Mailbox() : wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake_fd_ < 0) ThrowSystemError("eventfd");
}

Mailbox::~Mailbox() { ::close(wake_fd_); }

void Mailbox::Take(std::vector<Command>& commands, const std::stop_token& stop, bool waits) {
  commands.clear();
  std::unique_lock lock(mutex_);
  if (waits) {
    has_commands_.wait(lock, stop, [&] { return !commands_.empty() || failure_ != nullptr; });
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  const size_t count = std::min(commands_.size(), kCommandsAtOnce);
  for (size_t i = 0; i < count; ++i) {
    commands.push_back(std::move(commands_.front()));
    commands_.pop_front();
  }
}

std::unique_ptr<StepBatch> Mailbox::FreeBatch() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto batch = std::move(free_.back());
      free_.pop_back();
      return batch;
    }
  }
  return std::make_unique<StepBatch>();
}

void Mailbox::Post(std::unique_ptr<StepBatch> batch) {
  {
    const std::lock_guard lock(mutex_);
    batches_.push_back(std::move(batch));
  }
  Wake();
}

void Mailbox::AwaitDelivery(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  was_delivered_.wait_for(lock, timeout, [this] { return is_delivered_ || failure_ != nullptr; });
}

void Mailbox::Post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  has_commands_.notify_one();
}

bool Mailbox::IsFull() const {
  const std::lock_guard lock(mutex_);
  return commands_.size() >= kMostCommands;
}

std::unique_ptr<StepBatch> Mailbox::TakeBatch() {
  const std::lock_guard lock(mutex_);
  if (batches_.empty()) return nullptr;
  auto batch = std::move(batches_.front());
  batches_.pop_front();
  return batch;
}

void Mailbox::GiveBack(std::unique_ptr<StepBatch> batch) {
  const std::lock_guard lock(mutex_);
  if (batch->is_last) {
    is_delivered_ = true;
    was_delivered_.notify_all();
  }
  if (free_.size() < kMostFree) free_.push_back(std::move(batch));
}

void Mailbox::Fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  has_commands_.notify_all();
  was_delivered_.notify_all();
}

void Mailbox::ClearWake() {
  uint64_t count = 0;
  // Nothing there is no error: the flag of the descriptor says so.
  [[maybe_unused]] const ssize_t size = ::read(wake_fd_, &count, sizeof count);
}

bool Mailbox::IsOver() const {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

void Mailbox::End() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  Wake();
}

void Mailbox::Wake() const {
  const uint64_t one = 1;
  // Fails only where 2^64 - 2 wake-ups are pending.
  [[maybe_unused]] const ssize_t size = ::write(wake_fd_, &one, sizeof one);
}

}  // namespace sluice::link
