// The first steps of every kernel over rows.
#pragma once

#include "cuda/id_ordered_slice.cuh"
#include "cuda/row_slice.cuh"
#include "cuda/scan_row.cuh"
#include "semantics/draw/noise.h"
#include "semantics/validate.h"

namespace sluice::cuda {

// A row of a team, its parameters and what is wrong with it.
template <DType kDType, bool kPatched = false>
struct TeamRow {
  using Slice = std::conditional_t<kPatched, PatchedRowSlice<kDType>, RowSlice<kDType>>;

  __device__ TeamRow(const Team& team, const RowsArgument& rows, int row)
      : index(row),
        data(RowOf(rows, row)),
        slice(SliceOf(team, rows, row)),
        params(rows.params == nullptr ? rows.no_params
                                      : rows.params[rows.has_params_per_row ? index : 0]),
        key(rows.keys == nullptr ? rows.no_key : rows.keys[rows.has_keys_per_row ? index : 0]) {}

  __device__ bool HasValidParams(const Limits& limits) const {
    return semantics::AreValid(params, limits) && semantics::IsValid(key);
  }

  static __device__ Slice SliceOf(const Team& team, const RowsArgument& rows, int row) {
    if constexpr (kPatched) {
      return Slice(team, RowOf(rows, row), rows.vocab, PatchOfRow(rows, row));
    } else {
      return Slice(team, RowOf(rows, row), rows.vocab);
    }
  }

  // The status counts the parameters.
  __device__ semantics::RowScan Scan(const Team& team, const Limits& limits) const {
    semantics::RowScan scan = ScanRow(team, slice);
    if (!HasValidParams(limits)) scan.status = RowStatus::kBadParam;
    return scan;
  }

  int index;
  void* data;
  Slice slice;
  // In memory: in registers they would be in the way of all else.
  const SelectParams& params;
  const NoiseKey& key;
};

}  // namespace sluice::cuda
