#include "sluice/script_runner.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/prompt_entries.h"
#include "engine/step_slots.h"
#include "engine/step_store.h"
#include "support/check.h"

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr int64_t kMostBurst = 1 << 16;
// A sleep ends late, by 50 us of the kernel's timer slack and the way back to a core. The last
// stretch is spun.
constexpr std::chrono::microseconds kLastStretch{100};

ScriptOptions Checked(ScriptOptions options) {
  CheckInRange("vocab", options.vocab, 1, kMaxVocab);
  CheckInRange("context", options.context, 1, INT64_MAX);
  CheckInRange("max_requests", options.max_requests, 1, 1 << 20);
  CheckInRange("max_step_tokens", options.max_step_tokens, 1, INT64_MAX);
  CheckInRange("page_tokens", options.page_tokens, 1, INT32_MAX);
  CheckInRange("pages", options.pages, 1, INT64_MAX);
  CheckInRange("burst", options.burst, 1, kMostBurst);
  CheckInRange("max_logprobs", options.max_logprobs, 0, kMaxVocab);
  CheckInRange("max_prefixes", options.max_prefixes, 0, 1 << 20);
  CheckInRange("step_time", options.step_time.count(), 0, INT64_MAX);
  CheckInRange("token_time", options.token_time.count(), 0, INT64_MAX);
  if (options.tokens.empty() && !options.echo) {
    ThrowInvalid("tokens", "", "at least one, unless echo is on");
  }
  for (const int32_t id : options.tokens) CheckInRange("tokens", id, 0, options.vocab - 1);
  return options;
}

}  // namespace

float ScriptLogprob(int32_t id) { return -static_cast<float>(id % 1024 + 1) / 64.0f; }
int32_t ScriptRank(int32_t id) { return 1 + id % 16; }

class ScriptRunner::Impl {
 public:
  explicit Impl(ScriptOptions options)
      : options_(Checked(std::move(options))),
        info_{.vocab = options_.vocab,
              .context = options_.context,
              .max_requests = options_.max_requests,
              .max_step_tokens = options_.max_step_tokens,
              .page_tokens = options_.page_tokens,
              .pages = options_.pages,
              .max_given_tokens = options_.burst,
              .max_logprobs = options_.max_logprobs,
              .max_prefixes = options_.max_prefixes},
        slots_(info_),
        ring_(info_),
        requests_(static_cast<size_t>(options_.max_requests)) {
    const auto burst = static_cast<size_t>(options_.burst);
    const size_t listed = burst * static_cast<size_t>(1 + options_.max_logprobs);
    tokens_.reserve(burst);
    logprob_ids_.reserve(listed);
    logprob_values_.reserve(listed);
    const auto scored =
        static_cast<size_t>(std::min(engine::MostPromptEntries(info_), options_.max_step_tokens));
    prompt_logprobs_.reserve(scored);
    prompt_ranks_.reserve(scored);
    const auto entries = static_cast<size_t>(engine::MostPromptEntries(info_));
    prompt_ids_.reserve(entries);
    prompt_values_.reserve(entries);
  }

  const RunnerInfo& info() const { return info_; }

  void Launch(const StepPlan& plan) {
    ring_.CheckLaunch();
    if (options_.before_step) options_.before_step(ring_.launched());
    const int64_t inputs = slots_.Apply(plan);
    for (const RunnerRequest& request : plan.begun) Begin(request);
    engine::StepStore& store = ring_.At(ring_.launched());
    store.Clear();
    DrawMask* drawn = nullptr;
    for (const StepRow& row : plan.rows) {
      const bool has_failed = slots_.At(row.slot).has_failed;
      store.Add(has_failed ? FailureOf(row.slot) : Give(row));
      DrawMask* const mask = At(row.slot).mask;
      if (!has_failed && row.samples && mask != nullptr && mask->makes_masks()) drawn = mask;
    }
    if (drawn != nullptr) drawn->Flush();
    const nanoseconds time = options_.step_time + inputs * options_.token_time;
    last_end_ = std::max(steady_clock::now(), last_end_) + time;
    EndOf(ring_.Launch()) = last_end_;
    store.Finish({.forward_ns = time.count()});
  }

  const StepResults& Await() {
    ring_.CheckAwait();
    const int64_t step = ring_.Await();
    const steady_clock::time_point end = EndOf(step);
    if (steady_clock::now() < end - kLastStretch) {
      std::this_thread::sleep_until(end - kLastStretch);
    }
    while (steady_clock::now() < end) {
    }
    return ring_.At(step).results();
  }

