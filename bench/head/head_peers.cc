#include "bench/head/head_peers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/head/model_states.h"
#include "bench/support/aligned_workspace.h"
#include "head/certified/score_table.h"
#include "research/clusters/cluster_file.h"
#include "semantics/order.h"
#include "semantics/widen.h"
#include "sluice/certified_sample.hpp"
#include "sluice/draw.hpp"

namespace sluice::bench {
namespace {

constexpr size_t kFirst = 50;
// Of the rows, by the products of their clusters' means: the usual index of neighbours.
constexpr double kProbed[] = {1.0 / 16, 1.0 / 8, 1.0 / 4};

using OnProgress = std::function<void(const std::string&)>;

research::HeadClusters Divided(const DenseHead& head, int64_t count,
                               const HeadPeersOptions& options, const OnProgress& on_progress) {
  struct Progress {
    const OnProgress& on_progress;
    std::string what;
  } report = {on_progress, "dividing " + std::to_string(head.weight.rows) + " rows into " +
                               std::to_string(count) + " clusters"};
  on_progress(report.what);
  return research::HeadClusters::Build(
      head,
      {.clusters = count,
       .rounds = options.rounds,
       .bias_leaders = 0,
       .progress =
           [](void* context, double share) {
             const Progress& to = *static_cast<const Progress*>(context);
             to.on_progress(to.what + ", " + std::to_string(std::lround(100.0 * share)) + " %");
           },
       .progress_context = &report},
      options.parallel);
}

class HeadPeers {
 public:
  HeadPeers(const DenseHead& head, const HeadPeersOptions& options, const OnProgress& on_progress)
      : head_(head),
        options_(options),
        vocab_(static_cast<size_t>(head.weight.rows)),
        logits_(vocab_),
        guess_(vocab_),
        exact_(vocab_),
        execution_{.backend = options.backend, .parallel = options.parallel},
        workspace_(SelectWorkspaceBytes(ViewOf(logits_), execution_)) {
    execution_.workspace = workspace_.span();
    on_progress("building planes");
    for (const CertificateKind kind : {CertificateKind::kDither4, CertificateKind::kStrict}) {
      planes_.push_back(
          HeadPlanes::Build(head.weight, {.kind = kind, .seed = 1}, options.parallel));
    }
    for (const int64_t count : options.clusters) {
      if (count < head.weight.rows) {
        clusters_.push_back(Divided(head, count, options, on_progress));
      }
    }
    for (const research::HeadClusters& clusters : clusters_) {
      searches_.emplace_back(
          head, clusters,
          research::ClusterBudget{
              .rows = static_cast<double>(vocab_), .first_steps = 0, .gain = 0.0},
          options.backend);
    }
    probed_ = Divided(head, std::min(options.probed_clusters, head.weight.rows / 2), options,
                      on_progress);
    Reset();
  }

  std::span<const float> Add(const MatrixView& hidden) {
    Project(head_, hidden, {}, ViewOf(logits_), execution_);
    Softmax(logits_, exact_);
    first_ = First(logits_);
    token_ = Sampled(logits_);
    auto figures = result_.clusters.begin();
    for (research::ClusterSearch& search : searches_) {
      for (const double epsilon : options_.epsilons)
        SearchWithin(epsilon, search, hidden, *figures++);
    }
    auto uncertified = result_.uncertified.begin();
    for (const HeadPlanes& planes : planes_) {
      for (const bool is_refined : {false, true}) {
        if (is_refined && planes.kind() != CertificateKind::kStrict) continue;
        GuessByPlanes(planes, is_refined, hidden);
        Compare(*uncertified++);
      }
    }
    for (const double share : kProbed) {
      GuessByProbing(share, hidden);
      Compare(*uncertified++);
    }
    ++states_;
    return logits_;
  }

  // From zero again.
  HeadPeersResult Take(std::string_view source) {
    HeadPeersResult taken = std::move(result_);
    taken.source = source;
    Reset();
    return taken;
  }

