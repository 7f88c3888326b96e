// Raw log-probabilities by a kernel of their own, concurrent with the draw: it waits for the token
// only when both of its reads are done.
#include "draw/cuda/raw_report.cuh"

namespace sluice::cuda {
namespace {

// In shared memory.
struct RawKernelMemory {
  TeamMemory team;
  RawMemory raw;
};

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    RawLogprobsKernel(const __grid_constant__ LogprobsArgument argument) {
  // Parameters have constructors.
  __shared__ __align__(16) unsigned char shared[sizeof(RawKernelMemory)];
  RawKernelMemory& memory = *reinterpret_cast<RawKernelMemory*>(shared);
  const Team team(memory.team);
  const int index = TeamIndex(team);
  const RowReport report(argument, index);
  if (!report.is_requested()) {
    AwaitKernelBefore();
    if (team.rank() == 0) report.PutNothing(team);
    return;
  }
  ReportRaw<kDType>(team, memory.raw, argument, index, report, [] { AwaitKernelBefore(); });
}

}  // namespace

const void* RawLogprobsKernelFor(DType dtype) {
  return ForDType(dtype, RawLogprobsKernel<DType::kF32>, RawLogprobsKernel<DType::kBf16>,
                  RawLogprobsKernel<DType::kF16>);
}

}  // namespace sluice::cuda
