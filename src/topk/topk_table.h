// The functions that a backend provides for topk. Arguments have been checked.
#pragma once

#include <cstddef>

#include "semantics/widen.h"
#include "sluice/topk.hpp"

namespace sluice {

// One row and where its answer goes.
struct TopkRequest {
  semantics::Row row;  // what is visible of it
  int32_t k;
  bool sorted;
  int32_t* indices;
  float* values;               // null: not requested
  float* threshold = nullptr;  // null: not requested; else as in TopkInput
};

struct TopkTable {
  size_t (*workspace_bytes)(int64_t columns);  // a worker
  RowStatus (*topk_row)(const TopkRequest&, std::byte* workspace);
};

extern const TopkTable kTopkRef;
extern const TopkTable kTopkAvx2;
extern const TopkTable kTopkAvx512;

}  // namespace sluice