 private:
  void Reset() {
    result_ = {};
    for (const research::HeadClusters& clusters : clusters_) {
      for (const double epsilon : options_.epsilons) {
        result_.clusters.push_back({.clusters = clusters.clusters(), .epsilon = epsilon});
      }
    }
    const double row_bytes =
        static_cast<double>(head_.weight.columns) * static_cast<double>(SizeOf(head_.weight.dtype));
    const auto add = [&](const std::string& method, double share) {
      result_.uncertified.push_back({.method = method, .bytes_share = share});
    };
    const PlaneView view = PlaneAccess::View(planes_[0]);
    const double plane = static_cast<double>(view.groups * (kRowGroupBytes + 2)) / row_bytes;
    add("int4, dithered", plane);
    add("int4", plane);
    add("int8", 2.0 * plane);
    const double means = static_cast<double>(probed_->clusters()) / static_cast<double>(vocab_);
    for (const double share : kProbed) {
      add("clusters, 1/" + std::to_string(std::lround(1.0 / share)) + " of rows",
          share + means * 4.0 / static_cast<double>(SizeOf(head_.weight.dtype)));
    }
  }

  MutableLogitsView ViewOf(std::vector<float>& row) const {
    const auto size = static_cast<int64_t>(vocab_);
    return {row.data(), 1, size, size, DType::kF32, {}};
  }

  // Probabilities in fp64.
  static void Softmax(const std::vector<float>& logits, std::vector<double>& to) {
    const float most = *std::max_element(logits.begin(), logits.end());
    for (size_t v = 0; v < logits.size(); ++v) {
      to[v] = std::exp(static_cast<double>(logits[v]) - static_cast<double>(most));
    }
    const double mass = std::accumulate(to.begin(), to.end(), 0.0);
    for (double& p : to) p /= mass;
  }

  // The first tokens, the first of all in front, the others by id.
  std::vector<int32_t> First(const std::vector<float>& logits) const {
    std::vector<int32_t> ids(vocab_);
    std::iota(ids.begin(), ids.end(), 0);
    const auto end = ids.begin() + static_cast<int64_t>(std::min(kFirst, vocab_));
    std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
      return semantics::Before({logits[static_cast<size_t>(a)], a},
                               {logits[static_cast<size_t>(b)], b});
    });
    ids.erase(end, ids.end());
    std::sort(ids.begin() + 1, ids.end());
    return ids;
  }

  int32_t Sampled(std::vector<float>& logits) {
    const SelectParams params;
    const NoiseKey key{.seed = 1, .position = static_cast<uint32_t>(states_)};
    TokenResult result;
    Sample({ViewOf(logits), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, {&result, 1},
           execution_);
    return result.id;
  }

  void SearchWithin(double epsilon, research::ClusterSearch& search, const MatrixView& hidden,
                    ClusterSoftmax& figures) {
    const research::ClusterAnswer answer = search.Search(
        hidden, {.certificate = research::ClusterCertificate::kSoftmax, .epsilon = epsilon});
    double kept = 0.0;  // the rest of the mass is what renormalising what was opened is off by
    for (const int32_t id : answer.ids) kept += exact_[static_cast<size_t>(id)];
    const double variation = std::max(0.0, 1.0 - kept);
    const double share = static_cast<double>(answer.rows_opened) / static_cast<double>(vocab_);
    ++figures.states;
    figures.certified += share <= 0.125 ? 1 : 0;
    figures.whole += answer.rows_opened == static_cast<int64_t>(vocab_) ? 1 : 0;
    figures.violated += variation > epsilon ? 1 : 0;
    figures.opened += share;
    figures.variation += variation;
    figures.most_variation = std::max(figures.most_variation, variation);
  }

  // Their scores, which are the middles of their intervals.
  void GuessByPlanes(const HeadPlanes& planes, bool is_refined, const MatrixView& hidden) {
    const PlaneView view = PlaneAccess::View(planes);
    const ScoreTable& table = ScoreTableFor(options_.backend);
    groups_.resize(static_cast<size_t>(view.groups));
    scores_.resize(static_cast<size_t>(view.tiles() * kTileRows));
    widths_.resize(scores_.size());
    const Intervals intervals{scores_.data(), widths_.data()};
    HiddenState state;
    EncodeHidden({hidden.data, hidden.dtype, hidden.columns}, view, groups_.data(), state);
    table.score(view, head_.bias, {&state, 1}, {&intervals, 1}, 0, view.tiles());
    for (int64_t v = 0; v < view.vocab && is_refined; ++v) {
      table.refine(view, state, v, intervals);
    }
    std::copy_n(scores_.begin(), vocab_, guess_.begin());
  }

  // The logits of the clusters with the largest products of means, up to a share of the rows.
  void GuessByProbing(double share, const MatrixView& hidden) {
    const research::ClusterView view = research::ClusterAccess::View(*probed_);
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t c = 0; c < probed_->clusters(); ++c) {
      double product = 0.0;
      for (int64_t j = 0; j < hidden.columns; ++j) {
        product += static_cast<double>(view.Centroid(c)[j]) *
                   static_cast<double>(static_cast<const float*>(hidden.data)[j]);
      }
      order.emplace_back(-product, c);
    }
    std::sort(order.begin(), order.end());
    std::fill(guess_.begin(), guess_.end(), -INFINITY);
    double left = share * static_cast<double>(vocab_);
    for (const auto& [product, c] : order) {
      const std::span<const int32_t> tokens = view.Tokens(c);
      left -= static_cast<double>(tokens.size());
      if (left < 0.0 && c != order[0].second) break;
      for (const int32_t id : tokens) {
        guess_[static_cast<size_t>(id)] = logits_[static_cast<size_t>(id)];
      }
    }
  }

