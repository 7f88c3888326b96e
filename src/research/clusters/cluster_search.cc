// Questions to a head in clusters: open them in the order of their bounds until what is closed
// cannot matter.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "head/dense_table.h"
#include "research/clusters/cluster_certificate.h"
#include "research/clusters/cluster_file.h"
#include "semantics/order.h"
#include "support/check.h"

namespace sluice::research {
namespace {

constexpr int kChains = 4;

double Product(const float* a, const float* b, size_t size) {
  double chain[kChains] = {};
  size_t i = 0;
  for (; i + kChains <= size; i += kChains) {
    for (size_t c = 0; c < kChains; ++c) {
      chain[c] += static_cast<double>(a[i + c]) * static_cast<double>(b[i + c]);
    }
  }
  for (; i < size; ++i) chain[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return chain[0] + chain[1] + (chain[2] + chain[3]);
}

void CheckHidden(const MatrixView& hidden, const HeadClusters& clusters) {
  CheckMatrix("hidden", "dim", hidden, int64_t{1} << 20);
  CheckInRange("hidden.dim", hidden.columns, clusters.dim(), clusters.dim());
  CheckInRange("hidden.rows", hidden.rows, 1, 1);
}

void Widen(const MatrixView& hidden, std::span<float> state) {
  for (size_t j = 0; j < state.size(); ++j) {
    state[j] = semantics::Load(hidden.data, hidden.dtype, static_cast<int64_t>(j));
  }
}

void FillBounds(const ClusterView& view, std::span<const float> state, std::span<double> bounds) {
  const double squares = Product(state.data(), state.data(), state.size());
  const HiddenNorm norm = HiddenNormOf(squares);
  const double gamma = ClusterGamma(std::ssize(state));
  const bool is_cone = static_cast<ClusterMetric>(view.header->metric) == ClusterMetric::kSpherical;
  const bool folds_bias = view.header->folds_bias != 0;
  double product = 0.0;
  for (size_t c = 0; c < bounds.size(); ++c) {
    if (c == 0 || view.shapes[c].centroid != view.shapes[c - 1].centroid) {
      product = Product(view.Centroid(static_cast<int64_t>(c)), state.data(), state.size());
    }
    bounds[c] = ClusterBound(view.shapes[c], product, norm, gamma, is_cone, folds_bias);
  }
}

}  // namespace

void CheckQuestion(const ClusterQuestion& question, int64_t vocab) {
  if (question.certificate == ClusterCertificate::kTopK) {
    return CheckInRange("question.k", question.k, 1, vocab);
  }
  const bool is_softmax = question.certificate == ClusterCertificate::kSoftmax;
  const double share = is_softmax ? question.epsilon : question.p;
  if (!(share > 0.0 && share < 1.0)) {
    ThrowInvalid(is_softmax ? "question.epsilon" : "question.p", ToText(share), "between 0 and 1");
  }
  if (!(question.temperature > 0.0 && question.temperature < INFINITY)) {
    ThrowInvalid("question.temperature", ToText(question.temperature), "above 0, finite");
  }
}

std::string_view Name(ClusterPath path) {
  constexpr std::string_view kNames[] = {"budget", "expanded", "relaxed", "dense"};
  return kNames[static_cast<size_t>(path)];
}

std::string_view Name(ClusterReason reason) {
  constexpr std::string_view kNames[] = {"none", "budget", "hidden", "logit"};
  return kNames[static_cast<size_t>(reason)];
}

ClusterSearch::ClusterSearch(const DenseHead& head, HeadClusters clusters,
                             const ClusterBudget& budget, Backend backend)
    : head_(head), clusters_(std::move(clusters)), budget_(budget), backend_(backend) {
  CheckInRange("head.weight.rows", head.weight.rows, clusters_.vocab(), clusters_.vocab());
  CheckInRange("head.weight.dim", head.weight.columns, clusters_.dim(), clusters_.dim());
  const auto vocab = static_cast<size_t>(head.weight.rows);
  pace_ = StartOf(budget, head.weight.rows);
  hidden_.resize(static_cast<size_t>(head.weight.columns));
  bounds_.resize(static_cast<size_t>(clusters_.clusters()));
  heap_.reserve(bounds_.size());
  for (auto* ids : {&ids_, &order_, &answer_ids_}) ids->reserve(vocab);
  logits_.reserve(vocab);
  answer_logits_.reserve(vocab);
}

void ClusterSearch::Bounds(const MatrixView& hidden, std::span<double> bounds) const {
  CheckHidden(hidden, clusters_);
  CheckSize("bounds", bounds.size(), clusters_.clusters());
  std::vector<float> state(static_cast<size_t>(hidden.columns));
  Widen(hidden, state);
  FillBounds(ClusterAccess::View(clusters_), state, bounds);
}

void ClusterSearch::Open(int32_t cluster, ClusterAnswer& answer) {
  const ClusterView view = ClusterAccess::View(clusters_);
  const std::span<const int32_t> tokens = view.Tokens(cluster);
  const size_t before = ids_.size();
  ids_.insert(ids_.end(), tokens.begin(), tokens.end());
  logits_.resize(ids_.size());
  const semantics::Row state{hidden_.data(), DType::kF32, std::ssize(hidden_)};
  DenseHeadTableFor(backend_).project_some(head_, state, tokens, logits_.data() + before);
  ++answer.clusters_opened;
  answer.rows_opened += std::ssize(tokens);
}

bool ClusterSearch::Holds(const ClusterQuestion& question, double epsilon, ClusterAnswer& answer) {
  const auto before = [&](int32_t a, int32_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return semantics::Before({logits_[i], ids_[i]}, {logits_[j], ids_[j]});
  };
  const bool is_top = question.certificate == ClusterCertificate::kTopK;
  const auto opened = std::ssize(ids_);
  if (opened == 0 || (is_top && opened < question.k)) return false;
  const double most_closed = heap_.empty() ? -INFINITY : bounds_[static_cast<size_t>(heap_[0])];
  order_.resize(ids_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<int32_t>(i);
  int64_t size = opened;
  if (is_top) {
    size = question.k;
    std::nth_element(order_.begin(), order_.begin() + size - 1, order_.end(), before);
    const float least = logits_[static_cast<size_t>(order_[static_cast<size_t>(size) - 1])];
    if (!IsAboveClosed(least, most_closed)) return false;
    std::sort(order_.begin(), order_.begin() + size, before);
  } else {
    const float most = *std::max_element(logits_.begin(), logits_.end());
    const auto weight = [&](double x) { return ClusterWeight(x, most, question.temperature); };
    double mass = 0.0, closed = 0.0;
    for (const float x : logits_) mass += weight(static_cast<double>(x));
    const ClusterView view = ClusterAccess::View(clusters_);
    for (const int32_t c : heap_) {
      closed += static_cast<double>(view.shapes[static_cast<size_t>(c)].size) *
                weight(bounds_[static_cast<size_t>(c)]);
    }
    if (question.certificate == ClusterCertificate::kSoftmax) {
      if (!SoftmaxHolds(closed, mass, epsilon)) return false;
      answer.epsilon = MostVariation(closed, mass);
    } else {
      std::sort(order_.begin(), order_.end(), before);
      const NucleusEnds ends = NucleusEndsOf(question.p, mass, closed, heap_.empty());
      double kept = 0.0;
      int64_t first = 0, last = 0;
      for (int64_t i = 0; i < opened && last == 0; ++i) {
        const auto at = static_cast<size_t>(order_[static_cast<size_t>(i)]);
        kept += weight(static_cast<double>(logits_[at]));
        if (first == 0 && kept >= ends.low) first = i + 1;
        if (kept >= ends.high) last = i + 1;
      }
      // The sum in another order may be the smaller one.
      if (heap_.empty() && last == 0) first = last = opened;
      if (first == 0 || first != last) return false;
      size = first;
      const auto at = static_cast<size_t>(order_[static_cast<size_t>(size) - 1]);
      if (!IsAboveClosed(logits_[at], most_closed)) return false;
    }
  }
  answer_ids_.clear();
  answer_logits_.clear();
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<size_t>(order_[static_cast<size_t>(i)]);
    answer_ids_.push_back(ids_[at]);
    answer_logits_.push_back(logits_[at]);
  }
  return true;
}

bool ClusterSearch::OpenUpTo(double rows, const ClusterQuestion& question, ClusterAnswer& answer) {
  const auto below = [&](int32_t a, int32_t b) {
    return bounds_[static_cast<size_t>(a)] < bounds_[static_cast<size_t>(b)];
  };
  // A look at what is open takes as long as it is large, so it waits for a tenth more.
  double next_look = 0.0;
  while (!heap_.empty()) {
    const auto opened = static_cast<double>(answer.rows_opened);
    if (opened >= next_look) {
      if (Holds(question, question.epsilon, answer)) return true;
      next_look = 1.1 * opened;
    }
    if (opened >= rows) return false;
    std::pop_heap(heap_.begin(), heap_.end(), below);
    const int32_t cluster = heap_.back();
    heap_.pop_back();
    Open(cluster, answer);
  }
  return Holds(question, question.epsilon, answer);
}

void ClusterSearch::TakeAll(const ClusterQuestion& question, ClusterAnswer& answer) {
  while (!heap_.empty()) {
    Open(heap_.back(), answer);
    heap_.pop_back();
  }
  answer.path = ClusterPath::kDense;
  answer.reason = ClusterReason::kBudget;
  Holds(question, question.epsilon, answer);
}

ClusterAnswer ClusterSearch::Search(const MatrixView& hidden, const ClusterQuestion& question) {
  return Search(hidden, question, pace_.steps);
}

ClusterAnswer ClusterSearch::Search(const MatrixView& hidden, const ClusterQuestion& question,
                                    int64_t position) {
  CheckQuestion(question, head_.weight.rows);
  CheckHidden(hidden, clusters_);
  Widen(hidden, hidden_);
  ClusterAnswer answer;
  if (!std::all_of(hidden_.begin(), hidden_.end(), [](float h) { return std::isfinite(h); })) {
    answer.path = ClusterPath::kDense;
    answer.reason = ClusterReason::kHidden;
    return answer;
  }
  ids_.clear();
  logits_.clear();
  heap_.clear();
  FillBounds(ClusterAccess::View(clusters_), hidden_, bounds_);
  for (size_t c = 0; c < bounds_.size(); ++c) heap_.push_back(static_cast<int32_t>(c));
  std::make_heap(heap_.begin(), heap_.end(), [&](int32_t a, int32_t b) {
    return bounds_[static_cast<size_t>(a)] < bounds_[static_cast<size_t>(b)];
  });
  const double rows =
      RowsOfNext({pace_.rows, pace_.dense_share, position}, budget_, head_.weight.rows);
  const bool is_softmax = question.certificate == ClusterCertificate::kSoftmax;
  if (OpenUpTo(rows, question, answer)) {
    answer.path = ClusterPath::kBudget;
  } else if (OpenUpTo(2.0 * rows, question, answer)) {
    answer.path = ClusterPath::kExpanded;
  } else if (is_softmax && budget_.relaxes && question.epsilon < 0.5 &&
             Holds(question, 2.0 * question.epsilon, answer)) {
    answer.path = ClusterPath::kRelaxed;
  } else {
    TakeAll(question, answer);
  }
  Follow(pace_, budget_, head_.weight.rows, answer.path == ClusterPath::kDense);
  for (const float x : logits_) {
    if (std::isfinite(x)) continue;
    answer.path = ClusterPath::kDense;
    answer.reason = ClusterReason::kLogit;
    return answer;
  }
  answer.ids = answer_ids_;
  answer.logits = answer_logits_;
  return answer;
}

}  // namespace sluice::research
