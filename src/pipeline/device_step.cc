#include <algorithm>
#include <optional>
#include <utility>

#include "backend/row_launch.h"
#include "pipeline/device_sampler_impl.h"
#include "pipeline/sample_reported.h"
#include "support/check.h"

namespace sluice::cuda {
namespace {

int32_t RowsOf(const StepRequest& request) {
  return 1 + static_cast<int32_t>(request.drafts.size());
}

bool HasProcessed(uint8_t modes) {
  return (modes & (1u << static_cast<int>(LogprobMode::kProcessedLogprobs) |
                   1u << static_cast<int>(LogprobMode::kProcessedLogits))) != 0;
}

PatchArgument PatchOf(const DeviceBuffers& buffers, const StepShape& shape) {
  const LogitsView& logits = shape.logits;
  const StepTables tables = TablesOf(buffers.tables, shape.output.rows, shape.output.requests);
  return {.store = buffers.store,
          .rows = tables.rows,
          .drafts = tables.drafts,
          .bitmasks = buffers.bitmasks,
          .bitmask_words = static_cast<int32_t>((logits.vocab + 31) / 32),
          .params = buffers.params,
          .keys = buffers.keys,
          .patches = buffers.patches,
          .max_patch = buffers.max_patch,
          .ids = buffers.patch_ids,
          .items = buffers.patch_items,
          .endings = buffers.patch_endings,
          .values = buffers.patch_values,
          .logits = logits.data,
          .stride_bytes = logits.stride * static_cast<int64_t>(SizeOf(logits.dtype)),
          .dtype = logits.dtype};
}

// What the rows whose requests want log-probabilities in a mode get.
LogprobsArgument ReportOf(const DeviceBuffers& buffers, const StepShape& shape, LogprobMode mode,
                          const Limits& limits) {
  const int64_t rows = shape.output.rows;
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  RowParams params{{buffers.params, rows}, {}, limits};
  if (shape.is_greedy) params.params = {buffers.greedy_params, 1};
  const bool is_processed = IsProcessed(mode);
  if (is_processed && shape.has_patches) params.patches = {buffers.patches, rows};
  return {.rows = ArgumentOf(shape.logits, params),
          .mode = mode,
          .results = is_processed ? buffers.results : nullptr,
          .kept_masses = nullptr,
          .lists = {outputs.list_ids, outputs.list_values, shape.output.width},
          .step = {.wishes = TablesOf(buffers.tables, rows, shape.output.requests).wishes,
                   .ids = outputs.ids,
                   .logprobs = outputs.logprobs,
                   .ranks = outputs.ranks}};
}

// Whether the first k of a row, a few hundred, decide its draw, or may.
bool IsDrawnFromTop(const SelectParams& params) {
  constexpr int32_t kMostTopK = 400;
  if (params.temperature == 0.0f) return true;
  const bool is_joint = params.profile.top_k_top_p == TopKTopP::kJoint && params.top_p < 1.0f;
  return params.top_k > 0 && params.top_k <= kMostTopK && params.top_n_sigma == 0.0f &&
         params.typical_p == 1.0f && !is_joint;
}

// The mode that the draw reports in the same kernel: a raw one, alone, where nothing changes the
// rows or their tokens, the draw's lists have most of the report, and a block has a row for itself.
// (Elsewhere a kernel of its own reads the rows beside the draw: 16 us in place of 18 for 8 rows.)
std::optional<LogprobMode> ModeBesideDraw(const StepShape& shape) {
  if (shape.has_patches || shape.has_verdict || shape.has_wide) return std::nullopt;
  if (ShapeForRows(shape.output.rows).blocks > 1) return std::nullopt;
  for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits}) {
    if (shape.modes == 1u << static_cast<int>(mode)) return mode;
  }
  return std::nullopt;
}

}  // namespace

