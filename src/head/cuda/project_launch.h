// The dense head on the device, for callers that have its arguments on the device as well.
#pragma once

#include "cuda/row_launch.h"
#include "sluice/cuda/head.hpp"

namespace sluice::cuda {

// What kernels take of a head, by value.
struct WeightsArgument {
  const void* weight;
  int64_t stride;     // in elements, as all of these
  const float* bias;  // null: none
  int32_t vocab;
  int32_t dim;
};

WeightsArgument ArgumentOf(const HeadWeights& head);

// The rows to project of a matrix in fp32 with rows of `dim` elements.
struct ListedRows {
  const float* hidden;
  const int32_t* rows;   // of them, `count` are to be projected
  const int32_t* count;  // on the device
  float* logits;         // [rows, stride]
  int64_t stride;
  const int32_t* bitmask;  // null: none; else what is not allowed gets -inf
};

// Enqueues a kernel that leaves at once where there are no rows.
void ProjectListed(const WeightsArgument& head, DType dtype, const ListedRows& rows, void* stream);

void CheckHead(const HeadWeights& head, const MatrixView& hidden);

// Throws Error of what the last launch or call said.
void RequireLaunched(const char* what);

}  // namespace sluice::cuda
