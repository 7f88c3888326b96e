// The tokens that Cuts keep, as lists in device memory: the answers of Collect in select.hpp, bit
// for bit. Like the calls of cuda/rows.hpp these take no memory and can be captured in a CUDA
// graph.
#pragma once

#include <cstdint>

#include "sluice/cuda/rows.hpp"
#include "sluice/select.hpp"

namespace sluice::cuda {

// The kept tokens of row r are written from element offsets[r] to before offsets[r + 1]; offsets
// has rows + 1 elements. The outputs that are not empty have the same size, and nothing is written
// beyond it.
//
// A row with a Cut that keeps more tokens than it has room for gets the first ones, in the
// requested order; the Cut's count has their number. Unused room is filled with id -1, logit -inf,
// weight 0; so is all of it in a row with a status.
struct Candidates {
  DeviceArray<const int64_t> offsets = {};
  DeviceArray<int32_t> ids = {};
  DeviceArray<float> logits = {};
  DeviceArray<uint64_t> weights =
      {};  // at the temperature of the draw; the row's maximum weighs 2^40
};

// The running sum of the Cuts' counts, of each at most `capacity`. offsets: one more than Cuts.
void CandidateOffsets(DeviceArray<const Cut> cuts, int64_t capacity, DeviceArray<int64_t> offsets,
                      void* stream);

// Reads the row twice, the second time only where kept tokens are. By rank, lists of more than 4096
// tokens take some ten reads for each 4096 of them.
void Collect(const LogitsView& logits, const RowParams& params, DeviceArray<const Cut> cuts,
             CandidateOrder order, const Candidates& candidates, void* stream);

}  // namespace sluice::cuda
