// The head by clusters among ranks: which rows a rank has to read where the vocabulary is split by
// rows, each slice with clusters of its own, and where clusters of the whole vocabulary are dealt
// out: in turn, by how often they are opened, and by likeness. No clock and no thread: the same
// table on every machine. Usage: sluice_cluster_shards.
//
// A cluster is opened where its bound reaches the k-th logit of the row, which is as few as a
// search can open. The time of a step is that of the rank with most rows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/head/heads.h"
#include "bench/support/rows.h"
#include "research/clusters/cluster_file.h"
#include "semantics/widen.h"

namespace sluice::bench {
namespace {

constexpr int64_t kVocab = 16384;
constexpr int64_t kDim = 128;
constexpr int64_t kClusters = 256;
constexpr int64_t kStates = 100;  // and as many to learn from
constexpr int64_t kPlanted = 128;
constexpr int64_t kFirst = 50;

// Numbers that look random.
class Draws {
 public:
  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_ = 7;
};

struct Head {
  std::string name;
  std::vector<float> weight;
  std::vector<float> hidden;  // 2 kStates
  MatrixView Rows(int64_t first, int64_t rows) const {
    return {weight.data() + first * kDim, rows, kDim, kDim, DType::kF32, {}};
  }
  MatrixView State(int64_t index) const {
    return {hidden.data() + index * kDim, 1, kDim, kDim, DType::kF32, {}};
  }
};

// Rows lie about centres; a state is near one of them, the first ones most often.
Head PlantedHead() {
  Head head{"planted clusters", {}, {}};
  Draws draws;
  std::vector<float> centres;
  const double length = 1.0 / std::sqrt(static_cast<double>(kDim));
  for (int64_t i = 0; i < kPlanted * kDim; ++i) {
    centres.push_back(static_cast<float>(length * draws.Normal()));
  }
  for (int64_t v = 0; v < kVocab; ++v) {
    const auto centre = static_cast<int64_t>(draws.Next() % kPlanted);
    for (int64_t j = 0; j < kDim; ++j) {
      const float own = static_cast<float>(0.15 * length * draws.Normal());
      head.weight.push_back(centres[static_cast<size_t>(centre * kDim + j)] + own);
    }
  }
  for (int64_t s = 0; s < 2 * kStates; ++s) {
    const double rank = std::pow(static_cast<double>(kPlanted), draws.Uniform()) - 1.0;
    const auto centre = static_cast<int64_t>(rank);
    for (int64_t j = 0; j < kDim; ++j) {
      const double across = 4.0 * length * draws.Normal();
      const double along = static_cast<double>(centres[static_cast<size_t>(centre * kDim + j)]);
      head.hidden.push_back(static_cast<float>(20.0 * along + across));
    }
  }
  return head;
}

// As a trained model's, where clusters are worth little.
Head ModelHead() {
  Head head{"as a model's", {}, {}};
  const MadeHead made(kVocab, kDim, 2 * kStates);
  auto widen = [](const MatrixView& view, std::vector<float>& to) {
    for (int64_t r = 0; r < view.rows; ++r) {
      const semantics::Row row{view.Row(r), view.dtype, view.columns};
      for (int64_t j = 0; j < row.size; ++j) to.push_back(row[j]);
    }
  };
  widen(made.weight(), head.weight);
  widen(made.hidden(0, 2 * kStates), head.hidden);
  return head;
}

std::vector<float> LogitsOf(const Head& head, int64_t state) {
  std::vector<float> logits(static_cast<size_t>(kVocab));
  const DenseHead dense{head.Rows(0, kVocab), {}};
  std::vector<std::byte> memory(ProjectWorkspaceBytes(dense, head.State(state), {}) + 64);
  void* start = memory.data();
  size_t space = memory.size();
  std::align(64, 1, start, space);
  Project(dense, head.State(state), {}, {logits.data(), 1, kVocab, kVocab, DType::kF32, {}},
          {Backend::kAuto, {}, {static_cast<std::byte*>(start), space}});
  return logits;
}

float Kth(std::vector<float> logits, int64_t k) {
  std::nth_element(logits.begin(), logits.begin() + (k - 1), logits.end(), std::greater<>());
  return logits[static_cast<size_t>(k - 1)];
}

// The clusters of some rows, and for each state their bounds.
struct Clusters {
  Clusters(const Head& head, int64_t first, int64_t rows, int64_t count)
      : dense{head.Rows(first, rows), {}},
        built(research::HeadClusters::Build(dense, {.clusters = count, .rounds = 8})),
        view(research::ClusterAccess::View(built)) {
    research::ClusterSearch search(dense, built);
    for (int64_t s = 0; s < 2 * kStates; ++s) {
      bounds.emplace_back(static_cast<size_t>(built.clusters()));
      search.Bounds(head.State(s), bounds.back());
    }
  }
  int64_t Rows(int64_t cluster) const { return std::ssize(view.Tokens(cluster)); }
  bool IsOpened(int64_t state, int64_t cluster, float least) const {
    return bounds[static_cast<size_t>(state)][static_cast<size_t>(cluster)] >=
           static_cast<double>(least);
  }
  int64_t count() const { return built.clusters(); }

