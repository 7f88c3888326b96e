// GPUs that exchange through NCCL. Link Sluice::nccl, which is there where NCCL was found.
#pragma once

#include <chrono>
#include <memory>

#include "sluice/cuda_shards.hpp"

namespace sluice::cuda {

class NcclShardGroup : public DeviceShardGroup {
 public:
  // Waits until all that is on the stream is done. Where that takes longer than the limit, or NCCL
  // reports an error, gives up the exchanges and throws Error, naming the rank that no longer
  // answers if there is one; the group is of no more use then.
  virtual void Await(void* stream) = 0;
};

// On the current device of each rank. `group`: the same ranks, over which they meet and find out
// who is missing; it must outlive the answer. limit: of Await.
std::unique_ptr<NcclShardGroup> ConnectNcclGroup(ShardGroup& group,
                                                 std::chrono::milliseconds limit);

}  // namespace sluice::cuda
