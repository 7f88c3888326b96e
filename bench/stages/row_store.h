// The rows of one run in memory: enough copies of them that a walk over all of them finds nothing
// in any cache, every one at an address that is a multiple of 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/support/rows.h"

namespace sluice::bench {

// Sizes of the nuclei of a run's rows, as they lie in memory (rounded to bf16, when they are bf16).
struct NucleusSizes {
  int64_t least = 0;
  int64_t median = 0;
  int64_t most = 0;
};

class RowStore {
 public:
  // `bytes`: how many a walk over all rows reads at least; 0 when no row is to be cold.
  RowStore(int64_t vocab, int64_t rows, size_t bytes);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  // Overwrites every copy. sources: the fp32 rows.
  NucleusSizes Fill(DType dtype, std::span<const std::vector<float>> sources);

  int64_t vocab() const { return vocab_; }
  int64_t rows() const { return rows_; }
  DType dtype() const { return dtype_; }

  // Always the same copy of the row.
  const void* Hot(int64_t row) const { return Slot(2 * row); }

  // Two copies of one row that were not touched since the walk last came by here, about `bytes`
  // ago: one for the floor, one for what is measured against it.
  struct ColdPair {
    int64_t row;
    const void* for_floor;
    const void* for_call;
  };
  ColdPair NextCold();

 private:
  std::byte* Slot(int64_t slot) const { return memory_ + static_cast<size_t>(slot) * stride_; }

  int64_t vocab_;
  int64_t rows_;
  DType dtype_ = DType::kF32;
  size_t size_;  // of the whole mapping
  size_t walk_;  // bytes a walk reads at least
  size_t stride_ = 0;
  int64_t pairs_ = 0;
  int64_t next_pair_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace sluice::bench
