// Builds clusters: a head's rows as points, the means that a finder divides them by, the shapes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "head/certified/plane_hash.h"
#include "research/clusters/cluster_file.h"
#include "research/clusters/kmeans_cpu.h"
#include "semantics/draw/philox.h"
#include "semantics/widen.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice::research {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;

double Distance(const float* a, const float* b, size_t size) {
  double squares = 0.0;
  for (size_t i = 0; i < size; ++i) {
    const double rest = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares += rest * rest;
  }
  return std::sqrt(squares);
}

float Up(double x) { return static_cast<float>(x * (1.0 + 0x1p-22) + 0x1p-140); }
float Down(double x) { return static_cast<float>(std::max(0.0, x * (1.0 - 0x1p-22))); }

// The rows as points: in fp32, followed by their biases where those are folded in, and for
// cones of length 1.
struct Points {
  size_t width;
  std::vector<float> values;

  const float* At(int32_t token) const {
    return values.data() + static_cast<size_t>(token) * width;
  }
};

// Tokens and their clusters.
class Means {
 public:
  Means(const Points& points, std::vector<int32_t> tokens, int64_t clusters)
      : points_(points),
        tokens_(std::move(tokens)),
        clusters_(static_cast<size_t>(clusters)),
        centroids_(clusters_ * points.width),
        of_token_(tokens_.size()) {}

  // Different rows, any.
  void Start(uint64_t seed) {
    std::vector<int32_t> some = tokens_;
    for (size_t c = 0; c < clusters_; ++c) {
      const uint32_t word =
          semantics::Philox(seed, static_cast<uint32_t>(c), 0, 0x6d65616eu, 0).word[0];
      std::swap(some[c], some[c + word % (some.size() - c)]);
      std::copy_n(points_.At(some[c]), points_.width, &centroids_[c * points_.width]);
    }
  }

  // What a finder is to do with them.
  MeansTask Task() {
    return {.points = points_.values.data(),
            .width = static_cast<int64_t>(points_.width),
            .rows = tokens_,
            .means = centroids_,
            .cluster_of = of_token_};
  }

  struct Cluster {
    const float* centroid;
    std::vector<int32_t> tokens;  // ascending
  };
  std::vector<Cluster> Clusters() const {
    std::vector<Cluster> all(clusters_);
    for (size_t c = 0; c < clusters_; ++c) all[c].centroid = &centroids_[c * points_.width];
    for (size_t i = 0; i < tokens_.size(); ++i) {
      CheckInRange("options.means: cluster", of_token_[i], 0, static_cast<int64_t>(clusters_) - 1);
      all[static_cast<size_t>(of_token_[i])].tokens.push_back(tokens_[i]);
    }
    std::erase_if(all, [](const Cluster& cluster) { return cluster.tokens.empty(); });
    return all;
  }

 private:
  const Points& points_;
  std::vector<int32_t> tokens_;
  size_t clusters_;
  std::vector<float> centroids_;
  std::vector<int32_t> of_token_;
};

// Rounds of a part of the tokens as a share of all rounds.
struct PartProgress {
  const ClusterOptions& options;
  double before;
  double share;

  static void Report(void* context, int32_t rounds) {
    const auto& part = *static_cast<const PartProgress*>(context);
    part.options.progress(part.options.progress_context,
                          part.before + part.share * rounds / part.options.rounds);
  }
};

class BuiltClusters : public HeadClusters::Impl {
 public:
  explicit BuiltClusters(size_t size) : memory_((size + 7) / 8) {
    bytes_ = {reinterpret_cast<const std::byte*>(memory_.data()), size};
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }

 private:
  std::vector<uint64_t> memory_;
};

void CheckOptions(const DenseHead& head, const ClusterOptions& options) {
  CheckMatrix("head.weight", "dim", head.weight, kMaxDim);
  CheckInRange("head.weight.rows", head.weight.rows, 1, kMaxVocab);
  if (!head.bias.empty()) CheckSize("head.bias", head.bias.size(), head.weight.rows);
  for (size_t v = 0; v < head.bias.size(); ++v) {
    if (std::isfinite(head.bias[v])) continue;
    ThrowInvalid("head.bias[" + std::to_string(v) + "]", ToText(static_cast<double>(head.bias[v])),
                 "a finite number");
  }
  Name(options.metric);  // throws for one that there is not
  const int64_t fine = std::ssize(options.fine_tokens);
  CheckInRange("options.clusters", options.clusters, 1,
               std::max<int64_t>(1, head.weight.rows - fine));
  CheckInRange("options.fine_clusters", options.fine_clusters, fine > 0 ? 1 : 0, fine);
  CheckInRange("options.rounds", options.rounds, 0, 1000);
  CheckInRange("options.bias_leaders", options.bias_leaders, 0, kMaxVocab);
  if (options.folds_bias && options.metric == ClusterMetric::kSpherical) {
    ThrowInvalid("options.folds_bias", "true",
                 "false for kSpherical: a cone has no room for a bias");
  }
}

