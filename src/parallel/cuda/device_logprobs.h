// Log-probabilities of a sharded row on one GPU: what a rank sends and what all ranks make of it.
//
//   LaunchLogprobReports -> (exchange) -> LaunchLogprobSums -> (exchange) -> LaunchLogprobFinish
#pragma once

#include "cuda/row_launch.h"
#include "semantics/order.h"
#include "sluice/cuda/shards.hpp"

namespace sluice::cuda {

// Exchange 1, a row.
struct LogprobReport {
  float max;
  float sampled;  // on the rank that has the token
  uint32_t status;
  int32_t upper_ties;  // tokens of the slice that equal a boundary of the Cut
  int32_t lower_ties;
  int32_t has_token;
};

// Exchange 2, a row: this and the first tokens of the slice, their ids global; -1 after the last.
struct LogprobSums {
  uint64_t mass;
  uint64_t kept_mass;
  int64_t rank;  // tokens with at least the value of the sampled one
};

struct LogprobMemory {
  LogprobReport* own_reports;
  LogprobReport* all_reports;
  std::byte* own_sums;
  std::byte* all_sums;
  size_t bytes;
};

// The length of a row's list, without the drawn token.
inline int32_t ListedOf(int32_t width) { return width > 0 ? width - 1 : 0; }
SLUICE_HD inline size_t LogprobSumsBytes(int32_t listed) {
  return sizeof(LogprobSums) + static_cast<size_t>(listed) * sizeof(semantics::Token);
}

// By value to kernels.
struct ShardLogprobArgument {
  RowsArgument rows;  // of the slice
  int32_t first_id;
  int32_t vocab;  // of all ranks
  int32_t rank;
  int32_t ranks;
  LogprobMode mode;
  int32_t listed;
  TokenResult* results;
  uint64_t* kept_masses;  // null: not requested
  int32_t* list_ids;      // [rows, listed + 1]; null: no lists
  float* list_values;
  LogprobMemory memory;
};

LogprobMemory LogprobMemoryOf(std::byte* workspace, int64_t rows, int32_t width, int32_t ranks);
ShardLogprobArgument ArgumentOf(const ShardLogprobCall& call, int32_t rank, int32_t ranks,
                                DeviceArray<TokenResult> results);

void LaunchLogprobReports(const ShardLogprobArgument& argument, DType dtype, void* stream);
void LaunchLogprobSums(const ShardLogprobArgument& argument, DType dtype, void* stream);
void LaunchLogprobFinish(const ShardLogprobArgument& argument, void* stream);

}  // namespace sluice::cuda
