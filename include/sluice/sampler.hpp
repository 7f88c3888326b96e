// The Sampler: requests with their state, and the whole step from logits to tokens.
//
// A step is a pure function of the logits, each request's own history and its seed: a request gets
// the same tokens alone, in any batch, in any order, with drafts (mode `match`) or without.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "sluice/logprobs.hpp"
#include "sluice/verify.hpp"

namespace sluice {

class CertifiedHead;  // these four are in certified_head.hpp
struct CertifiedInput;
struct CertifiedRow;
struct CertifiedStats;

// A change of the logits by the user, after DRY and before a forced token. It runs on the thread
// of the row, may write any value (an +inf or NaN becomes the row's status), and may throw: the
// exception leaves Step.
struct LogitsProcessor {
  void* context = nullptr;
  void (*apply)(void* context, std::span<const int32_t> tokens, size_t prompt_length,
                std::span<float> logits) = nullptr;
  bool argmax_invariant = false;  // it cannot move the argmax, so greedy rows skip it
};

struct Request {
  SamplingParams params = {};
  std::span<const int32_t> prompt = {};
  uint32_t choice = 0;  // index among the completions of one prompt; below 2^24
  // Memory is reserved for so many output tokens, at most 2^20; beyond, Step and Accept may
  // allocate.
  int32_t max_new_tokens = 256;
  std::span<const LogitsProcessor> processors = {};
};

// Names a request from Add to Remove. A stale handle is an Error, never another request.
struct RequestHandle {
  int32_t slot = -1;
  uint32_t generation = 0;
};

struct StepRequest {
  RequestHandle request = {};
  std::span<const int32_t> drafts = {};  // n drafts take n + 1 consecutive rows of the logits
  // A tree of drafts: for each the index of the draft before it, which is below its own, or -1 for
  // the request's tokens. Row 0 is what the target says after those, row i + 1 what it says after
  // draft i and the drafts before it. Empty: a chain, each draft after the one before.
  std::span<const int32_t> parents = {};

  // For DraftMode::kReject, what the drafts were drawn from, one row a draft; at most one of these.
  // Siblings are tried in order: the row of each is its law given that those before it were drawn.
  // With `parents`, at most 64 drafts.
  MatrixView draft_probabilities = {};
  SelectInput draft_model = {};  // a Sluice draft model's logits and parameters
  std::span<const Cut> draft_cuts = {};

  // One bit a token, a row for every row of logits: (n + 1) * ceil(vocab / 32) words, or empty.
  std::span<const int32_t> bitmask = {};
  int32_t forced = -1;  // token that the first row must give; -1: none
};

struct StepInput {
  LogitsView logits = {};
  std::span<const StepRequest> requests = {};  // their rows one after the other
};

struct StepOutput {
  // One a row. The first emitted[r] rows of request r hold its tokens, in order; a row with a
  // status ends them and is not counted.
  std::span<TokenResult> tokens = {};
  std::span<int32_t> emitted = {};

  // Each of these may be empty.
  LogprobLists logprobs = {};
  std::span<int32_t> kept = {};    // the kept set as a bitmask, ceil(vocab / 32) words a row
  std::span<CutMass> masses = {};  // one a row
  // fp32: the values after stage 9. Rows that were not looked at are left alone. May be the logits.
  MutableLogitsView adjusted = {};
  // One a row. Replaces all other outputs of a token: the row of its request's logits that gave it,
  // 0, 1, 2 of a chain; -1 where no token is given. `adjusted` alone lies where the logits do.
  std::span<int32_t> path = {};
};

struct SamplerOptions {
  int64_t vocab = 0;
  int32_t max_requests = 256;
  Limits limits = {};
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

// One thread at a time may call a Sampler; processors of different requests run concurrently during
// a Step, on the threads of its parallel-for, and may not call the Sampler.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // allocates all that steps need
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Validates the request; throws Error when a parameter is out of range, or with kExhausted when
  // all slots are taken.
  RequestHandle Add(const Request& request);
  void Remove(RequestHandle request);
  int32_t FreeSlots() const;

  // The seed in use: the given one, or the random one that was chosen at Add.
  uint64_t Seed(RequestHandle request) const;
  // Prompt and output. Valid until the next call that changes this request; a Step may be given
  // parts of it as drafts.
  std::span<const int32_t> Tokens(RequestHandle request) const;
  int64_t PromptLength(RequestHandle request) const;
  // What the next token's noise is drawn by.
  NoiseKey Key(RequestHandle request) const;

  // Samples and accepts: afterwards each request has its emitted tokens at the end of its history;
  // the caller acts on stop tokens among them. Throws before anything has changed when an
  // argument does not fit. An exception of a processor leaves it after the other requests have
  // finished their rows; `emitted` says how far each came.
  void Step(const StepInput& input, const StepOutput& output);

  // As Project and then Step, for requests without drafts and forced tokens, one a row and each
  // once: the same tokens, statuses and Cuts, and the requests have accepted the tokens. What a
  // request changes of its logits is heeded, but for processors, which have to see all of them:
  // throws Error when one would run. Log-probabilities are not reported. The backend and the
  // parallel-for are the execution's, its workspace that of SampleFromHeadWorkspaceBytes. rows:
  // empty, or one a row, how each got its answer.
  CertifiedStats StepFromHead(const CertifiedHead& head, const CertifiedInput& input,
                              std::span<const RequestHandle> requests,
                              std::span<TokenResult> results, std::span<CertifiedRow> rows,
                              const Execution& execution);

  // The same ids and statuses alone, which costs less of the head where top-p is on all tokens.
  // statuses: empty, or one a row.
  CertifiedStats StepIdsFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                 std::span<const RequestHandle> requests, std::span<int32_t> ids,
                                 std::span<RowStatus> statuses, std::span<CertifiedRow> rows,
                                 const Execution& execution);

  // Appends tokens that came from elsewhere; takes back the last `count` output tokens.
  void Accept(RequestHandle request, std::span<const int32_t> tokens);
  void Rollback(RequestHandle request, int64_t count);

 private:
  class Impl;
  Impl& Get() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
