// The row of a team among those of a launch.
#pragma once

#include "backend/row_launch.h"
#include "backend/team.cuh"

namespace sluice::cuda {

__device__ inline int TeamIndex(const Team& team) {
  return static_cast<int>(blockIdx.x) / team.blocks();
}

__device__ inline void* RowOf(const RowsArgument& rows, int row) {
  return static_cast<char*>(rows.data) + row * rows.stride_bytes;
}

// visit(row) for the rows of this team that are left, in a grid that may have fewer teams than
// there are rows. A lane asks for a row, so that all are asked for at once; the whole team gets the
// same answers, as nobody decides a row without it.
template <typename IsLeft, typename Visit>
__device__ void ForEachRow(const Team& team, const RowsArgument& rows, IsLeft is_left,
                           Visit visit) {
  const int teams = static_cast<int>(gridDim.x) / team.blocks();
#pragma unroll 1
  for (int first = TeamIndex(team); first < rows.rows; first += kWarpSize * teams) {
    const int mine = first + team.lane() * teams;
    uint32_t left = __ballot_sync(~0u, mine < rows.rows && is_left(mine));
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      visit(first + (__ffs(static_cast<int>(left)) - 1) * teams);
      team.SyncBlock();  // before the next row takes the shared memory
    }
  }
}

}  // namespace sluice::cuda
