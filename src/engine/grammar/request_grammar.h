// The grammar of one request: compiled by a worker, then followed from draw to draw.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine_messages.hpp"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

class GrammarWorkers;

// Of an engine, by any thread.
struct MaskCounters {
  std::atomic<int64_t> masks = 0;
  std::atomic<int64_t> waits = 0;
  std::atomic<int64_t> wait_ns = 0;
};

class RequestGrammar final : public DrawMask, public std::enable_shared_from_this<RequestGrammar> {
 public:
  enum class State : uint8_t { kCompiling, kReady, kFailed };

  RequestGrammar(GrammarWorkers& workers, MaskCounters& counters)
      : workers_(workers), counters_(counters) {}

  ~RequestGrammar();

  State state() const { return state_.load(std::memory_order_acquire); }
  // With kFailed.
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& parameter() const { return parameter_; }

  // The runner's.
  std::span<const int32_t> Await() override;
  int64_t AwaitDrafts(std::span<const int32_t> drafts, std::span<int32_t> words) override;
  void Drew(int32_t token) override;
  void Flush() override;

  // Once, one of the three. With its first mask, which may take long: a worker's. The first two
  // throw Error where there is no room for the grammar.
  void Begin(const Grammar& grammar);
  // A filler or the draw makes the first mask: the engine's.
  void BeginUnfilled(const Grammar& grammar);
  void Fail(ErrorCode code, std::string_view message, std::string_view parameter) noexcept;

  // What the last draw left to do, unless it has been done. Any thread's.
  void Fill();

 private:
  friend class FillStack;
  void BeginLocked(const Grammar& grammar);
  void AwaitFill();
  void FillLocked();
  void AcceptLocked();
  bool FillRowLocked(std::span<int32_t> words);

  GrammarWorkers& workers_;
  MaskCounters& counters_;
  std::atomic<State> state_ = State::kCompiling;
  ErrorCode code_ = ErrorCode::kInvalidValue;
  std::string message_;
  std::string parameter_;

  std::atomic<bool> is_filled_ = false;
  std::mutex mutex_;                // of what follows
  std::optional<Grammar> grammar_;  // counted among the live ones
  std::optional<GrammarMatcher> matcher_;
  int32_t drawn_ = -1;     // not yet accepted
  bool is_wrong_ = false;  // a token came that the grammar does not allow
  bool has_mask_ = false;
  std::vector<int32_t> words_;

  // The stack's.
  std::shared_ptr<RequestGrammar> next_;
  bool is_queued_ = false;
};

}  // namespace sluice::engine