void DeviceSampler::Impl::CheckRequest(const StepRequest& request, const Slot& slot,
                                       int device) const {
  const int64_t vocab = options_.vocab;
  const int64_t drafts = static_cast<int64_t>(request.drafts.size());
  CheckInRange("drafts.size()", drafts, 0, options_.max_drafts);
  for (const int32_t draft : request.drafts) CheckInRange("drafts", draft, 0, vocab - 1);
  CheckInRange("forced", request.forced, -1, vocab - 1);
  if (!request.bitmask.empty()) {
    if (!options_.bitmasks) ThrowInvalid("bitmask", "given", "none: options.bitmasks is false");
    CheckSize("bitmask", request.bitmask.size(), (drafts + 1) * ((vocab + 31) / 32));
  }
  if (request.draft_model.logits.data != nullptr) {
    throw Error(ErrorCode::kUnavailable, "draft_model", "given",
                "none on a device: draft_probabilities, or the Sampler of sampler.hpp");
  }
  if (request.draft_probabilities.data != nullptr) {
    CheckMatrix("draft_probabilities", "columns", request.draft_probabilities, kMaxVocab,
                DeviceKind::kCuda);
    CheckInRange("draft_probabilities.device.index", request.draft_probabilities.device.index,
                 device, device);
    CheckDType("draft_probabilities", request.draft_probabilities.dtype, DType::kF32);
    CheckInRange("draft_probabilities.rows", request.draft_probabilities.rows, drafts, drafts);
    CheckInRange("draft_probabilities.columns", request.draft_probabilities.columns, vocab, vocab);
  }
  CheckRoom(slot, drafts + 1, "tokens");
}

// Throws before anything has changed; answers which kernels the step needs.
StepShape DeviceSampler::Impl::CheckStep(const StepInput& input) {
  CheckRows(input.logits);
  CheckInRange("logits.vocab", input.logits.vocab, options_.vocab, options_.vocab);
  CheckInRange("requests.size()", static_cast<int64_t>(input.requests.size()), 0,
               options_.max_requests);
  const uint64_t check = ++checks_;
  StepShape shape;
  bool is_greedy = true;
  bool has_drafts = false;
  int64_t rows = 0;
  for (const StepRequest& request : input.requests) {
    Slot& slot = SlotOf(request.request);
    if (slot.last_check == check) {
      ThrowInvalid("requests", "a request that appears twice", "each request once a step");
    }
    slot.last_check = check;
    CheckRequest(request, slot, input.logits.device.index);
    const RequestRecord& record = slot.record;
    const bool greedy = record.select.temperature == 0.0f;
    shape.has_values = shape.has_values || record.has_patch || request.forced >= 0;
    shape.has_patches = shape.has_patches || shape.has_values || !request.bitmask.empty();
    is_greedy = is_greedy && greedy;
    has_drafts = has_drafts || !request.drafts.empty();
    shape.rejects = shape.rejects ||
                    (!request.drafts.empty() && !greedy && record.draft_mode == DraftMode::kReject);
    const bool is_cdf = record.draw_method == DrawMethod::kCdf && !greedy;
    shape.draws_cdf = shape.draws_cdf || is_cdf;
    shape.draws_gumbel = shape.draws_gumbel || !is_cdf;
    shape.has_typical =
        shape.has_typical || (!greedy && record.select.typical_p < 1.0f && record.select.top_k > 0);
    shape.has_wide = shape.has_wide || !IsDrawnFromTop(record.select);
    if (record.has_logprobs) {
      shape.modes = static_cast<uint8_t>(shape.modes | 1u << static_cast<int>(record.logprob_mode));
      if (record.listed_logprobs > 0) shape.output.width = 1 + options_.max_logprobs;
    }
    rows += RowsOf(request);
  }
  CheckInRange("logits.rows", input.logits.rows, rows, rows);
  CheckInRange("logits.rows", rows, 0, MostRows(options_));
  shape.logits = input.logits;
  shape.output.rows = rows;
  shape.output.requests = static_cast<int64_t>(input.requests.size());
  shape.output.has_logprobs = shape.modes != 0;
  shape.output.has_cuts = options_.cuts;
  shape.has_results = options_.cuts || shape.rejects || HasProcessed(shape.modes);
  shape.has_verdict = has_drafts || shape.has_results || (shape.draws_cdf && shape.draws_gumbel);
  shape.has_wide = shape.has_wide && shape.modes != 0;
  shape.is_greedy = is_greedy && !shape.has_patches && !shape.has_results;
  return shape;
}

