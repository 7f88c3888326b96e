// The head by clusters of rows: a centroid and a radius bound the logits of all rows of a cluster,
// so that clusters which cannot matter are not read. docs/research/csv-decode.md says what they
// gain: next to nothing on heads of trained models, most of the read on heads that do have their
// rows in clusters. The certified head to use is certified_head.hpp. Link Sluice::research.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/head.hpp"

namespace sluice::research {

enum class ClusterMetric : uint8_t {
  kEuclidean,  // k-means of rows; a ball bounds a cluster
  kSpherical,  // k-means of directions; a cone and the rows' norms do
};

std::string_view Name(ClusterMetric metric);
ClusterMetric ClusterMetricByName(std::string_view name);  // throws Error with the known ones

// Points to divide, and what becomes of them.
struct MeansTask {
  const float* points = nullptr;  // [rows, width]
  int64_t width = 0;
  std::span<const int32_t> rows = {};  // those to divide, ascending
  std::span<float> means = {};         // [clusters, width]: first some of the points
  std::span<int32_t> cluster_of = {};  // one a row of `rows`
  bool is_spherical = false;           // points and means have length 1
  int32_t rounds = 0;
  void (*progress)(void* context, int32_t rounds) = nullptr;  // null, or called after each round
  void* progress_context = nullptr;
};

// Moves means and assigns points to them, for Build. Whatever it answers is a valid clustering
// as long as every row has a cluster: bounds are computed from the result.
class MeansFinder {
 public:
  virtual ~MeansFinder() = default;
  // Assigns each row to its nearest mean, of equally near ones to the first, and then in each round
  // moves the means and assigns again. A mean without rows stays where it is.
  virtual void Find(const MeansTask& task) const = 0;
};

struct ClusterOptions {
  ClusterMetric metric = ClusterMetric::kEuclidean;
  int64_t clusters = 2000;  // at most one a row; those that stay empty are left out
  int32_t rounds = 10;
  uint64_t seed = 1;
  // Tokens that share no cluster with others, such as numbers and symbols, and clusters for them.
  std::span<const int32_t> fine_tokens = {};
  int64_t fine_clusters = 0;
  // The bias as one more element of a row, with an element 1 of the hidden state. Otherwise a
  // cluster's largest bias is added to its bound.
  bool folds_bias = false;
  // The rows of each cluster with the largest biases, at most this many, are bounded and opened one
  // by one: a token that leads by its bias then opens no cluster. None where biases are folded in.
  int32_t bias_leaders = 3;
  // Null: the parallel-for. On a GPU: DeviceMeans (research/device_clusters.hpp).
  const MeansFinder* means = nullptr;
  // Called by Build after each round with the share of the rounds that is done.
  void (*progress)(void* context, double share) = nullptr;
  void* progress_context = nullptr;
};

// Immutable, cheap to copy, without the weights.
class HeadClusters {
 public:
  // The same clusters for the same options and finder whatever the threads. Throws Error naming the
  // first weight that is not finite.
  static HeadClusters Build(const DenseHead& head, const ClusterOptions& options,
                            const ParallelFor& parallel = {});
  // Maps the file, which must not change. Throws Error when it is not a file of clusters, damaged,
  // of another version or of other weights or biases.
  static HeadClusters Load(const std::string& path, const DenseHead& head,
                           const ParallelFor& parallel = {});
  void Save(const std::string& path) const;

  ClusterMetric metric() const;
  int64_t vocab() const;
  int64_t dim() const;
  int64_t clusters() const;  // of one row or more, each leader one of its own
  size_t bytes() const;

  class Impl;  // the library's own

