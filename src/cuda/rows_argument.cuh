// The row of a team among those of a launch.
#pragma once

#include "cuda/row_launch.h"
#include "cuda/team.cuh"

namespace sluice::cuda {

__device__ inline int TeamIndex(const Team& team) {
  return static_cast<int>(blockIdx.x) / team.blocks();
}

__device__ inline void* RowOf(const RowsArgument& rows, int row) {
  return static_cast<char*>(rows.data) + row * rows.stride_bytes;
}

}  // namespace sluice::cuda
