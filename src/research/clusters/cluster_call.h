// A search of clusters on the device: what is known of a row on its way, and where everything lies
// in the workspace.
//
//   prepare   a hidden state in fp32, its norm, how many rows it may open
//   bound     of all clusters
//   order     of clusters by their bounds, and which of them each round opens
//   compute   the logits of the rows that a round opens
//   certify   whether what is open is the answer
//   answer    the tokens, in their order
//
// Compute and certify take turns, as often as there may be rounds; of a row that has its answer
// they leave at once.
#pragma once

#include "head/cuda/project_launch.h"
#include "research/clusters/cluster_certificate.h"
#include "research/clusters/cluster_file.h"
#include "sluice/research/device_clusters.hpp"

namespace sluice::research {

using namespace cuda;

// An eighth of the budget, twice as much in each round up to all of it; twice the budget; all rows.
inline constexpr int kBudgetRounds = 4;
inline constexpr int kExpandedRound = kBudgetRounds + 1;
inline constexpr int kRounds = kExpandedRound + 1;

// Of a row of the call. In device memory.
struct ClusterProgress {
  struct Open {
    int32_t clusters;
    int32_t rows;
  };

  HiddenNorm norm;
  double budget;           // rows
  Open open[kRounds + 1];  // after this many rounds
  uint32_t most;           // order key of the largest logit
  uint32_t has_broken;     // a logit is not finite
  float most_closed;       // bound: above it are so many logits of open rows
  int32_t above;
  bool is_done;
  ClusterRow answer;
};

// The workspace, by value. A row's own parts lie together.
struct ClusterMemory {
  ClusterProgress* progress;
  float* states;    // [rows][state_stride]
  float* bounds;    // [rows][clusters], rounded up
  int32_t* list;    // [rows][clusters]: in the order of the bounds
  float* sorted;    // [rows][clusters]: the bounds in this order
  int32_t* starts;  // [rows][clusters + 1]: open rows when this many clusters are open
  int32_t* ids;     // [rows][vocab]: of open rows
  float* logits;    // [rows][vocab]: of open rows
  float* logit_of;  // [rows][vocab]: by id
  uint64_t* room;   // [rows][room]: the weights of open rows, in the end tokens to sort
  int64_t state_stride;
  int64_t room_stride;
};

// null: for the size alone.
ClusterMemory LayOut(const DeviceClusters& clusters, int64_t rows, std::byte* workspace,
                     size_t* bytes);

struct ClusterArgument {
  WeightsArgument head;
  DType dtype;  // of the weights
  bool is_aligned;
  const void* hidden;
  int64_t hidden_stride;
  DType hidden_dtype;
  int32_t rows;

  const ClusterShape* shapes;
  const float* centroids;
  const int32_t* tokens;
  int32_t clusters;
  bool is_cone;
  bool folds_bias;
  double gamma;

  ClusterQuestion question;
  ClusterBudget budget;
  ClusterMemory memory;
  ClusterPace* paces;  // null: none
  int32_t* ids;        // [rows][width]
  float* logits;
  ClusterRow* answers;
  int64_t width;
};

// The pace of a row's sequence before its question.
SLUICE_HD inline ClusterPace PaceOf(const ClusterArgument& call, int row) {
  const ClusterPace pace = call.paces == nullptr ? ClusterPace{} : call.paces[row];
  return pace.rows > 0.0 ? pace : StartOf(call.budget, call.head.vocab);
}

// Checks the call; throws Error.
ClusterArgument ArgumentOf(const ClusterCall& call, const ClusterQuestion& question,
                           const ClusterPlaces& places);

}  // namespace sluice::research
