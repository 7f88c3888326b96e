#include "bench/head/head_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "head/certified/score_table.h"
#include "research/clusters/cluster_file.h"
#include "semantics/order.h"
#include "sluice/draw.hpp"

namespace sluice::bench {
namespace {

constexpr int32_t kMostFirst = 50;

size_t BytesFor(std::span<const CertifiedHead> certified, const MutableLogitsView& logits,
                const Execution& execution) {
  size_t bytes = SelectWorkspaceBytes(logits, execution);  // the projection takes none
  for (const CertifiedHead& one : certified) {
    bytes = std::max({bytes, SampleFromHeadWorkspaceBytes(one, 1, execution),
                      one.TopKWorkspaceBytes(1, execution)});
  }
  return bytes;
}

std::vector<CertifiedHead> BothKinds(const DenseHead& head, const ParallelFor& parallel) {
  std::vector<CertifiedHead> certified;
  for (const CertificateKind kind : {CertificateKind::kDither4, CertificateKind::kStrict}) {
    certified.emplace_back(head,
                           HeadPlanes::Build(head.weight, {.kind = kind, .seed = 1}, parallel));
  }
  return certified;
}

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

}  // namespace

std::span<const HeadQuestion> HeadQuestions() {
  static const HeadQuestion questions[] = {
      {"first 1", 1, {}},
      {"first 10", 10, {}},
      {"first 50", kMostFirst, {}},
      {"greedy", 0, {.temperature = 0.0f}},
      {"k=10", 0, {.top_k = 10}},
      {"k=50", 0, {.top_k = 50}},
      {"k=50 p=0.9", 0, {.top_k = 50, .top_p = 0.9f}},
      {"min_p=0.05", 0, {.min_p = 0.05f}},
      {"softmax", 0, {}},
      {"p=0.9", 0, {.top_p = 0.9f}},
      {"p=0.9 id", 0, {.top_p = 0.9f}, false},
  };
  return questions;
}

HeadCheck::HeadCheck(const DenseHead& head, const HeadCheckOptions& options)
    : head_(head),
      options_(options),
      certified_(BothKinds(head, options.parallel)),
      execution_{.backend = options.backend, .parallel = options.parallel},
      logits_(static_cast<size_t>(head.weight.rows)),
      workspace_(BytesFor(certified_, LogitsOf(), execution_)),
      first_(logits_.size()) {
  execution_.workspace = workspace_.span();
  for (const int64_t count : options.clusters) {
    for (const research::ClusterMetric metric :
         {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
      clusters_.push_back(research::HeadClusters::Build(
          head, {.metric = metric, .clusters = count, .bias_leaders = 0}, options.parallel));
      searches_.emplace_back(head, clusters_.back(), research::ClusterBudget{}, options.backend);
    }
  }
  Reset();
}

void HeadCheck::Reset() {
  answers_.clear();
  intervals_.clear();
  cluster_figures_.clear();
  for (const CertifiedHead& head : certified_) {
    const CertificateKind kind = head.planes().kind();
    for (const HeadQuestion& question : HeadQuestions()) {
      answers_.push_back({.kind = kind, .question = question.name});
    }
    intervals_.push_back({.kind = kind});
    intervals_.push_back({.kind = kind, .is_refined = true});
  }
  for (const research::HeadClusters& clusters : clusters_) {
    cluster_figures_.push_back({.metric = clusters.metric(), .clusters = clusters.clusters()});
  }
}

MutableLogitsView HeadCheck::LogitsOf() {
  const int64_t vocab = std::ssize(logits_);
  return {logits_.data(), 1, vocab, vocab, DType::kF32, {}};
}

std::span<const float> HeadCheck::Add(const MatrixView& hidden) {
  Project(head_, hidden, {}, LogitsOf(), execution_);
  std::iota(first_.begin(), first_.end(), 0);
  const auto most = std::min<int64_t>(kMostFirst, std::ssize(first_));
  std::partial_sort(first_.begin(), first_.begin() + most, first_.end(), [&](int32_t a, int32_t b) {
    return semantics::Before({logits_[static_cast<size_t>(a)], a},
                             {logits_[static_cast<size_t>(b)], b});
  });
  auto answers = answers_.begin();
  for (size_t c = 0; c < certified_.size(); ++c) {
    for (const HeadQuestion& question : HeadQuestions()) {
      Evaluate(certified_[c], question, hidden, *answers++);
    }
    CheckIntervals(certified_[c], hidden, std::span(intervals_).subspan(2 * c, 2));
  }
  if (states_ % options_.cluster_every == 0) {
    for (size_t c = 0; c < clusters_.size(); ++c) {
      bounds_.resize(static_cast<size_t>(clusters_[c].clusters()));
      searches_[c].Bounds(hidden, bounds_);
      CheckClusters(clusters_[c], cluster_figures_[c]);
    }
  }
  ++states_;
  return logits_;
}

void HeadCheck::Evaluate(const CertifiedHead& head, const HeadQuestion& question,
                         const MatrixView& hidden, HeadAnswers& answers) {
  CertifiedStats stats;
  CertifiedRow row;
  const bool is_same = question.first > 0 ? IsDenseTop(head, question.first, hidden, stats, row)
                                          : IsDenseToken(head, question, hidden, stats, row);
  ++answers.states;
  answers.different += is_same ? 0 : 1;
  answers.dense += row.path == CertifiedPath::kDense ? 1 : 0;
  answers.dense_survivors += row.reason == DenseReason::kSurvivors ? 1 : 0;
  answers.dense_parameters += row.reason == DenseReason::kParameters ? 1 : 0;
  answers.dense_mass += row.reason == DenseReason::kMass ? 1 : 0;
  answers.dense_hidden += row.reason == DenseReason::kHidden ? 1 : 0;
  answers.survivors += row.survivors;
  answers.most_survivors = std::max(answers.most_survivors, row.survivors);
  answers.bytes_read += stats.bytes_read;
  answers.dense_bytes += stats.dense_bytes;
}

bool HeadCheck::IsDenseToken(const CertifiedHead& head, const HeadQuestion& question,
                             const MatrixView& hidden, CertifiedStats& stats, CertifiedRow& row) {
  const NoiseKey key{.seed = 1, .position = static_cast<uint32_t>(states_)};
  TokenResult dense, result;
  Sample({LogitsOf(), {&question.params, 1}, {&key, 1}}, DrawMethod::kGumbel, {&dense, 1},
         execution_);
  if (question.needs_cut) {
    stats = SampleFromHead(head, {hidden, {}}, {&question.params, 1}, {&key, 1}, {},
                           DrawMethod::kGumbel, {&result, 1}, {&row, 1}, execution_);
  } else {
    stats = SampleIdsFromHead(head, {hidden, {}}, {&question.params, 1}, {&key, 1}, {},
                              DrawMethod::kGumbel, {&result.id, 1}, {&result.status, 1}, {&row, 1},
                              execution_);
    result.cut = dense.cut;
  }
  return result.id == dense.id && result.status == dense.status && result.cut == dense.cut &&
         dense.status == RowStatus::kOk;
}

bool HeadCheck::IsDenseTop(const CertifiedHead& head, int32_t k, const MatrixView& hidden,
                           CertifiedStats& stats, CertifiedRow& row) {
  const int32_t count = std::min(k, static_cast<int32_t>(first_.size()));
  int32_t ids[kMostFirst];
  float logits[kMostFirst];
  RowStatus status;
  const auto size = static_cast<size_t>(count);
  stats = head.TopK({hidden, {}}, {count, {ids, size}, {logits, size}, {&status, 1}}, {&row, 1},
                    execution_);
  bool is_same = status == RowStatus::kOk;
  for (size_t i = 0; i < size; ++i) {
    is_same = is_same && ids[i] == first_[i] &&
              SameBits(logits[i], logits_[static_cast<size_t>(first_[i])]);
  }
  return is_same;
}

// In fp64, where the difference of two floats is exact enough to be compared with a third one: the
// certificates round their upper ends, which a logit inside cannot come to lie above.
void HeadCheck::CheckIntervals(const CertifiedHead& head, const MatrixView& hidden,
                               std::span<IntervalFigures> figures) {
  const PlaneView planes = PlaneAccess::View(head.planes());
  const ScoreTable& table = ScoreTableFor(options_.backend);
  std::vector<HiddenGroup> groups(static_cast<size_t>(planes.groups));
  HiddenState state;
  if (!EncodeHidden({hidden.data, hidden.dtype, hidden.columns}, planes, groups.data(), state)) {
    return;
  }
  const auto size = static_cast<size_t>(planes.tiles() * kTileRows);
  std::vector<float> scores(size), widths(size);
  const Intervals intervals{scores.data(), widths.data()};
  const auto compare = [&](IntervalFigures& of) {
    for (size_t v = 0; v < logits_.size(); ++v) {
      const double width = static_cast<double>(widths[v]);
      const double off = std::abs(static_cast<double>(logits_[v]) - static_cast<double>(scores[v]));
      of.violated += off <= width ? 0 : 1;
      of.largest = std::max(of.largest, off / width);
      of.widths += width;
    }
    of.row_steps += std::ssize(logits_);
  };
  table.score(planes, head_.bias, {&state, 1}, {&intervals, 1}, 0, planes.tiles());
  compare(figures[0]);
  if (planes.low_codes == nullptr) return;
  for (int64_t v = 0; v < planes.vocab; ++v) table.refine(planes, state, v, intervals);
  compare(figures[1]);
}

void HeadCheck::CheckClusters(const research::HeadClusters& clusters, ClusterFigures& figures) {
  const research::ClusterView view = research::ClusterAccess::View(clusters);
  const auto logit_of = [&](int32_t id) {
    return static_cast<double>(logits_[static_cast<size_t>(id)]);
  };
  double least_opened = INFINITY, most_bound = -INFINITY;
  for (size_t c = 0; c < bounds_.size(); ++c) {
    const std::span<const int32_t> tokens = view.Tokens(static_cast<int64_t>(c));
    most_bound = std::max(most_bound, bounds_[c]);
    for (size_t i = 0; i < std::size(kOpenedFirst); ++i) {
      const int64_t k = std::min<int64_t>(kOpenedFirst[i], std::ssize(first_));
      if (bounds_[c] < logit_of(first_[static_cast<size_t>(k) - 1])) continue;
      figures.opened[i] += static_cast<double>(tokens.size()) / static_cast<double>(logits_.size());
    }
    for (const int32_t id : tokens) {
      figures.violated += logit_of(id) <= bounds_[c] ? 0 : 1;
      if (bounds_[c] >= logit_of(first_[0])) least_opened = std::min(least_opened, logit_of(id));
    }
  }
  figures.tightness += (logit_of(first_[0]) - least_opened) / (most_bound - least_opened);
  ++figures.states;
}

}  // namespace sluice::bench