Points PointsOf(const DenseHead& head, bool folds_bias, const ParallelFor& parallel) {
  const auto dim = static_cast<size_t>(head.weight.columns);
  Points points = {dim + (folds_bias ? 1 : 0), {}};
  points.values.resize(static_cast<size_t>(head.weight.rows) * points.width);
  std::atomic<int64_t> first_bad = head.weight.rows;
  ForEachRow(parallel, head.weight.rows, [&](int64_t v, int) {
    float* const point = &points.values[static_cast<size_t>(v) * points.width];
    bool is_finite = true;
    for (size_t j = 0; j < dim; ++j) {
      point[j] = semantics::Load(head.weight.Row(v), head.weight.dtype, static_cast<int64_t>(j));
      is_finite = is_finite && std::isfinite(point[j]);
    }
    if (folds_bias) point[dim] = head.bias.empty() ? 0.0f : head.bias[static_cast<size_t>(v)];
    int64_t known = first_bad;
    while (!is_finite && v < known && !first_bad.compare_exchange_weak(known, v)) {
    }
  });
  if (first_bad < head.weight.rows) {
    const float* const point = points.At(static_cast<int32_t>(first_bad));
    const auto* const bad =
        std::find_if(point, point + dim, [](float x) { return !std::isfinite(x); });
    ThrowInvalid("weight[" + ToText(first_bad) + "][" + ToText(int64_t{bad - point}) + "]",
                 ToText(static_cast<double>(*bad)), "a finite number");
  }
  return points;
}

// Each cluster after its leaders, which are clusters around the same centroid.
std::vector<Means::Cluster> Apart(std::vector<Means::Cluster> clusters, std::span<const float> bias,
                                  int64_t most_leaders) {
  std::vector<Means::Cluster> all;
  for (Means::Cluster& cluster : clusters) {
    const auto count = std::min(most_leaders, std::ssize(cluster.tokens) - 1);
    const auto bias_of = [&](int32_t token) { return bias[static_cast<size_t>(token)]; };
    if (count > 0) {
      std::vector<float> order;
      std::ranges::transform(cluster.tokens, std::back_inserter(order), bias_of);
      // The first that is no leader's; the others with its bias are no leaders either.
      const auto behind = order.begin() + count;
      std::nth_element(order.begin(), behind, order.end(), std::greater<>());
      const auto others = std::stable_partition(cluster.tokens.begin(), cluster.tokens.end(),
                                                [&](int32_t t) { return bias_of(t) > *behind; });
      for (auto token = cluster.tokens.begin(); token != others; ++token) {
        all.push_back({cluster.centroid, {*token}});
      }
      cluster.tokens.erase(cluster.tokens.begin(), others);
    }
    all.push_back(std::move(cluster));
  }
  return all;
}

ClusterShape ShapeOf(const DenseHead& head, const Points& points, const Means::Cluster& cluster,
                     bool folds_bias) {
  const auto dim = static_cast<size_t>(head.weight.columns);
  ClusterShape shape = {};
  const double norm = std::sqrt(DotInDouble(cluster.centroid, cluster.centroid, dim));
  double radius = 0.0, angle = 0.0, most = 0.0, least = INFINITY;
  float bias = -INFINITY;
  for (const int32_t token : cluster.tokens) {
    const float* const point = points.At(token);
    const double of_row = std::sqrt(DotInDouble(point, point, dim));
    radius = std::max(radius, Distance(point, cluster.centroid, points.width));
    most = std::max(most, of_row);
    least = std::min(least, of_row);
    bias = std::max(bias, head.bias.empty() ? 0.0f : head.bias[static_cast<size_t>(token)]);
    const double scale = norm * of_row;
    const double cosine = scale > 0.0 ? DotInDouble(point, cluster.centroid, dim) / scale : 1.0;
    angle = std::max(angle, std::acos(std::clamp(cosine - kClusterSlack, -1.0, 1.0)));
  }
  shape.radius = Up(radius * (1.0 + kClusterSlack));
  shape.angle = Up(norm > 0.0 ? angle : 3.1415927);
  shape.least_norm = Down(least);
  shape.most_norm = Up(most);
  shape.norm = Up(norm);
  shape.bias = folds_bias ? cluster.centroid[dim] : bias;
  shape.size = static_cast<int32_t>(cluster.tokens.size());
  return shape;
}

}  // namespace

std::string_view Name(ClusterMetric metric) {
  switch (metric) {
    case ClusterMetric::kEuclidean:
      return "euclidean";
    case ClusterMetric::kSpherical:
      return "spherical";
  }
  ThrowInvalid("metric", std::to_string(static_cast<int>(metric)), "euclidean, spherical");
}

ClusterMetric ClusterMetricByName(std::string_view name) {
  for (const ClusterMetric metric : {ClusterMetric::kEuclidean, ClusterMetric::kSpherical}) {
    if (Name(metric) == name) return metric;
  }
  ThrowInvalid("metric", ToText(name), "euclidean, spherical");
}

