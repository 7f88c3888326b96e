#include <cuda_runtime.h>

#include <cmath>

#include "python/device/token_table.h"
#include "sluice/error.hpp"

namespace sluice::python {
namespace {

constexpr int kThreads = 256;

struct StepArrays {
  const int32_t* ids;
  const float* logprobs;
  const int32_t* ranks;
  const int32_t* list_ids;
  const float* list_values;
  int32_t width;  // of the lists; the token is the first entry
  int64_t rows;
};

// A thread for each entry of the tables, or for each row without them.
__global__ void TokenTableKernel(StepArrays step, TokenTable table) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int32_t columns = max(table.columns, 1);
  const int64_t row = at / columns;
  const int32_t column = static_cast<int32_t>(at % columns);
  if (row >= step.rows) return;
  const int32_t token = step.ids[row];
  if (column == 0) table.tokens[row] = max(token, 0);
  if (table.columns == 0) return;
  int32_t id = -1;
  float value = -INFINITY;
  if (column == 0) {
    table.ids[at] = max(token, 0);
    table.logprobs[at] = step.logprobs == nullptr ? -INFINITY : step.logprobs[row];
    table.ranks[row] = step.logprobs == nullptr ? 0 : step.ranks[row];
    return;
  }
  if (column < step.width) {
    id = step.list_ids[row * step.width + column];
    value = step.list_values[row * step.width + column];
  }
  table.ids[at] = max(id, 0);
  table.logprobs[at] = id < 0 ? -INFINITY : value;
}

}  // namespace

void LaunchTokenTable(const cuda::StepHandle& step, const TokenTable& table, void* stream) {
  const cuda::DeviceStepReport& report = step.report();
  const int64_t rows = step.ids().size;
  if (rows == 0) return;
  const int64_t entries = rows * (table.columns > 0 ? table.columns : 1);
  TokenTableKernel<<<static_cast<unsigned>((entries + kThreads - 1) / kThreads), kThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(
      {step.ids().data, report.logprobs.data, report.ranks.data, report.list_ids.data,
       report.list_values.data, report.width, rows},
      table);
  if (const cudaError_t result = cudaGetLastError(); result != cudaSuccess) {
    throw Error(ErrorCode::kUnavailable, "table", cudaGetErrorString(result),
                "a device that works");
  }
}

}  // namespace sluice::python
