// The clusters of a head by a GPU. Link Sluice::cuda.
#pragma once

#include "sluice/cluster_head.hpp"

namespace sluice::cuda {

// K-means on the current device, in fp32, for ClusterOptions::means: the same means for the same
// task on the same device, close to those of the processor's threads and not their bits. Takes
// device memory for points, means and assignments while Find runs, on a stream of its own; throws
// Error (kExhausted) that says how much where there is none.
class DeviceMeans final : public MeansFinder {
 public:
  void Find(const MeansTask& task) const override;
};

}  // namespace sluice::cuda