 private:
  friend struct ClusterAccess;
  HeadClusters() = default;
  std::shared_ptr<const Impl> impl_;
};

// What an answer is certain of.
enum class ClusterCertificate : uint8_t {
  kTopK,     // the first k tokens in the total order, and their logits
  kSoftmax,  // tokens with a softmax within `epsilon` of that of all, in total variation
  kTopP,     // the tokens that top-p keeps, in their order
};

struct ClusterQuestion {
  ClusterCertificate certificate = ClusterCertificate::kTopK;
  int32_t k = 1;
  double epsilon = 0.05;
  double p = 0.9;
  double temperature = 1.0;  // of kSoftmax and kTopP, above 0
};

// How far an answer had to go; each step follows the one before.
enum class ClusterPath : uint8_t {
  kBudget,    // the certificate held within the budget of rows
  kExpanded,  // within twice the budget
  kRelaxed,   // for twice epsilon; kSoftmax where that is allowed
  kDense,     // all rows were computed
};

enum class ClusterReason : uint8_t {
  kNone,
  kBudget,  // too many clusters might matter
  kHidden,  // the hidden state is not finite
  kLogit,   // a logit overflowed, or all did
};

std::string_view Name(ClusterPath path);
std::string_view Name(ClusterReason reason);

struct ClusterAnswer {
  std::span<const int32_t> ids;  // until the next question
  std::span<const float> logits;
  ClusterPath path = ClusterPath::kBudget;
  ClusterReason reason = ClusterReason::kNone;
  int64_t clusters_opened = 0;
  int64_t rows_opened = 0;
  double epsilon = 0.0;  // kSoftmax: the total variation at most
};

// How many rows are worth computing. It follows the share of answers that took all rows.
struct ClusterBudget {
  double rows = 0.0;        // 0: an eighth of the vocabulary
  double first_rows = 0.0;  // of the first `first_steps` questions; 0: twice `rows`
  int32_t first_steps = 4;
  double gain = 0.01;  // each answer: rows *= 1 + gain (dense share - target)
  double target = 0.02;
  bool relaxes = false;  // whether kSoftmax may answer for twice epsilon
};

// What a sequence's answers have made of its budget. All zero: there were none.
struct ClusterPace {
  double rows = 0.0;
  double dense_share = 0.0;
  int64_t steps = 0;
};

// One sequence's questions. It holds all memory that they need; the head and its weights are the
// caller's and must outlive it.
class ClusterSearch {
 public:
  // Throws Error when clusters and head are of different shapes.
  ClusterSearch(const DenseHead& head, HeadClusters clusters, const ClusterBudget& budget = {},
                Backend backend = Backend::kAuto);

  // hidden: one row, any dtype.
  ClusterAnswer Search(const MatrixView& hidden, const ClusterQuestion& question);

  // For sequences that share one search. position: the questions that this sequence has had before;
  // its first `first_steps` have the larger budget.
  ClusterAnswer Search(const MatrixView& hidden, const ClusterQuestion& question, int64_t position);

  // The upper bound of each cluster's logits for a hidden state, as `Search` has it. Takes memory,
  // unlike `Search`.
  void Bounds(const MatrixView& hidden, std::span<double> bounds) const;

  double budget_rows() const { return pace_.rows; }

 private:
  bool OpenUpTo(double rows, const ClusterQuestion& question, ClusterAnswer& answer);
  bool Holds(const ClusterQuestion& question, double epsilon, ClusterAnswer& answer);
  void Open(int32_t cluster, ClusterAnswer& answer);
  void TakeAll(const ClusterQuestion& question, ClusterAnswer& answer);

  DenseHead head_;
  HeadClusters clusters_;
  ClusterBudget budget_;
  Backend backend_;
  ClusterPace pace_;
  std::vector<float> hidden_;
  std::vector<double> bounds_;  // of clusters
  std::vector<int32_t> heap_;   // of clusters that are not open, the largest bound first
  std::vector<int32_t> ids_;    // of opened rows
  std::vector<float> logits_;
  std::vector<int32_t> order_;  // of opened rows, sorted as far as it was needed
  std::vector<int32_t> answer_ids_;
  std::vector<float> answer_logits_;
};

}  // namespace sluice::research
