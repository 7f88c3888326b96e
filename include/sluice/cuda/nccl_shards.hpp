// GPUs that exchange through NCCL. Link Sluice::nccl, which is there where NCCL was found, and,
// with an installed Sluice, NCCL itself.
#pragma once

#include <chrono>
#include <memory>

#include "sluice/cuda/shards.hpp"

namespace sluice::cuda {

// Destroying it gives up the exchanges that are still on a stream: Await first.
class NcclShardGroup : public DeviceShardGroup {
 public:
  // Waits until all that is on the stream is done. Where that takes longer than the limit, or NCCL
  // reports an error, gives up the exchanges and throws Error, naming the rank that no longer
  // answers if there is one; the group is of no more use then. To find that rank the ranks meet in
  // the ShardGroup. The limit of that group must be longer than the time between the first of them
  // giving up and the last.
  virtual void Await(void* stream) = 0;
};

// On the current device of each rank. `group`: the same ranks, over which they meet and find
// missing ranks; it must outlive the answer, and its own limit must be longer than this one. limit:
// of this meeting and of Await. Throws Error on every rank that is well, naming the first
// that is not.
std::unique_ptr<NcclShardGroup> ConnectNcclGroup(ShardGroup& group,
                                                 std::chrono::milliseconds limit);

}  // namespace sluice::cuda
