// What the graphs of a DeviceSampler do of rows that processors change, and what is reported of
// rows in addition to their tokens.
#include "draw/mode_value.h"
#include "sampler/device/device_sampler_impl.h"

namespace sluice::cuda {
namespace {

// The rows that processors change, as rows of a call of their own.
LogitsView ProcessedRows(const DeviceBuffers& buffers, const StepShape& shape) {
  return {buffers.processed.values, shape.processed_rows, shape.logits.vocab,
          buffers.processed.stride, DType::kF32,          shape.logits.device};
}
RowParams ProcessedParams(const DeviceBuffers& buffers, const StepShape& shape,
                          const Limits& limits) {
  return {{buffers.processed.params, shape.processed_rows},
          {buffers.processed.keys, shape.processed_rows},
          limits};
}

// Values that are reported as processed are those of the rows that processors have changed, where
// some have.
void EnqueueLogprobs(const DeviceBuffers& buffers, const StepShape& shape, LogprobMode mode,
                     const Limits& limits, bool is_behind_draw, void* stream) {
  LogprobsArgument argument = ReportOf(buffers, shape, mode, limits);
  LaunchLogprobs(argument, shape.logits.dtype, stream, is_behind_draw);
  if (!IsProcessed(mode) || shape.processed_rows == 0) return;
  argument.rows =
      ArgumentOf(ProcessedRows(buffers, shape), ProcessedParams(buffers, shape, limits));
  argument.step.places = TablesOf(buffers, shape).processed_rows;
  LaunchLogprobs(argument, DType::kF32, stream);
}

void EnqueueMasses(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                   void* stream) {
  const int64_t rows = shape.output.rows;
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  Select(shape.logits, ParamsOf(buffers, shape, limits), {buffers.mass_cuts, rows},
         {outputs.masses, rows}, stream);
  const ProcessedBuffers& processed = buffers.processed;
  if (shape.processed_rows > 0) {
    Select(ProcessedRows(buffers, shape), ProcessedParams(buffers, shape, limits),
           {processed.cuts, shape.processed_rows}, {processed.masses, shape.processed_rows},
           stream);
  }
  LaunchSettleMasses({.rows = TablesOf(buffers, shape).rows,
                      .count = static_cast<int32_t>(rows),
                      .ids = outputs.ids,
                      .processed = processed.masses,
                      .masses = outputs.masses},
                     stream);
}

void EnqueueKept(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                 void* stream) {
  KeptArgument argument{.rows = ArgumentOf(shape.logits, ParamsOf(buffers, shape, limits)),
                        .places = nullptr,
                        .results = buffers.results,
                        .ids = OutputsOf(buffers.outputs, shape.output).ids,
                        .bitmasks = buffers.kept};
  LaunchKept(argument, shape.logits.dtype, stream);
  if (shape.processed_rows == 0) return;
  argument.rows =
      ArgumentOf(ProcessedRows(buffers, shape), ProcessedParams(buffers, shape, limits));
  argument.places = TablesOf(buffers, shape).processed_rows;
  LaunchKept(argument, DType::kF32, stream);
}

}  // namespace

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
          .step = {.requested = TablesOf(buffers, shape).requested,
                   .ids = outputs.ids,
                   .logprobs = outputs.logprobs,
                   .ranks = outputs.ranks}};
}

void EnqueueWriteOut(const DeviceBuffers& buffers, const StepShape& shape, void* stream) {
  const LogitsView& logits = shape.logits;
  const StepTables tables = TablesOf(buffers, shape);
  const ProcessedBuffers& processed = buffers.processed;
  LaunchWriteOut({.places = tables.processed_rows,
                  .logits = logits.data,
                  .stride_bytes = logits.stride * static_cast<int64_t>(SizeOf(logits.dtype)),
                  .dtype = logits.dtype,
                  .vocab = static_cast<int32_t>(logits.vocab),
                  .params = buffers.params,
                  .keys = buffers.keys,
                  .patches = shape.has_patches ? buffers.patches : nullptr,
                  .values = processed.values,
                  .stride = processed.stride,
                  .written_params = processed.params,
                  .written_keys = processed.keys},
                 shape.processed_rows, stream);
}

void EnqueueProcessedDraws(const DeviceBuffers& buffers, const StepShape& shape,
                           const Limits& limits, void* stream) {
  const StepTables tables = TablesOf(buffers, shape);
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const ProcessedBuffers& processed = buffers.processed;
  const int64_t count = shape.processed_rows;
  LaunchForce({.values = processed.values,
               .stride = processed.stride,
               .vocab = static_cast<int32_t>(shape.logits.vocab),
               .forced = tables.processed_forced},
              count, stream);
  auto draw = [&](DrawMethod method, TokenResult* results, int32_t* ids, RowStatus* statuses) {
    Sample(ProcessedRows(buffers, shape), ProcessedParams(buffers, shape, limits), method,
           {processed.results, count}, stream);
    LaunchPlace({.places = tables.processed_rows,
                 .count = shape.processed_rows,
                 .from = processed.results,
                 .results = shape.has_results ? results : nullptr,
                 .ids = ids,
                 .statuses = statuses},
                stream);
  };
  draw(MethodOf(shape), buffers.results, outputs.ids, outputs.statuses);
  if (shape.draws_both()) {
    draw(DrawMethod::kCdf, buffers.cdf_results, buffers.cdf_ids, buffers.cdf_statuses);
  }
}

void EnqueueReports(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                    bool is_behind_draw, void* stream) {
  for (int mode = 0; mode < 4; ++mode) {
    if ((shape.modes >> mode & 1) == 0) continue;
    EnqueueLogprobs(buffers, shape, static_cast<LogprobMode>(mode), limits, is_behind_draw, stream);
    is_behind_draw = false;
  }
  if (shape.output.has_masses) EnqueueMasses(buffers, shape, limits, stream);
  if (shape.has_kept) EnqueueKept(buffers, shape, limits, stream);
}

}  // namespace sluice::cuda
