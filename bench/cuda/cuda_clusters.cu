// Times the head in clusters on a GPU by graph replay, against the dense head on the same weights
// and one read of them. Usage: sluice_cuda_clusters --help.
//
// Two heads of each shape: `made` is shaped like a large language model's, where clusters are worth
// little; of `planted` rows all variance but a ten thousandth is that of leaves of 32 rows, and
// cones bound them. Each question may open an eighth of the rows, then twice as many, then all.
//
// A call's time is what 32 more of them add to a graph, the median of nine replays; calls take
// turns at 64 hidden states; their answers are compared with the dense head's.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/replay_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/head/heads.h"
#include "bench/support/program_flags.h"
#include "sluice/research/device_clusters.hpp"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr int64_t kStates = 64;

struct Kind {
  const char* name;
  double tree_share;
  research::ClusterMetric metric;
};
constexpr Kind kKinds[] = {{"made", 0.0, research::ClusterMetric::kEuclidean},
                           {"planted", 0.9999, research::ClusterMetric::kSpherical}};

struct Task {
  const char* name;
  research::ClusterQuestion question;
};
constexpr Task kTasks[] = {
    {"k1", {.k = 1}},
    {"k10", {.k = 10}},
    {"k50", {.k = 50}},
    {"softmax0.05", {.certificate = research::ClusterCertificate::kSoftmax, .epsilon = 0.05}},
    {"p0.9", {.certificate = research::ClusterCertificate::kTopP, .p = 0.9}},
};

struct Result {
  double us = 0.0;
  int64_t wrong = 0;       // answers that are not the dense head's
  double rows = 0.0;       // opened, of the vocabulary
  double clusters = 0.0;   // likewise
  double variation = 0.0;  // the largest epsilon that was certified
  int64_t paths[4] = {};
};

// The size of a nucleus by sums in fp64; tokens in the total order.
size_t NucleusOf(const std::vector<float>& sorted, double p) {
  auto weight = [&](float x) {
    return std::exp(static_cast<double>(x) - static_cast<double>(sorted[0]));
  };
  double mass = 0.0, kept = 0.0;
  for (const float x : sorted) mass += weight(x);
  size_t size = 0;
  while (size < sorted.size() && kept < p * mass) kept += weight(sorted[size++]);
  return size;
}

class ClusterBench {
 public:
  ClusterBench(const HeadShape& shape, const Kind& kind, int64_t clusters,
               const ParallelFor& parallel)
      : made_(shape.vocab, shape.dim, kStates, kind.tree_share),
        weights_(static_cast<size_t>(shape.vocab * shape.dim)),
        hidden_(static_cast<size_t>(2 * kStates * shape.dim)),
        clusters_(research::HeadClusters::Build(
            {made_.weight(), {}},
            {.metric = kind.metric, .clusters = clusters, .rounds = 5, .means = &means_},
            parallel)),
        cluster_memory_(research::DeviceClusterBytes(clusters_)) {
    RequireCuda(cudaMemcpy(weights_.data(), made_.weight().data,
                           static_cast<size_t>(weights_.size()) * 2, cudaMemcpyHostToDevice));
    RequireCuda(cudaMemcpy(hidden_.data(), made_.hidden(0, 2 * kStates).data,
                           static_cast<size_t>(hidden_.size()) * 2, cudaMemcpyHostToDevice));
    head_.weight = made_.weight();
    head_.weight.data = weights_.data();
    head_.weight.device = {DeviceKind::kCuda, 0};
    device_clusters_ = research::UploadClusters(
        clusters_, {cluster_memory_.data(), cluster_memory_.size()}, nullptr);
    const DeviceMemory<float> logits(static_cast<size_t>(kStates * vocab()));
    cuda::Project(head_, Hidden(0, kStates), Logits(logits, kStates), nullptr);
    logits_ = logits.Get();
    for (int64_t state = 0; state < kStates; ++state) {
      const float* const dense = &logits_[static_cast<size_t>(state * vocab())];
      const auto first = static_cast<ptrdiff_t>(order_.size());
      for (int32_t v = 0; v < vocab(); ++v) order_.push_back(v);
      std::sort(order_.begin() + first, order_.end(), [&](int32_t a, int32_t b) {
        return dense[a] > dense[b] || (dense[a] == dense[b] && a < b);
      });
    }
  }

