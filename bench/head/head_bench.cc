#include "bench/head/head_bench.h"

#include <algorithm>
#include <memory>

#include "bench/head/heads.h"
#include "bench/support/aligned_workspace.h"
#include "bench/support/stopwatch.h"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr int64_t kStates = 64;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

class Measurement {
 public:
  Measurement(const MadeHead& made, const CertifiedHead& head, const HeadTask& task, int64_t batch,
              Backend backend, const ParallelFor& parallel)
      : made_(made),
        head_(head),
        task_(task),
        batch_(batch),
        logits_(static_cast<size_t>(batch * head.planes().vocab())),
        results_(static_cast<size_t>(batch)),
        dense_results_(results_),
        ids_(static_cast<size_t>(batch)),
        keys_(static_cast<size_t>(batch)) {
    execution_.backend = backend;
    execution_.parallel = parallel;
    workspace_ = std::make_unique<AlignedWorkspace>(
        std::max(SampleFromHeadWorkspaceBytes(head, batch, execution_),
                 SelectWorkspaceBytes(LogitsOf(), execution_)));
    execution_.workspace = workspace_->span();
  }

  HeadTiming Run(int64_t calls) {
    Turn(0);  // the first finds code and memory cold
    std::vector<double> times;
    std::vector<double> dense_times;
    std::vector<double> ratios;
    HeadTiming timing = {};
    timing.is_exact = true;
    CertifiedStats all;
    for (int64_t call = 1; call <= calls; ++call) {
      const auto [time, dense_time, stats] = Turn(call);
      times.push_back(time);
      dense_times.push_back(dense_time);
      ratios.push_back(time / dense_time);
      all.rows += stats.rows;
      all.dense_rows += stats.dense_rows;
      all.survivors += stats.survivors;
      all.bytes_read += stats.bytes_read;
      all.dense_bytes += stats.dense_bytes;
      for (size_t r = 0; r < results_.size(); ++r) {
        const bool is_same = results_[r].id == dense_results_[r].id &&
                             (!task_.needs_cut || results_[r].cut == dense_results_[r].cut);
        timing.is_exact = timing.is_exact && is_same;
      }
    }
    timing.task = task_.name;
    timing.kind = head_.planes().kind();
    timing.batch = batch_;
    timing.backend = execution_.backend;
    timing.ns = Median(times);
    timing.dense_ns = Median(dense_times);
    timing.ratio = Median(ratios);
    const auto rows = static_cast<double>(all.rows);
    timing.bytes_share = static_cast<double>(all.bytes_read) / static_cast<double>(all.dense_bytes);
    timing.survivors = static_cast<double>(all.survivors) / rows;
    timing.dense_rows = static_cast<double>(all.dense_rows) / rows;
    return timing;
  }

 private:
  struct TurnResult {
    double time;
    double dense_time;
    CertifiedStats stats;
  };

  MutableLogitsView LogitsOf() {
    const int64_t vocab = head_.planes().vocab();
    return {logits_.data(), batch_, vocab, vocab, DType::kF32, {}};
  }

  TurnResult Turn(int64_t call) {
    const MatrixView hidden = made_.hidden(call * batch_, batch_);
    for (size_t r = 0; r < keys_.size(); ++r) {
      keys_[r] = {static_cast<uint64_t>(call), static_cast<uint32_t>(r)};
    }
    const std::span<const SelectParams> params(&task_.params, 1);
    TurnResult turn = {};
    turn.dense_time = TimeOf([&] { Project(head_.head(), hidden, {}, LogitsOf(), execution_); });
    turn.time = TimeOf([&] {
      turn.stats = task_.needs_cut
                       ? SampleFromHead(head_, {hidden, {}}, params, keys_, {}, DrawMethod::kGumbel,
                                        results_, {}, execution_)
                       : SampleIdsFromHead(head_, {hidden, {}}, params, keys_, {},
                                           DrawMethod::kGumbel, ids_, {}, {}, execution_);
    });
    for (size_t r = 0; r < ids_.size() && !task_.needs_cut; ++r) results_[r].id = ids_[r];
    Sample({LogitsOf(), params, keys_}, DrawMethod::kGumbel, dense_results_, execution_);
    return turn;
  }

  const MadeHead& made_;
  const CertifiedHead& head_;
  const HeadTask& task_;
  int64_t batch_;
  std::vector<float> logits_;
  std::vector<TokenResult> results_;
  std::vector<TokenResult> dense_results_;
  std::vector<int32_t> ids_;  // of tasks without Cuts
  std::vector<NoiseKey> keys_;
  Execution execution_;
  std::unique_ptr<AlignedWorkspace> workspace_;
};

}  // namespace

const std::vector<HeadTask>& HeadTasks() {
  static const std::vector<HeadTask> tasks = {
      {"greedy", "T=0", {.temperature = 0.0f}},
      {"k50-p0.9", "T=0.8, k=50, p=0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}},
      {"softmax", "T=1", {}},
      {"p0.9", "T=1, p=0.9", {.top_p = 0.9f}},
      {"p0.9-id", "T=1, p=0.9, without a Cut", {.top_p = 0.9f}, false},
  };
  return tasks;
}

void RunHeadBench(const HeadOptions& options,
                  const std::function<void(const HeadTiming&)>& on_timing,
                  const std::function<void(const std::string&)>& on_progress) {
  ThreadPool pool(options.threads);
  for (const HeadShape& shape : options.shapes) {
    const std::string size = std::to_string(shape.vocab) + " x " + std::to_string(shape.dim);
    on_progress("making a head of " + size);
    const int64_t most = *std::max_element(options.batches.begin(), options.batches.end());
    const MadeHead made(shape.vocab, shape.dim, std::max(kStates, most));
    for (const CertificateKind kind : options.kinds) {
      on_progress("building planes of " + size);
      const CertifiedHead head(
          {made.weight(), {}},
          HeadPlanes::Build(made.weight(), {.kind = kind, .seed = 1}, pool.parallel()));
      for (const Backend backend : options.backends) {
        for (const HeadTask& task : HeadTasks()) {
          for (const int64_t batch : options.batches) {
            on_progress(std::string(Name(kind)) + ", " + std::string(task.name) + ", batch " +
                        std::to_string(batch));
            Measurement measurement(made, head, task, batch, backend, pool.parallel());
            HeadTiming timing = measurement.Run(options.calls);
            timing.shape = shape;
            timing.plane_bytes = static_cast<int64_t>(head.planes().bytes());
            timing.head_bytes = shape.vocab * shape.dim * 2;
            on_timing(timing);
          }
        }
      }
    }
  }
}

}  // namespace sluice::bench
