#include <cuda_runtime.h>

#include "tests/sampler/device/test_processors.h"

namespace sluice::test {
namespace {

__global__ void TestProcessorKernel(TestProcessor processor, cuda::ProcessorRows rows,
                                    DraftPaths paths) {
  const int64_t r = blockIdx.x;
  float* row = static_cast<float*>(rows.logits.data) + r * rows.logits.stride;
  const int64_t accepted = *rows.token_count;
  const auto token = [&](int64_t i) {
    return i < accepted ? rows.tokens[i] : rows.drafts[paths.draft[r][i - accepted]];
  };
  for (int32_t id = static_cast<int32_t>(threadIdx.x); id < rows.logits.vocab;
       id += static_cast<int32_t>(blockDim.x)) {
    row[id] = processor(token, accepted + paths.depth[r], rows.prompt_length, id, row[id]);
  }
}

}  // namespace

void TestProcessor::Enqueue(void* self, const cuda::ProcessorRows& rows, void* stream) {
  const auto count = static_cast<unsigned>(rows.logits.rows);
  TestProcessorKernel<<<count, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      *static_cast<TestProcessor*>(self), rows, DraftPaths(rows));
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("kernel");
}

}  // namespace sluice::test