HeadClusters HeadClusters::Build(const DenseHead& head, const ClusterOptions& options,
                                 const ParallelFor& parallel) {
  CheckOptions(head, options);
  const int64_t vocab = head.weight.rows;
  const bool is_spherical = options.metric == ClusterMetric::kSpherical;
  const Points points = PointsOf(head, options.folds_bias, parallel);
  Points directions;
  if (is_spherical) {
    directions = points;
    ForEachRow(parallel, vocab, [&](int64_t v, int) {
      float* const point = &directions.values[static_cast<size_t>(v) * points.width];
      const double norm = std::sqrt(DotInDouble(point, point, points.width));
      for (size_t j = 0; norm > 0.0 && j < points.width; ++j) {
        point[j] = static_cast<float>(static_cast<double>(point[j]) / norm);
      }
    });
  }

  std::vector<bool> is_fine(static_cast<size_t>(vocab));
  for (const int32_t token : options.fine_tokens) {
    CheckInRange("options.fine_tokens", token, 0, vocab - 1);
    is_fine[static_cast<size_t>(token)] = true;
  }
  const CpuKMeans threaded(parallel);
  const MeansFinder& finder = options.means == nullptr ? threaded : *options.means;
  std::vector<Means::Cluster> clusters;
  std::vector<Means> parts;
  parts.reserve(2);
  for (const bool fine : {false, true}) {
    std::vector<int32_t> tokens;
    for (int32_t v = 0; v < vocab; ++v) {
      if (is_fine[static_cast<size_t>(v)] == fine) tokens.push_back(v);
    }
    if (tokens.empty()) continue;
    const int64_t wanted = fine ? options.fine_clusters : options.clusters;
    Means& means = parts.emplace_back(is_spherical ? directions : points, tokens,
                                      std::min<int64_t>(wanted, std::ssize(tokens)));
    means.Start(options.seed + (fine ? 1 : 0));
    PartProgress progress = {options, fine && parts.size() > 1 ? 0.5 : 0.0,
                             options.fine_tokens.empty() ? 1.0 : 0.5};
    MeansTask task = means.Task();
    task.is_spherical = is_spherical;
    task.rounds = options.rounds;
    if (options.progress != nullptr) {
      task.progress = PartProgress::Report;
      task.progress_context = &progress;
    }
    finder.Find(task);
    for (Means::Cluster& cluster : means.Clusters()) clusters.push_back(std::move(cluster));
  }

  const auto centroids_count = std::ssize(clusters);
  if (!head.bias.empty() && !options.folds_bias) {
    clusters = Apart(std::move(clusters), head.bias, options.bias_leaders);
  }
  ClusterHeader header = {};
  std::memcpy(header.magic, kClusterMagic, sizeof header.magic);
  header.version = kClusterVersion;
  header.metric = static_cast<uint32_t>(options.metric);
  header.dtype = static_cast<uint32_t>(head.weight.dtype);
  header.folds_bias = options.folds_bias ? 1 : 0;
  header.vocab = vocab;
  header.dim = head.weight.columns;
  header.clusters = std::ssize(clusters);
  header.centroids = centroids_count;
  const ClusterLayout layout(header);
  const auto built = std::make_shared<BuiltClusters>(layout.end);
  auto* const shapes = reinterpret_cast<ClusterShape*>(built->data() + layout.shapes);
  auto* const centroids = reinterpret_cast<float*>(built->data() + layout.centroids);
  auto* const tokens = reinterpret_cast<int32_t*>(built->data() + layout.tokens);
  int32_t begin = 0, centroid = -1;
  for (int64_t c = 0; c < header.clusters; ++c) {
    const Means::Cluster& cluster = clusters[static_cast<size_t>(c)];
    if (c == 0 || cluster.centroid != clusters[static_cast<size_t>(c) - 1].centroid) {
      std::copy_n(cluster.centroid, header.dim, centroids + ++centroid * header.dim);
    }
    std::copy(cluster.tokens.begin(), cluster.tokens.end(), tokens + begin);
    shapes[c].begin = begin;
    shapes[c].centroid = centroid;
    begin += static_cast<int32_t>(cluster.tokens.size());
  }
  ForEachRow(parallel, header.clusters, [&](int64_t c, int) {
    ClusterShape shape =
        ShapeOf(head, points, clusters[static_cast<size_t>(c)], options.folds_bias);
    shape.begin = shapes[c].begin;
    shape.centroid = shapes[c].centroid;
    shapes[c] = shape;
  });

  header.head_hash = HashOfHead(head, parallel);
  header.sections_hash = HashOfPlanes(built->bytes().subspan(layout.shapes), parallel);
  header.file_bytes = layout.end;
  header.header_hash = HashOfHeader(header);
  std::memcpy(built->data(), &header, sizeof header);
  return ClusterAccess::Make(built);
}

}  // namespace sluice::research