// What the kernels read of the step, on its way to the device unless it is there from the step
// before.
void DeviceSampler::Impl::SendTables(const StepInput& input, const StepShape& shape) {
  const size_t bytes = TablesOf(nullptr, shape.output.rows, shape.output.requests).bytes;
  new_tables_.assign(bytes, std::byte{0});
  const StepTables tables = TablesOf(new_tables_.data(), shape.output.rows, shape.output.requests);
  int32_t r = 0;
  int32_t drafts = 0;
  int32_t bitmasks = 0;
  for (size_t q = 0; q < input.requests.size(); ++q) {
    const StepRequest& request = input.requests[q];
    const int32_t slot = request.request.slot;
    tables.spans[q] = {slot, r, RowsOf(request)};
    const RequestRecord& record = slots_[static_cast<size_t>(slot)].record;
    const LogprobWish wish{record.has_logprobs, record.logprob_mode,
                           static_cast<int16_t>(record.listed_logprobs)};
    for (int32_t d = 0; d < RowsOf(request); ++d, ++r) {
      tables.wishes[r] = wish;
      const bool is_last = d + 1 == RowsOf(request);
      const int32_t draft = is_last ? -1 : request.drafts[static_cast<size_t>(d)];
      const bool has_bitmask = !request.bitmask.empty();
      tables.rows[r] = {
          slot, drafts, d, draft, d == 0 ? request.forced : -1, has_bitmask ? bitmasks++ : -1};
      tables.probabilities[r] = is_last || request.draft_probabilities.data == nullptr
                                    ? nullptr
                                    : static_cast<const float*>(request.draft_probabilities.Row(d));
    }
    for (const int32_t draft : request.drafts) tables.drafts[drafts++] = draft;
  }
  if (new_tables_ != tables_) {
    const Piece piece{buffers_.tables, new_tables_.data(), bytes};
    tables_.clear();  // nobody knows what is there when Send fails
    Send({&piece, 1});
    tables_.swap(new_tables_);
  }
  bitmasks_.clear();
  int32_t* to = buffers_.bitmasks;
  for (const StepRequest& request : input.requests) {
    bitmasks_.push_back({to, request.bitmask.data(), request.bitmask.size_bytes()});
    to += request.bitmask.size();
  }
  Send(bitmasks_);
}

void PrepareStep(const DeviceBuffers& buffers, const StepShape& shape, void* stream) {
  if (!shape.is_greedy) LaunchPrepare(PatchOf(buffers, shape), shape.output.rows, stream);
}

