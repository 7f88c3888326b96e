// The Sampler of sampler.hpp with its requests and its whole step on a GPU: the same tokens, bit
// for bit. Link Sluice::cuda.
//
// A step is one CUDA graph for each shape of a batch that comes more than once, and one copy of its
// results to pinned memory on a stream of its own. Only StepHandle::Get, StepHandle::Await and the
// destructor normally wait for the device; Waits counts the rare other calls that do. Changes of
// requests (Add, Update, Accept, Rollback, and the tokens of a step) go to the device in small
// asynchronous copies and kernels on another stream, concurrent with the caller's; a step waits for
// them there, and they wait for the step before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sluice/cuda/rows.hpp"
#include "sluice/sampler.hpp"

namespace sluice::cuda {

// The most that a DeviceSampler has room for. All memory is taken at construction, but for what the
// driver takes for a graph.
struct DeviceSamplerOptions {
  int64_t vocab = 0;
  int32_t max_requests = 256;
  int32_t max_drafts = 0;     // of a request in a step, at most 64
  int32_t max_rows = 0;       // of a step; 0: 1 + max_drafts for every request
  int32_t max_tokens = 4096;  // of a request, prompt and output
  // How many ids a request may name in logit_bias, allowed_token_ids, bad_words, stop_token_ids and
  // dry_sequence_breakers, every mention counted.
  int32_t max_listed_ids = 256;
  int32_t max_logprobs = 0;  // the most likely tokens that a request may request, at most 128
  // How many shapes of batches keep their graphs, from kStepsKept on; the one used the longest ago
  // makes room. A shape with processors has two. The driver takes some 120 KB of the device's
  // memory for each, and 40 KB of the host's.
  int32_t max_graphs = 64;
  bool bitmasks = true;  // whether steps may bring some
  // Whether a request goes on with token 0 after a step that gave it none, as engines do that look
  // every token up. The answer says that there was none.
  bool goes_on_with_zero = false;
  bool cuts = false;               // whether steps report the kept sets
  bool kept = false;               // whether they write them as bitmasks
  bool masses = false;             // whether they report the masses of the Cuts
  int32_t max_processed_rows = 0;  // of a step, of requests with processors; more are its Error
  Limits limits = {};
};

// About 48 bytes for each of max_tokens and max_listed_ids a request, and 28 of them again for each
// of its drafts; a bit a token for each row where there are bitmasks, and one where kept sets are
// written; four bytes a token for each row that processors may change.
size_t DeviceSamplerBytes(const DeviceSamplerOptions& options);

// The rows of a request in a step, as its processors find them. The pointers are to device
// memory.
struct ProcessorRows {
  // fp32, to change in place: what stages 3 to 8 left of the logits. One row more than there are
  // drafts; the first follows none.
  MutableLogitsView logits = {};
  // Prompt and output. How many they are is not known here: the host may be steps ahead of them.
  const int32_t* tokens = nullptr;
  const int32_t* token_count = nullptr;
  // After the tokens row d follows the first d of these, or with `parents` (as StepRequest has
  // them, on the host) those before it in the tree.
  const int32_t* drafts = nullptr;
  std::span<const int32_t> parents = {};
  int64_t prompt_length = 0;  // of the tokens, on the host
};

// As LogitsProcessor: a change of the logits by the user, after DRY and before a forced token.
// `apply` enqueues its work on `stream`, a cudaStream_t, and returns. Whatever is enqueued there
// later finds the rows as it leaves them. A call of the DeviceSampler from it is an Error. It may
// throw: the exception leaves Step.
struct DeviceLogitsProcessor {
  void* context = nullptr;
  void (*apply)(void* context, const ProcessorRows& rows, void* stream) = nullptr;
  bool argmax_invariant = false;  // it cannot move the argmax, so greedy requests skip it
};

// The results of a step, in pinned memory: one element a row, but for `emitted`, which has one a
// request. The first emitted[r] rows of request r hold its tokens, in order; later rows have id -1.
// Fields that were not requested are empty.
struct DeviceStepResult {
  std::span<const int32_t> ids = {};
  std::span<const RowStatus> statuses = {};
  std::span<const int32_t> emitted = {};
  std::span<const Cut> cuts = {};
  std::span<const CutMass> masses = {};
  std::span<const int32_t> path = {};  // as StepOutput's, when a request of the step has `parents`

  // As TokenResult and LogprobLists: of the rows of requests that report them.
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};
  int32_t width = 0;
  std::span<const int32_t> list_ids = {};
  std::span<const float> list_values = {};
};

// Computes the logits of a step: kernels on a stream, which become the front of the step's graph,
// captured the first time.
// It is called when a graph is captured, and at no other time; equal sources are taken for the same
// kernels, with the same pointers. A call of the DeviceSampler from it is an Error. A head without
// calls that wait is one: Project of cuda/head.hpp, or a library's product. (A certified head is
// none: it hands on tokens, not logits.)
struct LogitsSource {
  void (*enqueue)(void* context, void* stream) = nullptr;  // null: the logits come from elsewhere
  void* context = nullptr;