  DenseHead dense;
  research::HeadClusters built;
  research::ClusterView view;
  std::vector<std::vector<double>> bounds;
};

// What ranks read for the states that are measured.
struct Reads {
  void Add(const std::vector<int64_t>& rows) {
    const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    total += static_cast<double>(all) / kVocab;
    slowest += static_cast<double>(most * std::ssize(rows)) / kVocab;
    for (const int64_t of_rank : rows) ranks += of_rank > 0 ? 1.0 : 0.0;
  }
  void Print(const char* name, int64_t of_ranks) const {
    std::printf("| %s | %lld | %.1f %% | **%.1f %%** | %.2f | %.1f |\n", name,
                static_cast<long long>(of_ranks), 100 * total / kStates, 100 * slowest / kStates,
                slowest / total, ranks / kStates);
  }

  double total = 0.0;
  double slowest = 0.0;  // of a rank's share of the vocabulary
  double ranks = 0.0;    // that read anything
};

using Owners = std::vector<int64_t>;  // of clusters

// In an order, each rank as many rows.
Owners Consecutive(const Clusters& clusters, const std::vector<int64_t>& order, int64_t ranks) {
  Owners owners(static_cast<size_t>(clusters.count()));
  int64_t before = 0;
  for (const int64_t c : order) {
    owners[static_cast<size_t>(c)] = std::min(before * ranks / kVocab, ranks - 1);
    before += clusters.Rows(c);
  }
  return owners;
}

// The heaviest first, each to the rank that has least.
Owners Balanced(const std::vector<double>& weights, int64_t ranks) {
  std::vector<int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  auto weight_of = [&](int64_t c) { return weights[static_cast<size_t>(c)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return weight_of(a) > weight_of(b); });
  std::vector<double> loads(static_cast<size_t>(ranks), 0.0);
  Owners owners(weights.size());
  for (const int64_t c : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += weight_of(c) + 1e-9;
    owners[static_cast<size_t>(c)] = least - loads.begin();
  }
  return owners;
}

// Along the direction in which centroids differ most.
std::vector<int64_t> ByLikeness(const Clusters& clusters) {
  const int64_t count = clusters.count();
  std::vector<double> direction(kDim, 1.0), places(static_cast<size_t>(count));
  for (int round = 0; round < 30; ++round) {
    std::vector<double> next(kDim, 0.0);
    double mean = 0.0;
    for (int64_t c = 0; c < count; ++c) {
      const float* const at = clusters.view.Centroid(c);
      double& place = places[static_cast<size_t>(c)];
      place = 0.0;
      for (size_t j = 0; j < kDim; ++j) place += direction[j] * static_cast<double>(at[j]);
      mean += place / static_cast<double>(count);
    }
    double squares = 0.0;
    for (int64_t c = 0; c < count; ++c) {
      const float* const at = clusters.view.Centroid(c);
      const double place = places[static_cast<size_t>(c)] - mean;
      for (size_t j = 0; j < kDim; ++j) next[j] += place * static_cast<double>(at[j]);
    }
    for (const double x : next) squares += x * x;
    for (double& x : next) x /= std::sqrt(squares) + 1e-300;
    direction = next;
  }
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return places[static_cast<size_t>(a)] < places[static_cast<size_t>(b)];
  });
  return order;
}

