// The clusters of a head by a GPU: found there, and searched there. Link Sluice::research_cuda.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sluice/cuda/head.hpp"
#include "sluice/research/clusters.hpp"

namespace sluice::research {

// K-means on the current device, in fp32, for ClusterOptions::means: the same means for the same
// task on the same device, close to those of the processor's threads and not their bits. Takes
// device memory for points, means and assignments while Find runs, on a stream of its own; throws
// Error (kExhausted) that says how much where there is none.
class DeviceMeans final : public MeansFinder {
 public:
  void Find(const MeansTask& task) const override;
};

// The clusters of a head in device memory that the caller owns.
struct DeviceClusters {
  ClusterMetric metric = ClusterMetric::kEuclidean;
  bool folds_bias = false;
  int64_t vocab = 0;
  int64_t dim = 0;
  int64_t clusters = 0;
  int64_t centroids = 0;
  cuda::DeviceArray<const std::byte> memory = {};
};

size_t DeviceClusterBytes(const HeadClusters& clusters);

// memory: at least DeviceClusterBytes, aligned to 256. Waits for the copy: `clusters` may go.
DeviceClusters UploadClusters(const HeadClusters& clusters, cuda::DeviceArray<std::byte> memory,
                              void* stream);

struct ClusterCall {
  cuda::HeadWeights head = {};
  DeviceClusters clusters = {};
  MatrixView hidden = {};                       // [rows, dim], any dtype
  cuda::DeviceArray<std::byte> workspace = {};  // ClusterWorkspaceBytes, aligned to 256
  ClusterBudget budget = {};
  // Empty: every question is a sequence's first. Or one a row, all bytes zero before the first
  // question of its sequence; a call reads and writes them.
  cuda::DeviceArray<ClusterPace> paces = {};
};

// For calls with as many hidden states or fewer, up to kMostCertifiedRows.
size_t ClusterWorkspaceBytes(const DeviceClusters& clusters, int64_t rows);

// What became of a row, as ClusterAnswer.
struct ClusterRow {
  int32_t count = 0;  // ids and logits; 0 where a hidden state or a logit is not finite
  ClusterPath path = ClusterPath::kBudget;
  ClusterReason reason = ClusterReason::kNone;
  int32_t clusters_opened = 0;
  int32_t rows_opened = 0;
  double epsilon = 0.0;  // kSoftmax: the total variation at most
};

// Room a row: k for kTopK, else the vocabulary. The elements after a row's count are left alone.
struct ClusterPlaces {
  cuda::DeviceArray<int32_t> ids = {};
  cuda::DeviceArray<float> logits = {};
  cuda::DeviceArray<ClusterRow> rows = {};  // one a row
};

// As ClusterSearch::Search, of each hidden state by itself. The first k tokens, those that top-p
// keeps and all logits are the same, bit for bit; clusters are opened in rounds, each of twice the
// rows of those before it, so it may open other clusters on the way, and kSoftmax may have other
// tokens. Those come in the order in which they were opened.
void SearchClusters(const ClusterCall& call, const ClusterQuestion& question,
                    const ClusterPlaces& places, void* stream);

}  // namespace sluice::research
