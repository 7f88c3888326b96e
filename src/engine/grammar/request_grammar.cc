#include "engine/grammar/request_grammar.h"

#include <algorithm>
#include <exception>
#include <new>

#include "engine/clock.h"
#include "engine/grammar/grammar_workers.h"
#include "support/check.h"

namespace sluice::engine {

void RequestGrammar::Begin(const Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  BeginLocked(grammar);
  FillLocked();
  state_.store(State::kReady, std::memory_order_release);
}

void RequestGrammar::BeginUnfilled(const Grammar& grammar) {
  const std::lock_guard lock(mutex_);
  BeginLocked(grammar);
  state_.store(State::kReady, std::memory_order_release);
}

RequestGrammar::~RequestGrammar() {
  if (grammar_.has_value()) workers_.live().Remove(*grammar_);
}

void RequestGrammar::BeginLocked(const Grammar& grammar) {
  LiveGrammars& live = workers_.live();
  const size_t bytes = live.Add(grammar);
  if (bytes > live.most_bytes()) {
    throw Error(ErrorCode::kExhausted, "bytes of the grammars of all requests",
                ToText(static_cast<int64_t>(bytes)),
                RangeText(0, static_cast<int64_t>(live.most_bytes())));
  }
  grammar_.emplace(grammar);
  words_.resize((static_cast<size_t>(grammar.vocab()) + 31) / 32);
  matcher_.emplace(grammar);
}

void RequestGrammar::Fail(ErrorCode code, std::string_view message,
                          std::string_view parameter) noexcept {
  code_ = code;
  try {
    message_ = message;
    parameter_ = parameter;
  } catch (const std::bad_alloc&) {
    code_ = ErrorCode::kExhausted;
    message_.clear();
    parameter_.clear();
  }
  state_.store(State::kFailed, std::memory_order_release);
}

namespace {

// A filler is done within microseconds, and to sleep until then takes longer.
constexpr int kSpins = 1000;

void LockSoon(std::mutex& mutex) {
  for (int i = 0; i < kSpins; ++i) {
    if (mutex.try_lock()) return;
  }
  mutex.lock();
}

}  // namespace

// A mask that no worker has begun is filled here: it would come no sooner.
std::span<const int32_t> RequestGrammar::Await() {
  counters_.masks.fetch_add(1, std::memory_order_relaxed);
  AwaitFill();
  if (!has_mask_) return {};
  return words_;
}

void RequestGrammar::AwaitFill() {
  if (is_filled_.load(std::memory_order_acquire)) return;
  Clock clock;
  Fill();
  counters_.waits.fetch_add(1, std::memory_order_relaxed);
  counters_.wait_ns.fetch_add(clock.Lap(), std::memory_order_relaxed);
}

// The masks of drafts are filled here: they are few, and the step that reads them is at hand.
int64_t RequestGrammar::AwaitDrafts(std::span<const int32_t> drafts, std::span<int32_t> words) {
  AwaitFill();
  LockSoon(mutex_);
  const std::lock_guard lock(mutex_, std::adopt_lock);
  if (is_wrong_ || matcher_->IsTerminated()) return 0;
  const size_t width = words_.size();
  const auto row = [&](size_t i) { return words.subspan(i * width, width); };
  size_t count = 0;
  try {
    while (count < drafts.size() && !matcher_->IsTerminated() && matcher_->Accept(drafts[count])) {
      ++count;
      if (!FillRowLocked(row(count))) break;
    }
    matcher_->Rollback(static_cast<int64_t>(count));
  } catch (const std::exception&) {
    is_wrong_ = true;
    std::fill(words_.begin(), words_.end(), 0);
    has_mask_ = true;
    return 0;
  }
  if (count == 0) return 0;
  if (has_mask_) {
    std::copy(words_.begin(), words_.end(), row(0).begin());
  } else {
    std::ranges::fill(row(0), -1);
  }
  counters_.masks.fetch_add(static_cast<int64_t>(count) + 1, std::memory_order_relaxed);
  return static_cast<int64_t>(count);
}

// False: after a stop token, where any token may come as it is dropped.
bool RequestGrammar::FillRowLocked(std::span<int32_t> words) {
  const bool goes_on = !matcher_->IsTerminated();
  if (!goes_on || matcher_->FillMask(words) == MaskState::kEverything) std::ranges::fill(words, -1);
  return goes_on;
}

void RequestGrammar::Drew(int32_t token) {
  {
    const std::lock_guard lock(mutex_);
    AcceptLocked();  // of tokens that were drawn together all but the last
    drawn_ = token;
    is_filled_.store(false, std::memory_order_relaxed);
  }
  workers_.AddFill(shared_from_this());
}

void RequestGrammar::Flush() {
  Clock clock;
  workers_.BeginFills();
  counters_.wait_ns.fetch_add(clock.Lap(), std::memory_order_relaxed);
}

void RequestGrammar::Fill() {
  LockSoon(mutex_);
  const std::lock_guard lock(mutex_, std::adopt_lock);
  if (!is_filled_.load(std::memory_order_relaxed)) FillLocked();
}

// After a stop token come only draws that are dropped.
void RequestGrammar::AcceptLocked() {
  if (drawn_ < 0 || matcher_->IsTerminated()) return;
  try {
    is_wrong_ = is_wrong_ || !matcher_->Accept(drawn_);
  } catch (const std::exception&) {
    is_wrong_ = true;
  }
  drawn_ = -1;
}

// A token that the grammar does not allow, and an error of the grammar engine, leave nothing to
// draw.
void RequestGrammar::FillLocked() {
  AcceptLocked();
  drawn_ = -1;
  has_mask_ = true;
  try {
    if (is_wrong_) {
      std::fill(words_.begin(), words_.end(), 0);
    } else if (matcher_->IsTerminated()) {
      has_mask_ = false;
    } else {
      has_mask_ = matcher_->FillMask(words_) != MaskState::kEverything;
    }
  } catch (const std::exception&) {
    is_wrong_ = true;
    std::fill(words_.begin(), words_.end(), 0);
  }
  is_filled_.store(true, std::memory_order_release);
}

}  // namespace sluice::engine