void Compare(const Head& head, int64_t k) {
  std::vector<std::vector<float>> logits;
  std::vector<float> least;
  for (int64_t s = 0; s < 2 * kStates; ++s) {
    logits.push_back(LogitsOf(head, s));
    least.push_back(Kth(logits.back(), k));
  }
  const Clusters whole(head, 0, kVocab, kClusters);
  // The rows that a cluster costs a step, by the states to learn from, and how often it is opened.
  std::vector<double> costs(static_cast<size_t>(whole.count()), 0.0);
  std::vector<double> hotness = costs;
  for (int64_t c = 0; c < whole.count(); ++c) {
    for (int64_t s = kStates; s < 2 * kStates; ++s) {
      if (!whole.IsOpened(s, c, least[static_cast<size_t>(s)])) continue;
      costs[static_cast<size_t>(c)] += static_cast<double>(whole.Rows(c));
      hotness[static_cast<size_t>(c)] += 1.0;
    }
  }
  std::vector<int64_t> by_hotness(costs.size());
  std::iota(by_hotness.begin(), by_hotness.end(), int64_t{0});
  std::stable_sort(by_hotness.begin(), by_hotness.end(), [&](int64_t a, int64_t b) {
    return hotness[static_cast<size_t>(a)] > hotness[static_cast<size_t>(b)];
  });
  const std::vector<int64_t> by_likeness = ByLikeness(whole);

  std::printf("\n%s, the first %lld tokens\n\n", head.name.c_str(), static_cast<long long>(k));
  std::printf(
      "| split | ranks | rows read | slowest rank, of its share | slowest, of the mean | ranks "
      "that "
      "read |\n|---|---|---|---|---|---|\n");
  for (const int64_t ranks : {2, 4, 8}) {
    auto measure = [&](const char* name, const Owners& owners) {
      Reads reads;
      for (int64_t s = 0; s < kStates; ++s) {
        std::vector<int64_t> rows(static_cast<size_t>(ranks), 0);
        for (int64_t c = 0; c < whole.count(); ++c) {
          if (!whole.IsOpened(s, c, least[static_cast<size_t>(s)])) continue;
          rows[static_cast<size_t>(owners[static_cast<size_t>(c)])] += whole.Rows(c);
        }
        reads.Add(rows);
      }
      reads.Print(name, ranks);
    };
    std::vector<Clusters> slices, fine_slices;
    const int64_t share = kVocab / ranks;
    for (int64_t r = 0; r < ranks; ++r) {
      slices.emplace_back(head, r * share, share, kClusters / ranks);
      fine_slices.emplace_back(head, r * share, share, kClusters);
    }
    // least_of(state, rank)
    auto measure_rows = [&](const char* name, const std::vector<Clusters>& of_ranks,
                            auto least_of) {
      Reads reads;
      for (int64_t s = 0; s < kStates; ++s) {
        std::vector<int64_t> rows(static_cast<size_t>(ranks), 0);
        for (int64_t r = 0; r < ranks; ++r) {
          const Clusters& own = of_ranks[static_cast<size_t>(r)];
          for (int64_t c = 0; c < own.count(); ++c) {
            if (own.IsOpened(s, c, least_of(s, r))) rows[static_cast<size_t>(r)] += own.Rows(c);
          }
        }
        reads.Add(rows);
      }
      reads.Print(name, ranks);
    };
    auto own_first = [&](int64_t s, int64_t r) {
      const auto begin = logits[static_cast<size_t>(s)].begin() + r * share;
      return Kth(std::vector<float>(begin, begin + share), k);
    };
    auto first_of_all = [&](int64_t s, int64_t) { return least[static_cast<size_t>(s)]; };
    measure_rows("rows, a share of the clusters each", slices, own_first);
    measure_rows("rows, as many clusters each", fine_slices, own_first);
    measure_rows("the same, the first of all known", fine_slices, first_of_all);
    Owners in_turn(costs.size());
    for (size_t c = 0; c < in_turn.size(); ++c) in_turn[c] = static_cast<int64_t>(c) % ranks;
    measure("clusters in turn", in_turn);
    measure("clusters by hotness, hot ones together", Consecutive(whole, by_hotness, ranks));
    measure("clusters by hotness, evenly", Balanced(costs, ranks));
    measure("clusters by likeness", Consecutive(whole, by_likeness, ranks));
  }
}

}  // namespace
}  // namespace sluice::bench

int main() {
  const sluice::bench::Head planted = sluice::bench::PlantedHead();
  sluice::bench::Compare(planted, 1);
  sluice::bench::Compare(planted, sluice::bench::kFirst);
  sluice::bench::Compare(sluice::bench::ModelHead(), 1);
}