 private:
  struct Request {
    size_t place = 0;  // of its next token
    DrawMask* mask = nullptr;
    std::vector<int32_t> stop_tokens;
    int32_t next_id = 0;  // with a mask: where to go on in the vocabulary
    bool is_script_turn = false;
    std::vector<int32_t> prompt;
    std::optional<int32_t> logprobs;
    int32_t prompt_logprob_width = 0;
    std::string_view failure;
    ErrorCode failure_code = ErrorCode::kUnavailable;
  };

  Request& At(int32_t slot) { return requests_[static_cast<size_t>(slot)]; }
  steady_clock::time_point& EndOf(int64_t step) { return ends_[static_cast<size_t>(step) % 2]; }

  void Begin(const RunnerRequest& from) {
    Request& request = At(from.slot);
    const std::string_view failure = WhyNot(from);
    if (failure.empty()) {
      try {
        request.prompt.assign(from.prompt.begin(), from.prompt.end());
        request.logprobs = from.params->logprobs;
        request.mask = from.mask;
        request.stop_tokens = from.params->stop_token_ids;
        request.next_id = 0;
        request.is_script_turn = false;
        request.prompt_logprob_width = from.prompt_logprob_width;
        const bool is_rotated = options_.from_prompt && !options_.echo;
        request.place =
            is_rotated ? static_cast<size_t>(from.prompt[0]) % options_.tokens.size() : 0;
        return;
      } catch (const std::bad_alloc&) {
        request.failure = "no memory for the request";
        request.failure_code = ErrorCode::kExhausted;
      }
    } else {
      request.failure = failure;
      request.failure_code = ErrorCode::kInvalidValue;
    }
    slots_.Fail(from.slot);
  }

  std::string_view WhyNot(const RunnerRequest& request) const {
    if (request.params == nullptr) return "no parameters";
    if (request.prompt.empty()) return "no prompt";
    const bool is_known = std::ranges::all_of(
        request.prompt, [&](int32_t id) { return id >= 0 && id < options_.vocab; });
    if (!is_known) return "a token of the prompt is not in the vocabulary";
    const int32_t listed = request.params->logprobs.value_or(0);
    if (listed < 0 || listed > options_.max_logprobs) return "more logprobs than max_logprobs";
    const int32_t width = request.prompt_logprob_width;
    if (width < 0 || width > 1 + options_.max_logprobs) {
      return "more prompt_logprobs than max_logprobs";
    }
    return {};
  }

  StepRowResult FailureOf(int32_t slot) {
    return {.failure = At(slot).failure, .failure_code = At(slot).failure_code};
  }

  // Valid until the next call.
  StepRowResult Give(const StepRow& row) {
    StepRowResult result;
    if (row.samples) result = Draw(row.slot);
    if (row.scored > 0) result.prompt = Score(row);
    return result;
  }

  PromptLogprobs Score(const StepRow& row) {
    const Request& request = At(row.slot);
    prompt_logprobs_.clear();
    prompt_ranks_.clear();
    prompt_ids_.clear();
    prompt_values_.clear();
    const auto begin = static_cast<size_t>(row.first_scored);
    for (const int32_t id :
         std::span(request.prompt).subspan(begin, static_cast<size_t>(row.scored))) {
      prompt_logprobs_.push_back(ScriptLogprob(id));
      prompt_ranks_.push_back(ScriptRank(id));
      List(id, request.prompt_logprob_width, prompt_ids_, prompt_values_);
    }
    return {.first_token = row.first_scored,
            .logprobs = prompt_logprobs_,
            .ranks = prompt_ranks_,
            .width = request.prompt_logprob_width,
            .ids = prompt_ids_,
            .values = prompt_values_};
  }

  void List(int32_t id, int32_t width, std::vector<int32_t>& ids,
            std::vector<float>& values) const {
    for (int64_t k = 0; k < width; ++k) {
      ids.push_back(static_cast<int32_t>((id + k) % options_.vocab));
      values.push_back(ScriptLogprob(ids.back()));
    }
  }