void EnqueueStep(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                 void* stream) {
  const int64_t rows = shape.output.rows;
  const StepTables tables = TablesOf(buffers.tables, rows, shape.output.requests);
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const DeviceArray<int32_t> ids{outputs.ids, rows};
  const DeviceArray<RowStatus> statuses{outputs.statuses, rows};
  if (const auto mode = ModeBesideDraw(shape)) {
    RowParams params{{buffers.params, rows}, {buffers.keys, rows}, limits};
    if (shape.is_greedy) params = {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits};
    SampleReported(
        shape.logits, params, shape.draws_gumbel ? DrawMethod::kGumbel : DrawMethod::kCdf,
        {nullptr, outputs.ids, outputs.statuses}, ReportOf(buffers, shape, *mode, limits), stream);
    return;
  }
  if (shape.is_greedy) {
    SampleIds(shape.logits, {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits},
              DrawMethod::kGumbel, ids, statuses, stream);
  }
  if (shape.has_values) LaunchApply(PatchOf(buffers, shape), rows, stream);
  RowParams params{{buffers.params, rows}, {buffers.keys, rows}, limits};
  if (shape.has_patches) params.patches = {buffers.patches, rows};
  const bool has_both = shape.draws_cdf && shape.draws_gumbel;
  const DrawMethod method = shape.draws_gumbel ? DrawMethod::kGumbel : DrawMethod::kCdf;
  const bool has_results = shape.has_results;
  if (shape.is_greedy) {
  } else if (shape.has_values || shape.has_typical) {
    SampleAdjusted(shape.logits, params, method,
                   {has_results ? buffers.results : nullptr, outputs.ids, outputs.statuses},
                   {.starts_early = shape.has_values, .has_typical = shape.has_typical}, stream);
  } else if (has_results) {
    Sample(shape.logits, params, method, {buffers.results, rows}, stream);
  } else {
    SampleIds(shape.logits, params, method, ids, statuses, stream);
  }
  if (has_both) {
    if (has_results) {
      Sample(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_results, rows}, stream);
    } else {
      SampleIds(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_ids, rows},
                {buffers.cdf_statuses, rows}, stream);
    }
  }
  if (shape.rejects) {
    LaunchReject(
        {.store = buffers.store,
         .rows = tables.rows,
         .logits = shape.logits.data,
         .stride_bytes = shape.logits.stride * static_cast<int64_t>(SizeOf(shape.logits.dtype)),
         .dtype = shape.logits.dtype,
         .vocab = static_cast<int32_t>(shape.logits.vocab),
         .params = buffers.params,
         .keys = buffers.keys,
         .patches = buffers.patches,
         .probabilities = tables.probabilities,
         .results = buffers.results,
         .accepted = buffers.accepted},
        rows, stream);
  }
  if (shape.has_verdict) {
    LaunchVerdict({.store = buffers.store,
                   .rows = tables.rows,
                   .spans = tables.spans,
                   .requests = static_cast<int32_t>(shape.output.requests),
                   .accepted = shape.rejects ? buffers.accepted : nullptr,
                   .results = has_results ? buffers.results : nullptr,
                   .cdf_results = has_both && has_results ? buffers.cdf_results : nullptr,
                   .cdf_ids = has_both && !has_results ? buffers.cdf_ids : nullptr,
                   .cdf_statuses = has_both && !has_results ? buffers.cdf_statuses : nullptr,
                   .ids = outputs.ids,
                   .statuses = outputs.statuses,
                   .cuts = shape.output.has_cuts ? outputs.cuts : nullptr,
                   .emitted = outputs.emitted},
                  stream);
  }
  bool is_behind_draw = !shape.has_verdict && !has_both;
  for (int mode = 0; mode < 4; ++mode) {
    if ((shape.modes >> mode & 1) == 0) continue;
    LaunchLogprobs(ReportOf(buffers, shape, static_cast<LogprobMode>(mode), limits),
                   shape.logits.dtype, stream, is_behind_draw);
    is_behind_draw = false;
  }
}

