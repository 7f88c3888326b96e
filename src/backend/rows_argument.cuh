// The row of a team among those of a launch.
#pragma once

#include "backend/row_launch.h"
#include "backend/team.cuh"

namespace sluice::cuda {

__device__ inline int RowIndex(const Team& team) {
  return static_cast<int>(blockIdx.x) / team.blocks();
}

__device__ inline void* RowOf(const Team& team, const RowsArgument& rows) {
  return static_cast<char*>(rows.data) + RowIndex(team) * rows.stride_bytes;
}

}  // namespace sluice::cuda