  // Below 0: the mask allows none.
  int32_t NextToken(Request& request, const std::vector<int32_t>& script) const {
    const std::span<const int32_t> mask =
        request.mask != nullptr ? request.mask->Await() : std::span<const int32_t>();
    const int32_t forced = request.mask != nullptr ? request.mask->forced() : -1;
    if (forced >= 0) {
      request.mask->Drew(forced);
      return forced;
    }
    if (mask.empty()) {
      const int32_t id = script[request.place];
      request.place = (request.place + 1) % script.size();
      if (request.mask != nullptr) request.mask->Drew(id);
      return id;
    }
    const int32_t id = NextAllowed(request, script, mask);
    if (id >= 0) request.mask->Drew(id);
    return id;
  }

  int32_t NextAllowed(Request& request, const std::vector<int32_t>& script,
                      std::span<const int32_t> mask) const {
    const auto allows = [mask](int64_t id) {
      return (static_cast<uint32_t>(mask[static_cast<size_t>(id) / 32]) >> (id % 32) & 1) != 0;
    };
    for (const int32_t id : request.stop_tokens) {
      if (allows(id)) return id;
    }
    request.is_script_turn = !request.is_script_turn;
    if (request.is_script_turn && allows(script[request.place])) {
      const int32_t id = script[request.place];
      request.place = (request.place + 1) % script.size();
      return id;
    }
    int64_t id = FirstAllowed(mask, request.next_id);
    if (id < 0) id = FirstAllowed(mask, 0);
    if (id >= 0) request.next_id = static_cast<int32_t>((id + 1) % options_.vocab);
    return static_cast<int32_t>(id);
  }

  // From that token on. Below 0: none.
  int64_t FirstAllowed(std::span<const int32_t> mask, int64_t from) const {
    uint32_t skipped = ~uint32_t{0} << (from % 32);
    for (auto word = static_cast<size_t>(from / 32); word < mask.size(); ++word) {
      const uint32_t bits =
          static_cast<uint32_t>(mask[word]) & std::exchange(skipped, ~uint32_t{0});
      if (bits == 0) continue;
      const auto id = static_cast<int64_t>(32 * word) + std::countr_zero(bits);
      return id < options_.vocab ? id : -1;
    }
    return -1;
  }

  StepRowResult Draw(int32_t slot) {
    Request& request = At(slot);
    const std::vector<int32_t>& script = options_.echo ? request.prompt : options_.tokens;
    const int32_t width = request.logprobs.has_value() ? 1 + *request.logprobs : 0;
    tokens_.clear();
    logprob_ids_.clear();
    logprob_values_.clear();
    for (int64_t i = 0; i < options_.burst; ++i) {
      const int32_t id = NextToken(request, script);
      if (id < 0) {
        tokens_.push_back({.id = -1, .status = RowStatus::kEmptySupport});
        request.failure = "its last row has ended with a status";
        request.failure_code = ErrorCode::kUnavailable;
        slots_.Fail(slot);
        logprob_ids_.resize(logprob_ids_.size() + static_cast<size_t>(width), -1);
        logprob_values_.resize(logprob_values_.size() + static_cast<size_t>(width), 0.0f);
        break;
      }
      tokens_.push_back({.id = id});
      if (!request.logprobs.has_value()) continue;
      tokens_.back().logprob = ScriptLogprob(id);
      tokens_.back().rank = ScriptRank(id);
      List(id, width, logprob_ids_, logprob_values_);
    }
    if (tokens_.back().id >= 0) slots_.Give(slot, options_.burst);
    return {.tokens = tokens_,
            .logprob_width = width,
            .logprob_ids = logprob_ids_,
            .logprob_values = logprob_values_};
  }

  const ScriptOptions options_;
  const RunnerInfo info_;
  engine::StepSlots slots_;
  engine::StepRing ring_;
  std::vector<Request> requests_;  // by slot
  std::array<steady_clock::time_point, 2> ends_;
  steady_clock::time_point last_end_;

  // The results of the row at hand:
  std::vector<TokenResult> tokens_;
  std::vector<int32_t> logprob_ids_;
  std::vector<float> logprob_values_;
  std::vector<float> prompt_logprobs_;
  std::vector<int32_t> prompt_ranks_;
  std::vector<int32_t> prompt_ids_;
  std::vector<float> prompt_values_;
};

ScriptRunner::ScriptRunner(ScriptOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ScriptRunner::~ScriptRunner() = default;

const RunnerInfo& ScriptRunner::info() const { return impl_->info(); }
void ScriptRunner::Launch(const StepPlan& plan) { impl_->Launch(plan); }
const StepResults& ScriptRunner::Await() { return impl_->Await(); }

}  // namespace sluice
