// Broadcasts the decision of a team's first block to the others: they wait for it in their own
// shared memory, so no block waits for all, and the first block leaves alone: from the last Sync
// on, no block may address its memory.
#pragma once

#include "cuda/ptx.cuh"
#include "cuda/team.cuh"

namespace sluice::cuda {

// In shared memory, of every block.
struct BroadcastMemory {
  uint64_t barrier;
  uint32_t sent;
};

class TeamBroadcast {
 public:
  // Before ArriveStarted.
  __device__ TeamBroadcast(const Team& team, BroadcastMemory& memory)
      : team_(team), memory_(memory) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (team.thread() == 0 && team.rank() != 0) {  // the first block waits for none
      StartBarrier(&memory.barrier);
      ExpectBytes(&memory.barrier, sizeof memory.sent);
    }
#endif
  }

  // By the first thread, to all; once after every guess. Where the value is 0, which means to go
  // on, the team does so together. The broadcast does not publish what threads have written.
  __device__ uint32_t Send(uint32_t word) {
    if (team_.IsFirstThread()) memory_.sent = word;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (team_.blocks() > 1) {
      if (team_.rank() == 0 && team_.thread() < kWarpSize) {
        const uint32_t sent = __shfl_sync(~0u, word, 0);
        const int other = team_.lane();
        if (other > 0 && other < team_.blocks()) {
          SendWord(other, &memory_.sent, sent, &memory_.barrier);
        }
      } else if (team_.rank() != 0) {
        AwaitBarrier(&memory_.barrier, times_ % 2);
      }
    }
#endif
    ++times_;
    if (team_.rank() == 0) team_.SyncBlock();
    const uint32_t sent = memory_.sent;
    if (sent == 0) {
      team_.Sync();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      if (team_.thread() == 0 && team_.rank() != 0) {
        ExpectBytes(&memory_.barrier, sizeof memory_.sent);
      }
#endif
    }
    return sent;
  }

 private:
  const Team& team_;
  BroadcastMemory& memory_;
  int times_ = 0;
};

}  // namespace sluice::cuda