  int64_t vocab() const { return head_.weight.rows; }
  int64_t clusters() const { return device_clusters_.clusters; }

  double ReadWeights() const {
    const DeviceMemory<uint32_t> largest(1);
    return timer_.Microseconds([&](int, cudaStream_t stream) {
      ReadKernel<<<dim3(132 * 4, 1), 512, 0, stream>>>(
          reinterpret_cast<const uint4*>(weights_.data()), static_cast<size_t>(weights_.size()) / 8,
          largest.data());
    });
  }

  double Dense(int64_t batch) const {
    const DeviceMemory<float> logits(static_cast<size_t>(batch * vocab()));
    return timer_.Microseconds([&](int i, cudaStream_t stream) {
      cuda::Project(head_, Hidden(i, batch), Logits(logits, batch), stream);
    });
  }

  Result Search(const research::ClusterQuestion& question, int64_t batch) const {
    const bool is_top = question.certificate == research::ClusterCertificate::kTopK;
    const int64_t width = is_top ? question.k : vocab();
    const DeviceMemory<int32_t> ids(static_cast<size_t>(batch * width));
    const DeviceMemory<float> logits(static_cast<size_t>(batch * width));
    const DeviceMemory<research::ClusterRow> rows(static_cast<size_t>(batch));
    const DeviceMemory<std::byte> workspace(
        research::ClusterWorkspaceBytes(device_clusters_, batch));
    auto call = [&](int i, cudaStream_t stream) {
      research::SearchClusters(
          {.head = head_,
           .clusters = device_clusters_,
           .hidden = Hidden(i, batch),
           .workspace = {workspace.data(), workspace.size()},
           .budget = {.first_steps = 0}},
          question,
          {{ids.data(), ids.size()}, {logits.data(), logits.size()}, {rows.data(), rows.size()}},
          stream);
    };
    Result result;
    for (int i = 0; i * batch < kStates; ++i) {
      call(i, nullptr);
      const std::vector<research::ClusterRow> of_rows = rows.Get();
      const std::vector<int32_t> all_ids = ids.Get();
      const std::vector<float> all_logits = logits.Get();
      for (int64_t r = 0; r < batch; ++r) {
        const research::ClusterRow& row = of_rows[static_cast<size_t>(r)];
        ++result.paths[static_cast<size_t>(row.path)];
        result.rows +=
            static_cast<double>(row.rows_opened) / static_cast<double>(vocab() * kStates);
        result.clusters +=
            static_cast<double>(row.clusters_opened) / static_cast<double>(clusters() * kStates);
        result.variation = std::max(result.variation, row.epsilon);
        const bool is_right =
            IsRight(question, i * batch + r, row, &all_ids[static_cast<size_t>(r * width)],
                    &all_logits[static_cast<size_t>(r * width)]);
        result.wrong += is_right ? 0 : 1;
      }
    }
    result.us = timer_.Microseconds(call);
    return result;
  }

 private:
  // Beside the logits of the dense head.
  bool IsRight(const research::ClusterQuestion& question, int64_t state,
               const research::ClusterRow& row, const int32_t* ids, const float* logits) const {
    const float* const dense = &logits_[static_cast<size_t>(state * vocab())];
    for (int32_t i = 0; i < row.count; ++i) {
      if (logits[i] != dense[ids[i]]) return false;
    }
    if (question.certificate == research::ClusterCertificate::kSoftmax) {
      const float most = *std::max_element(dense, dense + vocab());
      double mass = 0.0, kept = 0.0;
      for (int64_t v = 0; v < vocab(); ++v) mass += std::exp(static_cast<double>(dense[v] - most));
      for (int32_t i = 0; i < row.count; ++i)
        kept += std::exp(static_cast<double>(logits[i] - most));
      return 1.0 - kept / mass <= row.epsilon + 1e-9;
    }
    const int32_t* const order = &order_[static_cast<size_t>(state * vocab())];
    auto count = static_cast<size_t>(question.k);
    if (question.certificate == research::ClusterCertificate::kTopP) {
      std::vector<float> sorted;
      for (int64_t i = 0; i < vocab(); ++i) sorted.push_back(dense[order[i]]);
      count = NucleusOf(sorted, question.p);
    }
    return static_cast<size_t>(row.count) == count && std::equal(ids, ids + count, order);
  }

