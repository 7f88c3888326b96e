// What a HeadClusters holds, in memory as in a file: header, shapes, centroids, the tokens of one
// cluster after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "research/clusters/cluster_bound.h"
#include "sluice/research/clusters.hpp"

namespace sluice::research {

inline constexpr char kClusterMagic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'H', 'C'};
inline constexpr uint32_t kClusterVersion = 2;

struct ClusterHeader {
  char magic[8];
  uint32_t version;
  uint32_t metric;
  uint32_t dtype;  // of the weights
  uint32_t folds_bias;
  int64_t vocab;
  int64_t dim;
  int64_t clusters;  // shapes
  int64_t centroids;
  uint64_t head_hash;      // of weights and biases
  uint64_t sections_hash;  // of what follows the header
  uint64_t file_bytes;
  uint64_t header_hash;  // of the fields above
};

struct ClusterLayout {
  explicit ClusterLayout(const ClusterHeader& header);  // of vocab, dim, clusters and centroids

  size_t shapes;
  size_t centroids;
  size_t tokens;
  size_t end;
};

// The sections, to read.
struct ClusterView {
  const ClusterHeader* header = nullptr;
  std::span<const ClusterShape> shapes = {};
  const float* centroids = nullptr;  // [centroids][dim]
  const int32_t* tokens = nullptr;   // [vocab]

  const float* Centroid(int64_t cluster) const {
    return centroids + int64_t{shapes[static_cast<size_t>(cluster)].centroid} * header->dim;
  }
  std::span<const int32_t> Tokens(int64_t cluster) const {
    const ClusterShape& shape = shapes[static_cast<size_t>(cluster)];
    return {tokens + shape.begin, static_cast<size_t>(shape.size)};
  }
};

class HeadClusters::Impl {
 public:
  virtual ~Impl() = default;
  std::span<const std::byte> bytes() const { return bytes_; }
  ClusterView view() const;

 protected:
  std::span<const std::byte> bytes_;
};

struct ClusterAccess {
  static ClusterView View(const HeadClusters& clusters) { return clusters.impl_->view(); }
  static HeadClusters Make(std::shared_ptr<const HeadClusters::Impl> impl) {
    HeadClusters clusters;
    clusters.impl_ = std::move(impl);
    return clusters;
  }
};

uint64_t HashOfHead(const DenseHead& head, const ParallelFor& parallel);
uint64_t HashOfHeader(const ClusterHeader& header);

}  // namespace sluice::research
