// A step of a DeviceSampler: its graph, its processors, the copy of its answer, and the Get of it.
#include <algorithm>
#include <utility>

#include "sampler/device/device_sampler_impl.h"
#include "support/check.h"

namespace sluice::cuda {

// The processors of the requests, in the order of both.
void DeviceSampler::Impl::RunProcessors(const StepInput& input, const StepShape& shape,
                                        void* stream) {
  float* values = buffers_.processed.values;
  const int32_t* drafts = TablesOf(buffers_, shape).drafts;
  for (const StepRequest& request : input.requests) {
    const int32_t index = request.request.slot;
    const Slot& slot = slots_[static_cast<size_t>(index)];
    const int32_t* own_drafts = drafts;
    drafts += request.drafts.size();
    if (!ChangesRows(slot.record, slot.processors)) continue;
    const bool is_greedy = slot.record.select.temperature == 0.0f;
    const int64_t stride = buffers_.processed.stride;
    const ProcessorRows rows{.logits = {values, RowsOf(request), options_.vocab, stride,
                                        DType::kF32, shape.logits.device},
                             .tokens = buffers_.store.TokensOf(index),
                             .token_count = &buffers_.store.progress[index].tokens,
                             .drafts = own_drafts,
                             .parents = request.parents,
                             .prompt_length = slot.record.prompt_length};
    for (const DeviceLogitsProcessor& processor : slot.processors) {
      if (is_greedy && processor.argmax_invariant) continue;
      processor.apply(processor.context, rows, stream);
    }
    values += rows.logits.rows * stride;
  }
}

// Captured when a shape comes a second time while it is known; null before. As requests come and go
// many shapes come once, and a capture takes the host longer than the launches do. The kernels of a
// source are captured at once.
cudaGraphExec_t DeviceSampler::Impl::GraphOf(const StepShape& shape) {
  if (const Graph* graph = graphs_.Find(shape)) return *graph;
  if (shape.source.enqueue == nullptr && seen_.Find(shape) == nullptr) {
    seen_.Add(shape, {});
    return nullptr;
  }
  RequireCuda(cudaStreamBeginCapture(captures_, cudaStreamCaptureModeThreadLocal), "graph");
  cudaGraph_t graph = nullptr;
  try {
    const auto stream = static_cast<cudaStream_t>(captures_);
    if (shape.source.enqueue != nullptr) {
      is_calling_back_ = true;
      shape.source.enqueue(shape.source.context, stream);
      is_calling_back_ = false;
    }
    EnqueueStep(buffers_, shape, options_.limits, stream);
  } catch (...) {
    is_calling_back_ = false;
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

void DeviceSampler::Impl::Launch(const StepShape& shape, cudaGraphExec_t graph,
                                 cudaStream_t stream) {
  if (graph != nullptr) {
    RequireCuda(cudaGraphLaunch(graph, stream), "graph");
  } else {
    EnqueueStep(buffers_, shape, options_.limits, stream);
  }
}

StepHandle DeviceSampler::Impl::Step(DeviceSampler* sampler, const StepInput& input, void* stream,
                                     const LogitsSource& source) {
  CheckNotCalledBack();
  StepRecord& record = steps_kept_[(steps_ + 1) % kStepsKept];
  if (!record.is_read) {  // and never will be
    if (!record.copied.IsOver()) {
      ++waits_;
      record.copied.Await();
    }
    CountTokens(record);
  }
  const StepShape shape = CheckStep(input);
  const bool is_processed = shape.processed_rows > 0;
  StepShape first = shape, last = shape;
  first.source = source;
  if (is_processed) {
    first.part = StepPart::kBeforeProcessors;
    last.part = StepPart::kAfterProcessors;
  }
  const bool has_rows = shape.output.rows > 0;
  const cudaGraphExec_t graph = has_rows ? GraphOf(first) : nullptr;
  const cudaGraphExec_t behind = is_processed ? GraphOf(last) : nullptr;
  const uint64_t step = steps_ + 1;
  const cudaStream_t own = static_cast<cudaStream_t>(stream);
  const StepOutputs outputs = OutputsOf(buffers_.outputs, shape.output);
  StepHandle handle;
  handle.sampler_ = sampler;
  handle.step_ = step;
  handle.ids_ = {outputs.ids, shape.output.rows};
  handle.statuses_ = {outputs.statuses, shape.output.rows};
  if (shape.has_verdict) handle.emitted_ = {outputs.emitted, shape.output.requests};
  if (shape.has_kept) {
    handle.kept_ = {buffers_.kept, shape.output.rows * ((options_.vocab + 31) / 32)};
  }
  if (shape.output.has_path) handle.path_ = {outputs.path, shape.output.rows};
  if (shape.output.has_logprobs) {
    const int64_t rows = shape.output.rows, width = shape.output.width;
    handle.report_ = {{outputs.logprobs, rows},
                      {outputs.ranks, rows},
                      shape.output.width,
                      {outputs.list_ids, rows * width},
                      {outputs.list_values, rows * width}};
  }
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
  if (has_rows) Launch(first, graph, own);
  if (is_processed) {
    try {
      is_calling_back_ = true;
      RunProcessors(input, shape, stream);
      is_calling_back_ = false;
    } catch (...) {
      is_calling_back_ = false;
      // What was enqueued may still read requests, so their changes wait for it.
      has_failed_ = cudaEventRecord(record.done, own) != cudaSuccess ||
                    cudaStreamWaitEvent(changes_, record.done, 0) != cudaSuccess;
      if (has_failed_) cudaGetLastError();
      throw;
    }
    Launch(last, behind, own);
  }
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
  if (has_rows) {  // last: nothing is accepted of a step that fails
    LaunchAccept({.store = buffers_.store,
                  .spans = TablesOf(buffers_, shape).spans,
                  .ids = outputs.ids,
                  .goes_on_with_zero = options_.goes_on_with_zero},
                 shape.output.requests, static_cast<cudaStream_t>(changes_));
  }

  has_failed_ = false;
  steps_ = step;
  record.step = step;
  record.shape = shape;
  record.is_read = false;
  record.members.clear();
  for (const StepRequest& request : input.requests) {
    const int32_t most_tokens = MostTokens(request);
    Slot& slot = slots_[static_cast<size_t>(request.request.slot)];
    slot.unread += most_tokens;
    record.members.push_back({request.request.slot, slot.generation, RowsOf(request), most_tokens});
  }
  return handle;
}

// Call it after its copy.
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
    slot.unread -= member.most_tokens;
    slot.tokens += emitted == 0 && options_.goes_on_with_zero ? 1 : emitted;
  }
}

DeviceStepResult DeviceSampler::Impl::Get(uint64_t step) {
  CheckNotCalledBack();
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
  if (shape.has_masses) result.masses = part(outputs.masses, shape.rows);
  if (shape.has_path) result.path = part(outputs.path, shape.rows);
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
