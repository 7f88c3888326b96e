// The stages of a sharded call on one GPU and what they hand on, in device memory. Between them lie
// the exchanges: reports, then sums (include/sluice/shards.hpp).
//
//   LaunchDraws, Topk -> LaunchReports -> (exchange) -> LaunchMerge -> LaunchSums -> (exchange)
//     -> LaunchFinish
//
// With a certified head, LaunchSurvivingDraws and the head's own top k run before LaunchDraws,
// which takes what they leave to the dense head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/row_launch.h"
#include "head/certified/cuda/certified_kernels.h"
#include "semantics/host_device.h"
#include "sluice/cuda/shards.hpp"
#include "sluice/cuda/topk.hpp"

namespace sluice::cuda {

// Exchange 1, a row: this and `candidates` tokens in any order, each as its key
// (cuda/token_list.cuh) with the global id; 0 after the last.
struct DeviceRankReport {
  uint64_t last;  // the smallest key
  uint32_t status;
  uint32_t is_all;  // no other token of the slice is unmasked
};

// Exchange 1 of a row that is drawn from everything: the first token of the slice and those that
// may win the draw.
struct DeviceDrawReport {
  static constexpr uint32_t kIncomplete = ~0u;  // as ties: of the tokens there is the first alone

  uint32_t count;  // of tokens that are not masked; without a Cut, whether there are any
  uint32_t ties;   // that equal the lowest
  uint32_t status;
  uint32_t lowest;  // of their values, the complement of the order key
};
static_assert(sizeof(DeviceDrawReport) == sizeof(DeviceRankReport) &&
              offsetof(DeviceDrawReport, status) == offsetof(DeviceRankReport, status));

// Exchange 2, a row.
struct DeviceSums {
  uint64_t mass;             // of the slice
  uint64_t score_and_value;  // order keys of the best draw; 0: none
  uint32_t id_complement;
  int32_t count;    // of kept tokens
  uint32_t lowest;  // of their values, the complement of the order key
  int32_t ties;     // that equal it
};
static_assert(sizeof(DeviceSums) == 32);

enum class DeviceNeed : uint32_t { kNothing, kMass, kSlice };

// The state of a row after the first exchange, on this rank.
struct ShardProgress {
  float max;
  float floor;  // the score of the row's first token, which the draw's winner reaches
  DeviceNeed need;
};

struct ShardMemory {
  int32_t* indices;  // of the slice's first tokens
  float* values;
  RowStatus* statuses;
  int32_t* lengths;  // of rows to list: 0 of those that are drawn
  std::byte* own_reports;
  std::byte* all_reports;
  DeviceSums* own_sums;
  DeviceSums* all_sums;
  ShardProgress* progress;
  int32_t* open_rows;  // that need logits after the first exchange
  int32_t* open_count;
  size_t bytes;
};

SLUICE_HD inline size_t ReportBytes(int32_t candidates) {
  return sizeof(DeviceRankReport) + static_cast<size_t>(candidates) * sizeof(uint64_t);
}

// Rows by their places, in device memory.
struct RowPlaces {
  const int32_t* places = nullptr;  // null: all rows
  const int32_t* count = nullptr;
};

// By value to kernels.
struct ShardArgument {
  RowsArgument rows;  // of the slice
  int32_t first_id;
  int32_t vocab;  // of all ranks
  int32_t candidates;
  int32_t ranks;
  DrawMethod method;
  ShardRows kind;
  ShardMemory memory;
  TokenResult* results;
  ShardPath* paths;
  bool needs_cuts = true;  // of rows that are drawn from everything, too
  RowPlaces rows_to_draw = {};
};

ShardMemory ShardMemoryOf(std::byte* workspace, int64_t rows, int32_t candidates, int32_t ranks);
ShardArgument ShardArgumentOf(const ShardCall& call, int32_t ranks,
                              DeviceArray<TokenResult> results, DeviceArray<ShardPath> paths);
ShardArgument ShardArgumentOf(const ShardHeadCall& call, int32_t ranks,
                              DeviceArray<TokenResult> results, DeviceArray<ShardPath> paths);

// The reports of the slice.
void EnqueueFirst(const ShardCall& call, const ShardArgument& argument, void* stream);
void EnqueueFirst(const ShardHeadCall& call, const ShardArgument& argument, void* stream);
// After the merge: the logits of the rows that it has not decided.
void EnqueueDense(const ShardHeadCall& call, const ShardArgument& argument, void* stream);
void LaunchDraws(const ShardArgument& argument, DType dtype, void* stream);
// After LaunchCertifiedPrefix of a head that lists what may win: rows that it cannot decide join
// the dense ones.
void LaunchSurvivingDraws(const ShardArgument& argument, const CertifiedArgs& head, void* stream);
void LaunchReports(const ShardArgument& argument, void* stream);
void LaunchOpen(const ShardArgument& argument, void* stream);
void LaunchMerge(const ShardArgument& argument, void* stream);
void LaunchSums(const ShardArgument& argument, DType dtype, void* stream);
void LaunchFinish(const ShardArgument& argument, void* stream);

// results[row] = whole[row] where the row's path is kGathered, or everywhere.
void LaunchTakeGathered(const TokenResult* whole, const ShardPath* paths, TokenResult* results,
                        int64_t rows, void* stream);

}  // namespace sluice::cuda
