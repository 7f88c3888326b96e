#include "bench/cluster_bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/heads.h"
#include "bench/rows.h"
#include "cli/thread_pool.h"
#include "head/cluster_file.h"
#include "semantics/order.h"

namespace sluice::bench {
namespace {

// The rows of a made head, but that each is one of 1/64 as many and little beside it.
std::vector<uint16_t> Planted(const MadeHead& made) {
  const MatrixView from = made.weight();
  const auto* const rows = static_cast<const uint16_t*>(from.data);
  std::vector<uint16_t> planted(static_cast<size_t>(from.rows * from.columns));
  const int64_t centers = std::max<int64_t>(1, from.rows / 64);
  for (int64_t v = 0; v < from.rows; ++v) {
    for (int64_t j = 0; j < from.columns; ++j) {
      const float center = WidenBf16(rows[v % centers * from.columns + j]);
      const float own = WidenBf16(rows[v * from.columns + j]);
      planted[static_cast<size_t>(v * from.columns + j)] = RoundToBf16(center + 0.01f * own);
    }
  }
  return planted;
}

class Head {
 public:
  Head(std::string_view name, const MatrixView& weight, const MadeHead& made,
       const ClusterBenchOptions& options)
      : name_(name), head_{weight, {}}, options_(options) {
    const auto vocab = static_cast<size_t>(weight.rows);
    for (int64_t r = 0; r < options.states; ++r) {
      states_.push_back(made.hidden(r, 1));
      logits_.emplace_back(vocab);
      Project(head_, states_.back(), {},
              {logits_.back().data(), 1, weight.rows, weight.rows, DType::kF32, {}}, {});
    }
  }

  void Run(ClusterMetric metric, int64_t clusters, const ParallelFor& parallel,
           const std::function<void(const ClusterRow&)>& on_row) const {
    const HeadClusters built = HeadClusters::Build(
        head_, {.metric = metric, .clusters = clusters, .rounds = options_.rounds}, parallel);
    ClusterRow row = {};
    row.head = name_;
    row.metric = metric;
    row.clusters = built.clusters();
    SeeBounds(built, row);
    for (const int32_t k : options_.ks) {
      row.k = k;
      Ask(built, {.k = k}, row);
      on_row(row);
    }
    row.k = 0;
    for (const double epsilon : options_.epsilons) {
      row.epsilon = epsilon;
      Ask(built, {.certificate = ClusterCertificate::kSoftmax, .epsilon = epsilon}, row);
      on_row(row);
    }
  }

 private:
  // Bounds against logits: none is wrong, and how near they come. Logits are centred by their mean.
  void SeeBounds(const HeadClusters& clusters, ClusterRow& row) const {
    const ClusterView view = ClusterAccess::View(clusters);
    const ClusterSearch search(head_, clusters);
    std::vector<double> bounds(static_cast<size_t>(clusters.clusters()));
    double tightness = 0.0;
    for (size_t r = 0; r < states_.size(); ++r) {
      search.Bounds(states_[r], bounds);
      const double mean = std::accumulate(logits_[r].begin(), logits_[r].end(), 0.0) /
                          static_cast<double>(logits_[r].size());
      double of_state = 0.0;
      for (size_t c = 0; c < bounds.size(); ++c) {
        float most = -INFINITY;
        for (const int32_t token : view.Tokens(static_cast<int64_t>(c))) {
          most = std::max(most, logits_[r][static_cast<size_t>(token)]);
        }
        if (static_cast<double>(most) > bounds[c]) ++row.violations;
        of_state += (static_cast<double>(most) - mean) / (bounds[c] - mean);
      }
      tightness += of_state / static_cast<double>(bounds.size());
    }
    row.tightness = tightness / static_cast<double>(states_.size());
  }

  void Ask(const HeadClusters& clusters, const ClusterQuestion& question, ClusterRow& row) const {
    ClusterSearch search(head_, clusters, {.first_steps = 0, .gain = 0.0});
    // And one that may open all, for how much that takes.
    ClusterSearch endless(head_, clusters,
                          {.rows = static_cast<double>(head_.weight.rows), .first_steps = 0});
    double opened = 0.0, certified = 0.0, variation = 0.0;
    row.is_exact = true;
    for (size_t r = 0; r < states_.size(); ++r) {
      certified += search.Ask(states_[r], question).path == ClusterPath::kDense ? 0.0 : 1.0;
      const ClusterAnswer answer = endless.Ask(states_[r], question);
      opened += static_cast<double>(answer.rows_opened);
      const float most = *std::max_element(logits_[r].begin(), logits_[r].end());
      if (question.certificate == ClusterCertificate::kTopK) {
        row.is_exact = row.is_exact && IsFirst(answer, logits_[r]);
        continue;
      }
      double kept = 0.0, mass = 0.0;
      for (const float x : answer.logits) kept += std::exp(static_cast<double>(x - most));
      for (const float x : logits_[r]) mass += std::exp(static_cast<double>(x - most));
      variation = std::max(variation, 1.0 - kept / mass);
    }
    const auto states = static_cast<double>(states_.size());
    row.rows_opened = opened / states / static_cast<double>(head_.weight.rows);
    row.certified = certified / states;
    row.variation = variation;
  }

  static bool IsFirst(const ClusterAnswer& answer, const std::vector<float>& logits) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto size = std::ssize(answer.ids);
    std::partial_sort(ids.begin(), ids.begin() + size, ids.end(), [&](int32_t a, int32_t b) {
      return semantics::Before({logits[static_cast<size_t>(a)], a},
                               {logits[static_cast<size_t>(b)], b});
    });
    return std::equal(answer.ids.begin(), answer.ids.end(), ids.begin());
  }

  std::string_view name_;
  DenseHead head_;
  const ClusterBenchOptions& options_;
  std::vector<MatrixView> states_;
  std::vector<std::vector<float>> logits_;
};

}  // namespace

void RunClusterBench(const ClusterBenchOptions& options,
                     const std::function<void(const ClusterRow&)>& on_row,
                     const std::function<void(const std::string&)>& on_progress) {
  cli::ThreadPool pool(options.threads);
  on_progress("making heads for clusters");
  const MadeHead made(options.vocab, options.dim, options.states);
  const std::vector<uint16_t> rows = Planted(made);
  MatrixView planted = made.weight();
  planted.data = rows.data();
  const Head heads[] = {{"made", made.weight(), made, options},
                        {"planted", planted, made, options}};
  for (const Head& head : heads) {
    for (const ClusterMetric metric : {ClusterMetric::kEuclidean, ClusterMetric::kSpherical}) {
      for (const int64_t clusters : options.clusters) {
        on_progress(std::to_string(clusters) + " clusters, " + std::string(Name(metric)));
        head.Run(metric, clusters, pool.parallel(), on_row);
      }
    }
  }
}

}  // namespace sluice::bench
