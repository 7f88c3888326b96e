// What requests ask for beside their tokens: before the log-probabilities of a mode, which rows
// want them; behind, what becomes of them.
#include <limits>

#include "backend/cuda_check.h"
#include "pipeline/device_kernels.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;

__device__ bool Wants(const ReportArgument& argument, int r) {
  const RequestRecord& record = argument.store.records[argument.rows[r].slot];
  return record.has_logprobs && record.logprob_mode == argument.mode;
}

__global__ void AskKernel(const __grid_constant__ ReportArgument argument) {
  const int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (r >= argument.row_count) return;
  TokenResult result;
  if (Wants(argument, r) && argument.ids[r] >= 0) {
    result.id = argument.ids[r];
    if (argument.results != nullptr) result.cut = argument.results[r].cut;
  }
  argument.asked[r] = result;
}

// A block a row.
__global__ void AnswerKernel(const __grid_constant__ ReportArgument argument) {
  const int r = static_cast<int>(blockIdx.x);
  const bool wants = Wants(argument, r);
  const RequestRecord& record = argument.store.records[argument.rows[r].slot];
  if (!wants && record.has_logprobs) return;  // another mode
  const TokenResult& result = argument.asked[r];
  const bool has_token = wants && result.id >= 0;
  if (threadIdx.x == 0) {
    argument.logprobs[r] = has_token ? result.logprob : semantics::QuietNan();
    argument.ranks[r] = has_token ? result.rank : 0;
  }
  const int32_t own = has_token ? 1 + record.listed_logprobs : 0;
  for (int32_t n = static_cast<int32_t>(threadIdx.x); n < argument.width; n += kThreads) {
    const int64_t at = int64_t{r} * argument.width + n;
    argument.list_ids[at] = n < own ? argument.asked_ids[at] : -1;
    argument.list_values[at] = n < own ? argument.asked_values[at] : semantics::QuietNan();
  }
}

}  // namespace

void LaunchAsk(const ReportArgument& argument, void* stream) {
  if (argument.row_count == 0) return;
  const unsigned blocks = (static_cast<unsigned>(argument.row_count) + kThreads - 1) / kThreads;
  AskKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchAnswer(const ReportArgument& argument, void* stream) {
  if (argument.row_count == 0) return;
  AnswerKernel<<<static_cast<unsigned>(argument.row_count), kThreads, 0,
                 static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
