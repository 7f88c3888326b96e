// The kernels of a DeviceSampler's step, in their order.
#include <optional>

#include "cuda/row_launch.h"
#include "sampler/device/device_sampler_impl.h"
#include "sampler/device/kernels/sample_adjusted.h"
#include "sampler/device/kernels/sample_reported.h"

namespace sluice::cuda {
namespace {

PatchArgument PatchOf(const DeviceBuffers& buffers, const StepShape& shape) {
  const LogitsView& logits = shape.logits;
  const StepTables tables = TablesOf(buffers, shape);
  return {.store = buffers.store,
          .rows = tables.rows,
          .trees = tables.trees,
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

// The mode that the draw reports in the same kernel: a raw one, alone, where nothing changes the
// rows or their tokens and the draw's lists have most of the report.
std::optional<LogprobMode> ModeBesideDraw(const StepShape& shape) {
  if (shape.has_patches || shape.has_verdict || shape.has_wide || shape.processed_rows > 0)
    return std::nullopt;
  for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits}) {
    if (shape.modes == 1u << static_cast<int>(mode)) return mode;
  }
  return std::nullopt;
}

// From the logits to a token a row.
void EnqueueDraws(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                  void* stream) {
  const int64_t rows = shape.output.rows;
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const DeviceArray<int32_t> ids{outputs.ids, rows};
  const DeviceArray<RowStatus> statuses{outputs.statuses, rows};
  if (shape.is_greedy) {
    SampleIds(shape.logits, {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits},
              DrawMethod::kGumbel, ids, statuses, stream);
    return;
  }
  if (shape.has_values) LaunchApply(PatchOf(buffers, shape), rows, stream);
  const RowParams params = ParamsOf(buffers, shape, limits);
  const DrawMethod method = MethodOf(shape);
  const bool has_results = shape.has_results;
  if (shape.has_values || shape.has_typical) {
    SampleAdjusted(shape.logits, params, method,
                   {has_results ? buffers.results : nullptr, outputs.ids, outputs.statuses},
                   {.starts_early = shape.has_values, .has_typical = shape.has_typical}, stream);
  } else if (has_results) {
    Sample(shape.logits, params, method, {buffers.results, rows}, stream);
  } else {
    SampleIds(shape.logits, params, method, ids, statuses, stream);
  }
  if (!shape.draws_both()) return;
  if (has_results) {
    Sample(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_results, rows}, stream);
  } else {
    SampleIds(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_ids, rows},
              {buffers.cdf_statuses, rows}, stream);
  }
}

}  // namespace

void PrepareStep(const DeviceBuffers& buffers, const StepShape& shape, void* stream) {
  if (!shape.is_greedy) LaunchPrepare(PatchOf(buffers, shape), shape.output.rows, stream);
}

RowParams ParamsOf(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits) {
  const int64_t rows = shape.output.rows;
  RowParams params{{buffers.params, rows}, {buffers.keys, rows}, limits};
  if (shape.has_patches) params.patches = {buffers.patches, rows};
  return params;
}

void EnqueueStep(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                 void* stream) {
  if (const auto mode = ModeBesideDraw(shape)) {
    RowParams params = ParamsOf(buffers, shape, limits);
    if (shape.is_greedy) params = {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits};
    const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
    SampleReported(shape.logits, params, MethodOf(shape), {nullptr, outputs.ids, outputs.statuses},
                   ReportOf(buffers, shape, *mode, limits), stream);
    return;
  }
  if (shape.part != StepPart::kAfterProcessors) EnqueueDraws(buffers, shape, limits, stream);
  if (shape.part == StepPart::kBeforeProcessors) {
    EnqueueWriteOut(buffers, shape, stream);
    return;
  }
  if (shape.part == StepPart::kAfterProcessors) {
    EnqueueProcessedDraws(buffers, shape, limits, stream);
  }
  const int64_t rows = shape.output.rows;
  const StepTables tables = TablesOf(buffers, shape);
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const bool has_both = shape.draws_both();
  const bool has_results = shape.has_results;
  const bool has_trees = shape.output.has_path;
  if (shape.has_models) {
    LaunchDraftDistributions(tables.models, buffers.distributions,
                             static_cast<int32_t>(shape.logits.vocab), rows, stream);
  }
  if (shape.rejects) {
    auto* const launch = has_trees ? LaunchRejectTrees : LaunchReject;
    launch({.store = buffers.store,
            .rows = tables.rows,
            .trees = tables.trees,
            .drafts = tables.drafts,
            .logits = shape.logits.data,
            .stride_bytes = shape.logits.stride * static_cast<int64_t>(SizeOf(shape.logits.dtype)),
            .dtype = shape.logits.dtype,
            .vocab = static_cast<int32_t>(shape.logits.vocab),
            .params = buffers.params,
            .keys = buffers.keys,
            .patches = buffers.patches,
            .processed = buffers.processed.values,
            .processed_stride = buffers.processed.stride,
            .probabilities = tables.probabilities,
            .distributions = shape.has_models ? buffers.distributions : nullptr,
            .results = buffers.results,
            .accepted = buffers.accepted},
           rows, stream);
  }
  if (shape.has_verdict) {
    auto* const launch = has_trees ? LaunchTreeVerdict : LaunchVerdict;
    launch({.store = buffers.store,
            .rows = tables.rows,
            .trees = tables.trees,
            .drafts = tables.drafts,
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
            .emitted = outputs.emitted,
            .path = has_trees ? outputs.path : nullptr},
           stream);
  }
  const bool is_behind_draw = shape.part == StepPart::kWhole && !shape.has_verdict && !has_both;
  EnqueueReports(buffers, shape, limits, is_behind_draw, stream);
  if (has_trees) {
    const int32_t words = static_cast<int32_t>((shape.logits.vocab + 31) / 32);
    LaunchCompact({.spans = tables.spans,
                   .path = outputs.path,
                   .ids = outputs.ids,
                   .statuses = outputs.statuses,
                   .cuts = shape.output.has_cuts ? outputs.cuts : nullptr,
                   .masses = shape.output.has_masses ? outputs.masses : nullptr,
                   .logprobs = shape.output.has_logprobs ? outputs.logprobs : nullptr,
                   .ranks = outputs.ranks,
                   .width = shape.output.has_logprobs ? shape.output.width : 0,
                   .list_ids = outputs.list_ids,
                   .list_values = outputs.list_values,
                   .kept_words = shape.has_kept ? words : 0,
                   .kept = buffers.kept},
                  shape.output.requests, stream);
  }
}

}  // namespace sluice::cuda