  void Compare(UncertifiedHead& figures) {
    guessed_.resize(vocab_);
    Softmax(guess_, guessed_);
    double variation = 0.0;
    for (size_t v = 0; v < vocab_; ++v) variation += 0.5 * std::abs(guessed_[v] - exact_[v]);
    const std::vector<int32_t> first = First(guess_);
    std::vector<int32_t> set = first, exact_set = first_;
    std::sort(set.begin(), set.end());
    std::sort(exact_set.begin(), exact_set.end());
    ++figures.states;
    figures.greedy += first[0] != first_[0] ? 1 : 0;
    figures.top50 += set != exact_set ? 1 : 0;
    figures.sampled += Sampled(guess_) != token_ ? 1 : 0;
    figures.variation += variation;
    figures.most_variation = std::max(figures.most_variation, variation);
  }

  DenseHead head_;
  const HeadPeersOptions& options_;
  size_t vocab_;
  std::vector<HeadPlanes> planes_;
  std::vector<research::HeadClusters> clusters_;
  std::vector<research::ClusterSearch> searches_;
  std::optional<research::HeadClusters> probed_;
  HeadPeersResult result_;
  int64_t states_ = 0;  // since the start: the position of the noise

  // Of the state at hand:
  std::vector<float> logits_, guess_;
  std::vector<double> exact_, guessed_;
  std::vector<int32_t> first_;
  int32_t token_ = -1;
  std::vector<HiddenGroup> groups_;
  std::vector<float> scores_, widths_;

  Execution execution_;
  AlignedWorkspace workspace_;
};

}  // namespace

std::vector<HeadPeersResult> RunHeadPeers(const Checkpoint& checkpoint, std::string_view text,
                                          const HeadPeersOptions& options,
                                          const OnProgress& on_progress) {
  ModelStates states(
      checkpoint, text,
      {.states = options.states, .backend = options.backend, .parallel = options.parallel},
      on_progress);
  HeadPeers peers(checkpoint.head(), options, on_progress);
  const ModelStates::Visit add = [&](const MatrixView& hidden) { return peers.Add(hidden); };
  std::vector<HeadPeersResult> results;
  states.OfText(add);
  results.push_back(peers.Take("text"));
  states.OfItsOwn(add);
  results.push_back(peers.Take("own"));
  return results;
}

HeadPeersResult RunHeadPeers(const MadeHead& made, const HeadPeersOptions& options,
                             const OnProgress& on_progress) {
  HeadPeers peers({made.weight(), {}}, options, on_progress);
  const int64_t dim = made.weight().columns;
  const int64_t states = std::min(options.states, made.states());
  std::vector<float> state(static_cast<size_t>(dim));
  for (int64_t s = 0; s < states; ++s) {
    const MatrixView hidden = made.hidden(s, 1);
    for (size_t j = 0; j < state.size(); ++j) {
      state[j] = semantics::Load(hidden.data, hidden.dtype, static_cast<int64_t>(j));
    }
    peers.Add({state.data(), 1, dim, dim, DType::kF32, {}});
    on_progress("state " + std::to_string(s + 1) + " of " + std::to_string(states));
  }
  return peers.Take("made");
}

}  // namespace sluice::bench
