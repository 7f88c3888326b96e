// Clusters on their way to a device, and what a search of them there is checked for.
#include "research/clusters/cluster_call.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "cuda/cuda_check.h"

namespace sluice::research {

using namespace cuda;

namespace {

constexpr size_t kAlignment = 256;

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void CheckMemory(std::string_view name, const void* data, int64_t size, size_t bytes) {
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    ThrowInvalid(MemberName(name, "data"), data == nullptr ? "null" : "an address",
                 "a pointer to device memory, aligned to 256");
  }
  CheckInRange(MemberName(name, "size"), size, static_cast<int64_t>(bytes), INT64_MAX);
}

ClusterHeader HeaderOf(const DeviceClusters& clusters) {
  ClusterHeader header = {};
  header.vocab = clusters.vocab;
  header.dim = clusters.dim;
  header.clusters = clusters.clusters;
  header.centroids = clusters.centroids;
  return header;
}

}  // namespace

size_t DeviceClusterBytes(const HeadClusters& clusters) {
  return ClusterLayout(*ClusterAccess::View(clusters).header).end;
}

DeviceClusters UploadClusters(const HeadClusters& clusters, DeviceArray<std::byte> memory,
                              void* stream) {
  const ClusterView view = ClusterAccess::View(clusters);
  CheckMemory("memory", memory.data, memory.size, DeviceClusterBytes(clusters));
  int64_t rows = 0;
  for (const ClusterShape& shape : view.shapes) rows += shape.size;
  CheckInRange("clusters' rows", rows, clusters.vocab(), clusters.vocab());
  const auto queue = static_cast<cudaStream_t>(stream);
  RequireCuda(cudaMemcpyAsync(memory.data, view.header, DeviceClusterBytes(clusters),
                              cudaMemcpyHostToDevice, queue),
              "clusters");
  RequireCuda(cudaStreamSynchronize(queue), "clusters");
  return {
      clusters.metric(),   view.header->folds_bias != 0, clusters.vocab(),          clusters.dim(),
      clusters.clusters(), view.header->centroids,       {memory.data, memory.size}};
}

ClusterMemory LayOut(const DeviceClusters& clusters, int64_t rows, std::byte* workspace,
                     size_t* bytes) {
  const auto count = static_cast<size_t>(rows);
  const auto vocab = static_cast<size_t>(clusters.vocab);
  const size_t state = (static_cast<size_t>(clusters.dim) + 3) / 4 * 4;
  const size_t room = std::bit_ceil(vocab);
  ClusterMemory memory = {};
  memory.state_stride = static_cast<int64_t>(state);
  memory.room_stride = static_cast<int64_t>(room);
  size_t offset = 0;
  auto take = [&](auto*& member, size_t of_row) {
    using T = std::remove_reference_t<decltype(*member)>;
    if (workspace != nullptr) member = reinterpret_cast<T*>(workspace + offset);
    offset += Aligned(count * of_row * sizeof(T));
  };
  take(memory.progress, 1);
  take(memory.states, state);
  const auto of_clusters = static_cast<size_t>(clusters.clusters);
  take(memory.bounds, of_clusters);
  take(memory.list, of_clusters);
  take(memory.sorted, of_clusters);
  take(memory.starts, of_clusters + 1);
  take(memory.ids, vocab);
  take(memory.logits, vocab);
  take(memory.logit_of, vocab);
  take(memory.room, room);
  *bytes = offset;
  return memory;
}

size_t ClusterWorkspaceBytes(const DeviceClusters& clusters, int64_t rows) {
  CheckInRange("rows", rows, 0, kMostCertifiedRows);
  size_t bytes = 0;
  LayOut(clusters, rows, nullptr, &bytes);
  return bytes;
}

ClusterArgument ArgumentOf(const ClusterCall& call, const ClusterQuestion& question,
                           const ClusterPlaces& places) {
  CheckHead(call.head, call.hidden);
  const DeviceClusters& clusters = call.clusters;
  CheckInRange("clusters.vocab", clusters.vocab, call.head.weight.rows, call.head.weight.rows);
  CheckInRange("clusters.dim", clusters.dim, call.head.weight.columns, call.head.weight.columns);
  CheckInRange("clusters.clusters", clusters.clusters, 1, clusters.vocab);
  CheckInRange("clusters.centroids", clusters.centroids, 1, clusters.clusters);
  CheckQuestion(question, clusters.vocab);
  const int64_t rows = call.hidden.rows;
  CheckInRange("hidden.rows", rows, 0, kMostCertifiedRows);
  const ClusterLayout layout(HeaderOf(clusters));
  CheckMemory("clusters.memory", clusters.memory.data, clusters.memory.size, layout.end);
  CheckOneARow("paces", call.paces, rows, true);
  const bool is_top = question.certificate == ClusterCertificate::kTopK;
  const int64_t width = is_top ? question.k : clusters.vocab;
  CheckSize("ids", static_cast<size_t>(places.ids.size), rows * width);
  CheckSize("logits", static_cast<size_t>(places.logits.size), rows * width);
  CheckOneARow("rows", places.rows, rows);
  size_t bytes = 0;
  const ClusterMemory memory = LayOut(clusters, rows, call.workspace.data, &bytes);
  if (rows > 0) CheckMemory("workspace", call.workspace.data, call.workspace.size, bytes);

  const std::byte* const data = clusters.memory.data;
  const MatrixView& weight = call.head.weight;
  ClusterArgument argument = {};
  argument.head = ArgumentOf(call.head);
  argument.dtype = weight.dtype;
  argument.is_aligned = weight.stride % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(weight.data) % (4 * SizeOf(weight.dtype)) == 0;
  argument.hidden = call.hidden.data;
  argument.hidden_stride = call.hidden.stride;
  argument.hidden_dtype = call.hidden.dtype;
  argument.rows = static_cast<int32_t>(rows);
  argument.shapes = reinterpret_cast<const ClusterShape*>(data + layout.shapes);
  argument.centroids = reinterpret_cast<const float*>(data + layout.centroids);
  argument.tokens = reinterpret_cast<const int32_t*>(data + layout.tokens);
  argument.clusters = static_cast<int32_t>(clusters.clusters);
  argument.is_cone = clusters.metric == ClusterMetric::kSpherical;
  argument.folds_bias = clusters.folds_bias;
  argument.gamma = ClusterGamma(clusters.dim);
  argument.question = question;
  argument.budget = call.budget;
  argument.memory = memory;
  argument.paces = call.paces.size == 0 ? nullptr : call.paces.data;
  argument.ids = places.ids.data;
  argument.logits = places.logits.data;
  argument.answers = places.rows.data;
  argument.width = width;
  return argument;
}

}  // namespace sluice::research