  friend bool operator==(const LogitsSource&, const LogitsSource&) = default;
};

class DeviceSampler;

// What a step reports in addition to its tokens, in device memory: the fields of DeviceStepResult.
// Empty when no request of the step has log-probabilities.
struct DeviceStepReport {
  DeviceArray<const float> logprobs = {};
  DeviceArray<const int32_t> ranks = {};
  int32_t width = 0;
  DeviceArray<const int32_t> list_ids = {};
  DeviceArray<const float> list_values = {};
};

// A step that was enqueued. It names the step and owns nothing: the DeviceSampler outlives it.
class StepHandle {
 public:
  // In device memory, one a row, for what comes next on the step's stream: valid until the next
  // call of Step, even of one that fails. emitted: one a request; may be empty when no request has
  // drafts.
  DeviceArray<const int32_t> ids() const { return ids_; }
  DeviceArray<const RowStatus> statuses() const { return statuses_; }
  DeviceArray<const int32_t> emitted() const { return emitted_; }
  // The kept sets, ceil(vocab / 32) words a row, where options.kept is set: they stay on the
  // device, because a row of 128k tokens has 16 KB of them.
  DeviceArray<const int32_t> kept() const { return kept_; }
  // Empty when no request has `parents`.
  DeviceArray<const int32_t> path() const { return path_; }
  const DeviceStepReport& report() const { return report_; }
  // The cudaEvent_t that is recorded after them.
  void* event() const { return event_; }

  // Waits for the copy of this step and for nothing else. The answer is valid for the next
  // DeviceSampler::kStepsKept - 1 steps; throws Error when more have come. One that failed counts,
  // until it has been repeated: it took the place of the oldest.
  DeviceStepResult Get() const;

  // Only waits, perhaps for a later step when this one is no longer kept. It reads nothing of
  // the DeviceSampler, so another thread may call that in the meantime; a later Get does not
  // wait.
  void Await() const;

 private:
  friend class DeviceSampler;

  DeviceSampler* sampler_ = nullptr;
  uint64_t step_ = 0;
  DeviceArray<const int32_t> ids_ = {};
  DeviceArray<const RowStatus> statuses_ = {};
  DeviceArray<const int32_t> emitted_ = {};
  DeviceArray<const int32_t> kept_ = {};
  DeviceArray<const int32_t> path_ = {};
  DeviceStepReport report_ = {};
  void* event_ = nullptr;
  void* copied_ = nullptr;  // recorded after its copy
};

// One thread at a time may call a DeviceSampler, with the device current that it was made on.
class DeviceSampler {
 public:
  static constexpr int kStepsKept = 4;

  // memory: at least DeviceSamplerBytes(options), aligned to 256, of the caller; empty: taken here.
  explicit DeviceSampler(const DeviceSamplerOptions& options, DeviceArray<std::byte> memory = {});
  ~DeviceSampler();  // waits for what was enqueued
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  // As Sampler::Add, with processors that work on the device: those of the Request run on the host
  // and are an Error, and so is what does not fit into what was planned.
  RequestHandle Add(const Request& request, std::span<const DeviceLogitsProcessor> processors = {});
  void Remove(RequestHandle request);
  int32_t FreeSlots() const;
  uint64_t Seed(RequestHandle request) const;

  // Other numbers for a request, from its next step on. Its lists of ids, its seed and what it
  // reports in addition to its token stay as they are: they are Errors when they differ, as is a
  // penalty or DRY for a request that had none of them.
  void Update(RequestHandle request, const SamplingParams& params);

  // As Sampler::Step, with logits on the device and all other memory on the host, where it is read
  // before the call returns. Draft probabilities and the logits of a draft model lie on the device,
  // and are read on the stream; its parameters and Cuts on the host. stream: the cudaStream_t that
  // the logits are computed on.
  //
  // Throws before anything has changed, with kExhausted when a request may grow beyond max_tokens:
  // a step that Get has not answered counts as if all of its drafts, or those of a tree's longest
  // path, were accepted, until it is kStepsKept steps ago and the call looks itself. When the
  // device fails amid a step, no handle names it, none of its tokens are accepted, and the next
  // step waits for what was enqueued of it. A processor that throws has these effects, except that
  // no call waits on the host: what changes requests waits on the device.
  //
  // A step of requests with processors is two graphs with the processors between them, each called
  // once, request after request, so that they may enqueue what no graph can hold. A row that
  // follows a draft that is not accepted is processed like the others.
  //
  // source: computes input.logits in the same graph; what it throws the call throws.
  StepHandle Step(const StepInput& input, void* stream, const LogitsSource& source = {});

  // As those of Sampler. Rollback: only after Get of the last step of the request.
  void Accept(RequestHandle request, std::span<const int32_t> tokens);
  void Rollback(RequestHandle request, int64_t count);

  // How often a call waited for the device outside of Get and Await: when more was changed at once
  // than there is pinned memory for, when a step that was never read is not over kStepsKept steps
  // later, and after a step that failed.
  int64_t Waits() const;

 private:
  friend class StepHandle;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cuda