  MatrixView Hidden(int64_t i, int64_t batch) const {
    return {hidden_.data() + i * batch % kStates * head_.weight.columns,
            batch,
            head_.weight.columns,
            head_.weight.columns,
            DType::kBf16,
            {DeviceKind::kCuda, 0}};
  }
  MutableLogitsView Logits(const DeviceMemory<float>& memory, int64_t batch) const {
    return {memory.data(), batch, vocab(), vocab(), DType::kF32, {DeviceKind::kCuda, 0}};
  }

  MadeHead made_;
  DeviceMemory<uint16_t> weights_;
  DeviceMemory<uint16_t> hidden_;
  research::DeviceMeans means_;
  research::HeadClusters clusters_;
  DeviceMemory<std::byte> cluster_memory_;
  cuda::HeadWeights head_;
  research::DeviceClusters device_clusters_;
  std::vector<float> logits_;   // of all states
  std::vector<int32_t> order_;  // of their tokens
  ReplayTimer timer_;
};

struct Options {
  std::vector<HeadShape> heads = {{128256, 1024}};
  std::vector<int64_t> batches = {1, 8};
  std::vector<std::string> kinds;
  std::vector<std::string> tasks;
  int64_t clusters = 0;

  explicit Options(ProgramFlags& flags) {
    flags.Head("--head", heads, "the heads");
    flags.Number("--batch", batches, {1, kStates}, "hidden states of a call");
    flags.Names("--kind", kinds, NamesOf(kKinds), "only these heads");
    flags.Names("--task", tasks, NamesOf(kTasks), "only these");
    flags.Number("--clusters", clusters, {1, kMaxVocab},
                 "of a head; by itself a sixteenth of its rows");
  }
};

void Run(const Options& options) {
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  DeviceReport report(ThisGpu());
  for (const HeadShape& shape : options.heads) {
    for (const Kind& kind : kKinds) {
      if (!IsSelected(options.kinds, kind.name)) continue;
      const int64_t clusters =
          options.clusters > 0 ? std::min(options.clusters, shape.vocab) : (shape.vocab + 15) / 16;
      const ClusterBench bench(shape, kind, clusters, pool.parallel());
      const double floor = bench.ReadWeights();
      for (const int64_t batch : options.batches) {
        const double dense = bench.Dense(batch);
        for (const Task& task : kTasks) {
          if (!IsSelected(options.tasks, task.name)) continue;
          const Result result = bench.Search(task.question, batch);
          report.Row(
              "{\"bench\": \"cuda\", \"task\": \"clusters-%s\", \"head\": \"%s\", "
              "\"metric\": \"%s\", \"n\": %lld, \"dim\": %lld, \"clusters\": %lld, "
              "\"batch\": %lld, \"ns\": %.0f, \"dense_ns\": %.0f, \"weights_floor_ns\": %.0f, "
              "\"exact\": %s, \"rows_opened\": %.4f, \"clusters_opened\": %.4f, "
              "\"epsilon\": %.6f, \"budget\": %lld, \"expanded\": %lld, \"dense\": %lld}",
              task.name, kind.name, std::string(Name(kind.metric)).c_str(),
              static_cast<long long>(shape.vocab), static_cast<long long>(shape.dim),
              static_cast<long long>(bench.clusters()), static_cast<long long>(batch),
              result.us * 1e3, dense * 1e3, floor * 1e3, result.wrong == 0 ? "true" : "false",
              result.rows, result.clusters, result.variation,
              static_cast<long long>(result.paths[0]), static_cast<long long>(result.paths[1]),
              static_cast<long long>(result.paths[3]));
          std::fprintf(stderr,
                       "%6lldx%-4lld %-8s B=%-2lld %-12s %9.1f us  dense %8.1f  floor %6.1f  rows "
                       "%.3f  clusters %.3f  paths %lld %lld %lld  wrong %lld\n",
                       static_cast<long long>(shape.vocab), static_cast<long long>(shape.dim),
                       kind.name, static_cast<long long>(batch), task.name, result.us, dense, floor,
                       result.rows, result.clusters, static_cast<long long>(result.paths[0]),
                       static_cast<long long>(result.paths[1]),
                       static_cast<long long>(result.paths[3]),
                       static_cast<long long>(result.wrong));
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(argc, argv, "sluice_cuda_clusters",
                                   "Times the head in clusters on a GPU.", sluice::bench::Run);
}
