// Clusters as a file.
#include "research/clusters/cluster_file.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "head/certified/plane_file.h"
#include "support/check.h"
#include "support/mapped_file.h"

namespace sluice::research {
namespace {

constexpr size_t kAlignment = 64;

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

[[noreturn]] void Refuse(const std::string& path, const std::string& found,
                         const std::string& allowed) {
  ThrowInvalid("clusters", ToText(path) + " (" + found + ")", allowed);
}

class MappedClusters : public HeadClusters::Impl {
 public:
  explicit MappedClusters(const std::string& path) : file_(path, "clusters", "a file of clusters") {
    bytes_ = file_.bytes();
    if (bytes_.size() < sizeof(ClusterHeader)) {
      Refuse(path, "truncated: " + std::to_string(bytes_.size()) + " bytes",
             "at least the " + std::to_string(sizeof(ClusterHeader)) + " bytes of a header");
    }
  }

 private:
  MappedFile file_;
};

void CheckHeader(const std::string& path, const ClusterHeader& header, size_t bytes) {
  if (std::memcmp(header.magic, kPlaneMagic, sizeof header.magic) == 0) {
    Refuse(path, "planes of a certified head",
           "clusters of a head, which HeadClusters::Save wrote");
  }
  if (std::memcmp(header.magic, kClusterMagic, sizeof header.magic) != 0) {
    Refuse(path, "does not begin with SLUICEHC", "a file that HeadClusters::Save wrote");
  }
  if (header.version != kClusterVersion) {
    Refuse(path, "version " + std::to_string(header.version),
           "version " + std::to_string(kClusterVersion) + ": build the clusters again");
  }
  if (header.header_hash != HashOfHeader(header)) {
    Refuse(path, "its header is damaged", "a header with the hash that it says");
  }
  if (header.file_bytes != bytes) {
    Refuse(path,
           (bytes < header.file_bytes ? "truncated: " : "too long: ") + std::to_string(bytes) +
               " bytes",
           std::to_string(header.file_bytes) + " bytes, as its header says");
  }
}

}  // namespace

ClusterLayout::ClusterLayout(const ClusterHeader& header) {
  shapes = Aligned(sizeof(ClusterHeader));
  centroids = Aligned(shapes + static_cast<size_t>(header.clusters) * sizeof(ClusterShape));
  tokens = Aligned(centroids + static_cast<size_t>(header.centroids * header.dim) * sizeof(float));
  end = tokens + static_cast<size_t>(header.vocab) * sizeof(int32_t);
}

ClusterView HeadClusters::Impl::view() const {
  const std::byte* const data = bytes_.data();
  const auto* const header = reinterpret_cast<const ClusterHeader*>(data);
  const ClusterLayout layout(*header);
  return {header,
          {reinterpret_cast<const ClusterShape*>(data + layout.shapes),
           static_cast<size_t>(header->clusters)},
          reinterpret_cast<const float*>(data + layout.centroids),
          reinterpret_cast<const int32_t*>(data + layout.tokens)};
}

uint64_t HashOfHead(const DenseHead& head, const ParallelFor& parallel) {
  return MixedHash(HashOfWeights(head.weight, parallel), HashOf(std::as_bytes(head.bias)));
}

uint64_t HashOfHeader(const ClusterHeader& header) {
  return HashOf(
      {reinterpret_cast<const std::byte*>(&header), offsetof(ClusterHeader, header_hash)});
}

HeadClusters HeadClusters::Load(const std::string& path, const DenseHead& head,
                                const ParallelFor& parallel) {
  CheckMatrix("head.weight", "dim", head.weight, int64_t{1} << 20);
  auto mapped = std::make_shared<MappedClusters>(path);
  const auto& header = *reinterpret_cast<const ClusterHeader*>(mapped->bytes().data());
  CheckHeader(path, header, mapped->bytes().size());
  if (header.vocab != head.weight.rows || header.dim != head.weight.columns ||
      header.dtype != static_cast<uint32_t>(head.weight.dtype)) {
    Refuse(path, ToText(header.vocab) + " x " + ToText(header.dim),
           ToText(head.weight.rows) + " x " + ToText(head.weight.columns) +
               " and the dtype of the weight");
  }
  // Whichever program wrote the file, nothing in it leads out of it or of the head.
  const auto is_inside = [&](const ClusterView& view) {
    return std::ranges::all_of(view.shapes,
                               [&](const ClusterShape& shape) {
                                 return shape.begin >= 0 && shape.size >= 0 &&
                                        shape.begin <= header.vocab - shape.size &&
                                        shape.centroid >= 0 && shape.centroid < header.centroids;
                               }) &&
           std::all_of(view.tokens, view.tokens + header.vocab,
                       [&](int32_t token) { return token >= 0 && token < header.vocab; });
  };
  const ClusterLayout layout(header);
  if (header.centroids < 1 || header.centroids > header.clusters ||
      header.clusters > header.vocab || layout.end != header.file_bytes ||
      header.sections_hash != HashOfPlanes(mapped->bytes().subspan(layout.shapes), parallel) ||
      !is_inside(mapped->view())) {
    Refuse(path, "its clusters are damaged", "clusters with the hash that its header says");
  }
  if (header.head_hash != HashOfHead(head, parallel)) {
    Refuse(path, "of another head", "clusters of these weights and biases: build them again");
  }
  return ClusterAccess::Make(std::move(mapped));
}

void HeadClusters::Save(const std::string& path) const { WriteWhole(path, impl_->bytes()); }

ClusterMetric HeadClusters::metric() const {
  return static_cast<ClusterMetric>(impl_->view().header->metric);
}
int64_t HeadClusters::vocab() const { return impl_->view().header->vocab; }
int64_t HeadClusters::dim() const { return impl_->view().header->dim; }
int64_t HeadClusters::clusters() const { return impl_->view().header->clusters; }
size_t HeadClusters::bytes() const { return impl_->bytes().size(); }

}  // namespace sluice::research
