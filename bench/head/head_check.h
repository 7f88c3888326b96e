// Hidden states through the certified head in every mode, each compared with the dense head:
// tokens, kept sets, logits that were computed, and the interval of every row of the head.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bench/support/aligned_workspace.h"
#include "sluice/certified_sample.hpp"
#include "sluice/research/clusters.hpp"

namespace sluice::bench {

// The question for a hidden state: its first k tokens with their logits, or a token of it.
struct HeadQuestion {
  std::string_view name;
  int32_t first = 0;  // k; 0: a token, by `params`
  SelectParams params = {};
  bool needs_cut = true;
};
std::span<const HeadQuestion> HeadQuestions();

struct HeadAnswers {
  CertificateKind kind;
  std::string_view question;
  int64_t states = 0;
  int64_t different = 0;  // not the dense head's, bit for bit
  int64_t dense = 0;      // took the whole head; of them for the reasons
  int64_t dense_survivors = 0;
  int64_t dense_parameters = 0;
  int64_t dense_mass = 0;
  int64_t dense_hidden = 0;
  int64_t survivors = 0;  // of all states
  int32_t most_survivors = 0;
  int64_t bytes_read = 0;
  int64_t dense_bytes = 0;
};

struct IntervalFigures {
  CertificateKind kind;
  bool is_refined = false;  // by the second plane
  int64_t row_steps = 0;    // rows of the head times hidden states
  int64_t violated = 0;     // the defined logit lies outside
  double largest = 0.0;     // distance of a logit from the middle, of the half width
  double widths = 0.0;      // the sum of half widths
};

// The ball and the cone bound, which open every cluster with a bound not below the k-th logit.
struct ClusterFigures {
  research::ClusterMetric metric;
  int64_t clusters = 0;
  int64_t states = 0;
  int64_t violated = 0;    // logits above their cluster's bound
  double opened[3] = {};   // sums over states of the share of rows, for the k of kOpenedFirst
  double tightness = 0.0;  // sum of (first - last opened) / (largest bound - last opened), k = 1
};
inline constexpr int32_t kOpenedFirst[3] = {1, 10, 50};

struct HeadCheckOptions {
  std::span<const int64_t> clusters = {};
  int64_t cluster_every = 8;  // hidden states: each bound takes as long as several answers
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

class HeadCheck {
 public:
  HeadCheck(const DenseHead& head, const HeadCheckOptions& options);

  // hidden: one row. Returns its dense logits, until the next call.
  std::span<const float> Add(const MatrixView& hidden);

  std::span<const HeadAnswers> answers() const { return answers_; }
  std::span<const IntervalFigures> intervals() const { return intervals_; }
  std::span<const ClusterFigures> clusters() const { return cluster_figures_; }
  // From zero again, with the same planes.
  void Reset();

 private:
  void Evaluate(const CertifiedHead& head, const HeadQuestion& question, const MatrixView& hidden,
                HeadAnswers& answers);
  bool IsDenseToken(const CertifiedHead& head, const HeadQuestion& question,
                    const MatrixView& hidden, CertifiedStats& stats, CertifiedRow& row);
  bool IsDenseTop(const CertifiedHead& head, int32_t k, const MatrixView& hidden,
                  CertifiedStats& stats, CertifiedRow& row);
  void CheckIntervals(const CertifiedHead& head, const MatrixView& hidden,
                      std::span<IntervalFigures> figures);
  void CheckClusters(const research::HeadClusters& clusters, ClusterFigures& figures);
  MutableLogitsView LogitsOf();

  DenseHead head_;
  HeadCheckOptions options_;
  std::vector<CertifiedHead> certified_;
  std::vector<research::ClusterSearch> searches_;
  std::vector<research::HeadClusters> clusters_;
  std::vector<HeadAnswers> answers_;        // of each kind, of each question
  std::vector<IntervalFigures> intervals_;  // of each kind: as scored, then refined
  std::vector<ClusterFigures> cluster_figures_;
  Execution execution_;
  std::vector<float> logits_;
  AlignedWorkspace workspace_;
  std::vector<int32_t> first_;  // the first tokens of the dense logits
  std::vector<double> bounds_;
  int64_t states_ = 0;  // since the start: the position of the noise
};

}  // namespace sluice::bench