// Captured once for each shape, while it is in use.
cudaGraphExec_t DeviceSampler::Impl::GraphOf(const StepShape& shape) {
  if (const Graph* graph = graphs_.Find(shape)) return *graph;
  RequireCuda(cudaStreamBeginCapture(captures_, cudaStreamCaptureModeThreadLocal), "graph");
  cudaGraph_t graph = nullptr;
  try {
    const auto stream = static_cast<cudaStream_t>(captures_);
    if (shape.source.enqueue != nullptr) shape.source.enqueue(shape.source.context, stream);
    EnqueueStep(buffers_, shape, options_.limits, stream);
  } catch (...) {
    cudaStreamEndCapture(captures_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  RequireCuda(cudaStreamEndCapture(captures_, &graph), "graph");
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(
      graph, [](cudaGraph_t captured) { cudaGraphDestroy(captured); });
  return graphs_.Add(shape, Graph(graph));
}

StepHandle DeviceSampler::Impl::Step(DeviceSampler* sampler, const StepInput& input, void* stream,
                                     const LogitsSource& source) {
  StepRecord& record = steps_kept_[(steps_ + 1) % kStepsKept];
  if (!record.is_read) {  // and never will be
    if (!record.copied.IsOver()) {
      ++waits_;
      record.copied.Await();
    }
    CountTokens(record);
  }
  StepShape shape = CheckStep(input);
  shape.source = source;
  const cudaGraphExec_t graph = shape.output.rows > 0 ? GraphOf(shape) : nullptr;
  const uint64_t step = steps_ + 1;
  const cudaStream_t own = static_cast<cudaStream_t>(stream);
  const StepOutputs outputs = OutputsOf(buffers_.outputs, shape.output);
  StepHandle handle;
  handle.sampler_ = sampler;
  handle.step_ = step;
  handle.ids_ = {outputs.ids, shape.output.rows};
  handle.statuses_ = {outputs.statuses, shape.output.rows};
  if (shape.has_verdict) handle.emitted_ = {outputs.emitted, shape.output.requests};
  handle.event_ = static_cast<cudaEvent_t>(record.done);
  handle.copied_ = static_cast<cudaEvent_t>(record.copied);

  if (has_failed_) {  // what was enqueued of that step has no event to wait for
    ++waits_;
    RequireCuda(cudaDeviceSynchronize(), "device");
  }
  // The number counts, and the record is this step's, only when all of it is enqueued.
  has_failed_ = true;
  record.step = 0;
  SendTables(input, shape);
  PrepareStep(buffers_, shape, static_cast<cudaStream_t>(changes_));
  changed_.Record(changes_);
  changed_.HoldBack(own);
  // What the step before gave lies where this one writes.
  const StepRecord& before = steps_kept_[steps_ % kStepsKept];
  if (before.step != 0) before.copied.HoldBack(own);
  if (graph != nullptr) RequireCuda(cudaGraphLaunch(graph, own), "graph");
  record.done.Record(own);
  record.done.HoldBack(copies_);
  std::byte* answer = answers_.data() + (step % kStepsKept) * answer_bytes_;
  if (outputs.bytes > 0) {
    RequireCuda(
        cudaMemcpyAsync(answer, buffers_.outputs, outputs.bytes, cudaMemcpyDeviceToHost, copies_),
        "copy");
  }
  record.copied.Record(copies_);
  record.done.HoldBack(changes_);
  if (graph != nullptr) {  // last: nothing is accepted of a step that fails
    LaunchAccept(
        {.store = buffers_.store,
         .spans = TablesOf(buffers_.tables, shape.output.rows, shape.output.requests).spans,
         .ids = outputs.ids},
        shape.output.requests, static_cast<cudaStream_t>(changes_));
  }

  has_failed_ = false;
  steps_ = step;
  record.step = step;
  record.shape = shape;
  record.is_read = false;
  record.members.clear();
  for (const StepRequest& request : input.requests) {
    const int32_t rows = RowsOf(request);
    Slot& slot = slots_[static_cast<size_t>(request.request.slot)];
    slot.unread += rows;
    record.members.push_back({request.request.slot, slot.generation, rows});
  }
  return handle;
}

// Behind its copy.
void DeviceSampler::Impl::CountTokens(StepRecord& record) {
  const StepOutputs outputs =
      OutputsOf(answers_.data() + (record.step % kStepsKept) * answer_bytes_, record.shape.output);
  record.is_read = true;
  int32_t r = 0;
  for (size_t q = 0; q < record.members.size(); ++q) {
    const Member& member = record.members[q];
    int32_t emitted = 0;
    while (emitted < member.rows && outputs.ids[r + emitted] >= 0) ++emitted;
    outputs.emitted[q] = emitted;
    r += member.rows;
    Slot& slot = slots_[static_cast<size_t>(member.slot)];
    if (slot.generation != member.generation) continue;
    slot.unread -= member.rows;
    slot.tokens += emitted;
  }
}

DeviceStepResult DeviceSampler::Impl::Get(uint64_t step) {
  StepRecord& record = steps_kept_[step % kStepsKept];
  if (record.step != step) {
    ThrowInvalid("step", ToText(static_cast<int64_t>(step)),
                 "one of the last " + ToText(int64_t{kStepsKept}) + ", up to " +
                     ToText(static_cast<int64_t>(steps_)));
  }
  record.copied.Await();
  const OutputShape& shape = record.shape.output;
  const StepOutputs outputs =
      OutputsOf(answers_.data() + (step % kStepsKept) * answer_bytes_, shape);
  if (!record.is_read) CountTokens(record);
  auto part = [](const auto* data, int64_t size) {
    return std::span(data, static_cast<size_t>(size));
  };
  DeviceStepResult result;
  result.ids = part(outputs.ids, shape.rows);
  result.statuses = part(outputs.statuses, shape.rows);
  result.emitted = part(outputs.emitted, shape.requests);
  if (shape.has_cuts) result.cuts = part(outputs.cuts, shape.rows);
  if (shape.has_logprobs) {
    result.logprobs = part(outputs.logprobs, shape.rows);
    result.ranks = part(outputs.ranks, shape.rows);
    result.width = shape.width;
    result.list_ids = part(outputs.list_ids, shape.rows * shape.width);
    result.list_values = part(outputs.list_values, shape.rows * shape.width);
  }
  return result;
}

}  // namespace sluice::cuda
