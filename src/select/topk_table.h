// What a backend provides for topk. Arguments have been checked; rows run one by one.
#pragma once

#include "sluice/topk.hpp"

namespace sluice {

struct TopkTable {
  size_t (*workspace_bytes)(const TopkInput&);  // a worker
  void (*topk)(const TopkInput&, std::span<int32_t> indices, std::span<float> values,
               std::span<RowStatus> statuses, const Execution&);
};

extern const TopkTable kTopkRef;

}  // namespace sluice
