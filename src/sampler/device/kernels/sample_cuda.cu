// Sample and SampleIds.
#include "sampler/device/kernels/sample_adjusted.h"
#include "sampler/device/kernels/sample_kernel.cuh"

namespace sluice::cuda {
namespace {

const void* KernelFor(DType dtype, bool is_patched, bool has_typical) {
  if (has_typical) {
    return is_patched ? PatchedTypicalSampleKernelFor(dtype) : TypicalSampleKernelFor(dtype);
  }
  return is_patched ? PatchedSampleKernelFor(dtype) : SampleKernelFor<false>(dtype);
}

void Launch(const LogitsView& logits, SampleArgument argument, void* stream,
            const AdjustedDraw& draw = {}) {
  const void* kernel = KernelFor(logits.dtype, argument.rows.patches != nullptr, draw.has_typical);
  LaunchOverRows({kernel, ShapeForRows(logits.rows), sizeof(SampleMemory), draw.starts_early},
                 logits.rows, &argument, stream);
}

}  // namespace

void SampleAdjusted(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, const AdjustedDraw& draw, void* stream) {
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = samples.results,
          .ids = samples.ids,
          .statuses = samples.statuses,
          .ways = samples.ways},
         stream, draw);
}

void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("results", results, logits.rows);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = results.data,
          .ids = nullptr,
          .statuses = nullptr,
          .ways = nullptr},
         stream);
}

void SampleIds(const LogitsView& logits, const RowParams& params, DrawMethod method,
               DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream,
               DeviceArray<RowPath> paths) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, true);
  CheckMethod(method);
  CheckOneARow("ids", ids, logits.rows);
  CheckOneARow("statuses", statuses, logits.rows, true);
  CheckOneARow("paths", paths, logits.rows, true);
  Launch(logits,
         {.rows = ArgumentOf(logits, params),
          .method = method,
          .results = nullptr,
          .ids = ids.data,
          .statuses = statuses.size == 0 ? nullptr : statuses.data,
          .ways = paths.size == 0 ? nullptr : paths.data},
         stream);
}

}  // namespace sluice::cuda
