// Qrita's kernels, from the host's side: truncation decides what it can, and leaves the rest to a
// search of the whole row.
#pragma once

#include "cuda/row_launch.h"
#include "sluice/research/qrita.hpp"

namespace sluice::research {

using namespace cuda;

// What truncation did with a row that it left.
struct RowNote {
  float mean;
  float deviation;  // 0: there is nothing to learn from the row
  float sigma;      // of the threshold
  uint32_t gathered;
};

struct QritaArgument {
  RowsArgument rows;
  Cut* cuts;
  TruncationTable* table = nullptr;  // null: nothing is learned
  RowNote* notes = nullptr;          // one a row
  float* outliers = nullptr;         // `room` a row
  int32_t room = 0;
  bool leaves_all = false;  // truncation leaves every row to the search
  bool takes_all = false;   // the search takes every row, because there was no truncation
};

// The count of a Cut that truncation leaves to the search.
inline constexpr int32_t kUndecided = -1;

void LaunchTruncation(QritaVariant variant, DType dtype, const QritaArgument& argument,
                      void* stream);
void LaunchSearch(QritaVariant variant, DType dtype, const QritaArgument& argument, void* stream);

size_t SortWorkspaceBytes(const LogitsView& logits);
// Sorts every row and decides it, if its parameters are top-k and top-p; leaves the others.
void LaunchSort(DType dtype, const QritaArgument& argument, void* workspace, void* stream);

}  // namespace sluice::research
