// Computes the steps of an Engine: a model on the CPU, a model on a device, a script.
//
// A step is launched, and awaited later; between the two the Engine plans the next one. So the ids
// of a step stay where they were sampled: a row without tokens goes on from what the last step gave
// its slot, whether the host has seen that or not. The Engine keeps at most one step in flight
// before the one that it plans.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/cut.hpp"
#include "sluice/error.hpp"
#include "sluice/params.hpp"
#include "sluice/prompt_logprobs.hpp"

namespace sluice {

// A step gives at most so many entries of lists of prompt tokens, or those of one widest list.
inline constexpr int64_t kUsualPromptEntries = 1 << 16;

struct RunnerInfo {
  int64_t vocab = 0;
  int64_t context = 0;           // tokens of a request, prompt and output
  int32_t max_requests = 0;      // slots
  int64_t max_step_tokens = 0;   // inputs of one step; a row without tokens counts as one
  int64_t page_tokens = 1;       // the cache is given out in pages of this many tokens,
  int64_t pages = 0;             // the number of pages
  int64_t max_given_tokens = 1;  // that one step may give a request
  int32_t max_logprobs = 0;      // the longest list of a token; -1: the vocabulary
  int32_t max_prefixes = 0;      // caches that outlive their request, at once; 0: none does
  Limits limits = {};            // of parameters
};

// The masks of one request's draws. The thread that draws calls it.
class DrawMask {
 public:
  // Of the next draw, in the layout of StepRequest::bitmask; empty: every token is allowed. Valid
  // until Drew.
  virtual std::span<const int32_t> Await() = 0;
  // After Await: the token that the next draw has to give; -1: there is none.
  virtual int32_t forced() const { return -1; }
  // That many of the next draws may give any token, whatever those before them gave: they may go
  // without Await.
  virtual int64_t open_draws() const { return 0; }
  // For a draw with guesses of the tokens after it, in place of Await: the masks of the draw and of
  // those after each of the drafts, in rows of ceil(vocab / 32) words. Returns how many drafts,
  // from the first on, may come: those have a row, and the draw itself. 0: Await has the draw's
  // mask.
  virtual int64_t AwaitDrafts(std::span<const int32_t> drafts, std::span<int32_t> words) {
    (void)drafts, (void)words;
    return 0;
  }
  // Before the next Await: what was drawn, with the mask or without one. Tokens that were drawn
  // together come in their order.
  virtual void Drew(int32_t token) = 0;
  // Of one of a step's masks that has something to make, after the last draw with any of them: the
  // next ones may be made. Without it they are made by Await.
  virtual void Flush() {}
  virtual bool makes_masks() const { return true; }

 protected:
  ~DrawMask() = default;
};

// A request that takes a slot. The parameters have a seed.
struct RunnerRequest {
  int32_t slot = -1;
  const SamplingParams* params = nullptr;
  std::span<const int32_t> prompt = {};
  uint32_t choice = 0;
  int64_t max_tokens = 0;            // 0: none of its rows samples
  int32_t prompt_logprob_width = 0;  // as PromptLogprobs has it; 0: none of its rows scores
  DrawMask* mask = nullptr;          // null: no draw has one. Valid until its last row is awaited
};

struct StepRow {
  int32_t slot = -1;
  // The tokens that the model reads after those of the slot's cache. Empty: what the last step gave
  // it. The cache never comes to more than `context` tokens, however many that were.
  std::span<const int32_t> tokens = {};
  // The last position is projected and a token drawn: it is that of the last token of prompt and
  // output. False for a chunk that others follow.
  bool samples = true;
  // This many tokens of the prompt are scored, from this place on. Each of them follows one of the
  // row's. No token of a prompt is scored twice, though it may be read again.
  int64_t first_scored = 0;
  int64_t scored = 0;
};

// The cache of a request that ends here is kept, as far as whole pages of it: no row writes there.
struct KeptPrefix {
  int32_t slot = -1;
  int32_t prefix = -1;  // a free place, below max_prefixes
  int64_t tokens = 0;   // that the cache of the slot has
};

// A request begins, or goes on after it was preempted, with the first tokens of a prefix in its
// cache. Its rows bring those that follow. The prefix stays.
struct SharedPrefix {
  int32_t slot = -1;
  int32_t prefix = -1;
  int64_t tokens = 0;  // fewer than the request has
};

// A prefix loses all but its first tokens. With 0 its place is free.
struct TrimmedPrefix {
  int32_t prefix = -1;
  int64_t tokens = 0;
};

// In this order: prefixes are kept, slots freed, caches given back, slots taken, prefixes shared
// and then trimmed, rows computed. A slot has at most one row. Pages that several caches share
// count once.
struct StepPlan {
  std::span<const KeptPrefix> kept = {};
  std::span<const int32_t> ended = {};
  // These requests go on later, and then their rows bring the tokens from the first one again.
  // Their state in the sampler stays.
  std::span<const int32_t> preempted = {};
  std::span<const RunnerRequest> begun = {};
  std::span<const SharedPrefix> shared = {};
  std::span<const TrimmedPrefix> trimmed = {};
  std::span<const StepRow> rows = {};
};

// The result of a step for one row of the plan.
struct StepRowResult {
  // One or more where it samples; one with a status ends the request. Then the result that the next
  // step has for the same request does not matter.
  std::span<const TokenResult> tokens = {};
  // As LogprobLists has them, for each token.
  int32_t logprob_width = 0;
  std::span<const int32_t> logprob_ids = {};
  std::span<const float> logprob_values = {};
  // Those of the prompt tokens that the row scores.
  PromptLogprobs prompt = {};
  // Not empty: this request cannot go on, because of what happened in this row or when its slot was
  // taken. The others can. Its slot is among the ended ones of a later plan all the same; a row
  // that it has in the next step fails too, or gives tokens that are dropped.
  std::string_view failure = {};
  ErrorCode failure_code = ErrorCode::kUnavailable;  // kExhausted: no memory, for now
};

// Where the time of a step went, in nanoseconds.
struct StepTimes {
  int64_t forward_ns = 0;
  int64_t head_ns = 0;
  int64_t select_ns = 0;
};

// Tokens that the runner has tried ahead in a step, of all rows.
struct StepDrafts {
  int64_t tried = 0;
  int64_t accepted = 0;
};

struct StepResults {
  std::span<const StepRowResult> rows = {};  // as the plan had them
  StepTimes times = {};
  StepDrafts drafts = {};
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual const RunnerInfo& info() const = 0;

  // Begins a step. The arrays of the plan must stay until the step has been awaited. At most two
  // steps are on their way. An exception of it or of Await is the end of this runner.
  virtual void Launch(const StepPlan& plan) = 0;

  // The oldest step on its way, when it is done. Valid until the next Await.
  virtual const StepResults& Await() = 0;
};

}  // namespace sluice
