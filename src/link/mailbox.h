// Between the step loop and the link thread: commands one way, what steps gave the other. Neither
// waits for the other one, but for the end; a lock is held for as long as a pointer is moved.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "link/wire/step_batch.h"
#include "sluice/engine.hpp"

namespace sluice::link {

struct Command {
  enum class Kind : uint8_t { kCome, kGo, kAdd, kAbort, kPing };

  Kind kind = Kind::kCome;
  LinkId link = {};
  EngineRequest request = {};                // of kAdd
  std::vector<RequestAddress> aborted = {};  // of kAbort
};

class Mailbox {
 public:
  Mailbox();  // throws Error when there is no file descriptor left
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  static constexpr size_t kCommandsAtOnce = 256;
  static constexpr size_t kMostCommands = 4096;
  static constexpr size_t kMostFree = 8;  // batches that keep their memory

  // --- the step loop's side

  // Replaces `commands` by what has come, in its order, but at most kCommandsAtOnce, so that a step
  // comes in between. Where nothing has and `waits` is set, waits for it, or for a stop. Rethrows
  // what ended the link thread.
  void Take(std::vector<Command>& commands, const std::stop_token& stop, bool waits);
  std::unique_ptr<StepBatch> FreeBatch();
  void Post(std::unique_ptr<StepBatch> batch);
  // For the last batch to be out, but not for ever.
  void AwaitDelivery(std::chrono::milliseconds timeout);

  // --- the link thread's side

  void Post(Command command);
  bool IsFull() const;                     // so many commands wait that no more should come
  std::unique_ptr<StepBatch> TakeBatch();  // the oldest one, or null
  void GiveBack(std::unique_ptr<StepBatch> batch);
  void Fail(std::exception_ptr failure);

  // Readable when there is a batch, or it is over.
  int wake_fd() const { return wake_fd_; }
  void ClearWake();
  bool IsOver() const;

  // --- any thread
  void End();  // of the link thread

 private:
  void Wake() const;

  const int wake_fd_;
  mutable std::mutex mutex_;
  std::condition_variable_any has_commands_;
  std::condition_variable was_delivered_;
  std::deque<Command> commands_;
  std::deque<std::unique_ptr<StepBatch>> batches_;
  std::vector<std::unique_ptr<StepBatch>> free_;
  std::exception_ptr failure_;
  bool is_delivered_ = false;
  bool is_over_ = false;
};

}  // namespace sluice::link
