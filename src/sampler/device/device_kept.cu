// Kept sets as bitmasks: the ties of a row's Cut are resolved to ids, and then every token is
// tested by itself.
#include "cuda/cut_ids.cuh"
#include "cuda/row_by_definition.cuh"
#include "sampler/device/device_kernels.h"

namespace sluice::cuda {
namespace {

// In shared memory.
struct KeptMemory {
  TeamMemory team;
  FindMemory find;
};

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    KeptKernel(const __grid_constant__ KeptArgument argument) {
  __shared__ KeptMemory memory;
  const Team team(memory.team);
  const TeamRow<kDType, kPatched> row(team, argument.rows, TeamIndex(team));
  const int32_t place = argument.places == nullptr ? row.index : argument.places[row.index];
  const bool has_token = argument.ids[place] >= 0;
  CutIds kept{};
  if (has_token) kept = ResolveTies(team, memory.find, row.slice, argument.results[place].cut);
  const int32_t words = (argument.rows.vocab + 31) / 32;
  int32_t* bitmask = argument.bitmasks + int64_t{place} * words;
  const IdOrderedSlice<kDType, kPatched> stretch(team, row.data, argument.rows.vocab,
                                                 PatchIf<kPatched>(argument.rows, row.index));
  stretch.ForEachIn(stretch.kAllParts, [&](float x, int id, uint32_t) {
    const uint32_t word = __ballot_sync(~0u, has_token && id >= 0 && kept.Keeps(x, id));
    if (team.lane() == 0 && id >= 0) bitmask[id / 32] = static_cast<int32_t>(word);
  });
}

}  // namespace

void LaunchKept(KeptArgument argument, DType dtype, void* stream) {
  const void* kernel =
      argument.rows.patches != nullptr
          ? ForDType(dtype, KeptKernel<DType::kF32, true>, KeptKernel<DType::kBf16, true>,
                     KeptKernel<DType::kF16, true>)
          : ForDType(dtype, KeptKernel<DType::kF32, false>, KeptKernel<DType::kBf16, false>,
                     KeptKernel<DType::kF16, false>);
  LaunchOverRows({kernel, WideShapeForRows(argument.rows.rows), 0}, argument.rows.rows, &argument,
                 stream);
}

}  // namespace sluice::cuda
