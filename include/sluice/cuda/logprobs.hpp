// Log-probabilities and ranks of sampled tokens in device memory: the answers of logprobs.hpp, bit
// for bit. Like the calls of cuda/rows.hpp these take no memory and can be captured in a CUDA
// graph.
#pragma once

#include <cstdint>

#include "sluice/cuda/rows.hpp"
#include "sluice/logprobs.hpp"

namespace sluice::cuda {

// As LogprobLists of logprobs.hpp, in device memory: `width` entries a row. At most 1 + 128.
struct DeviceLogprobLists {
  int32_t width = 0;  // 0: no lists
  DeviceArray<int32_t> ids = {};
  DeviceArray<float> values = {};
};

// Reads id, status and cut of each result and fills logprob and rank. A result without a token, or
// with an id outside of the vocabulary, gets NaN and 0.
//
// logits: in raw modes as the model gave them, in processed modes the adjusted ones. kept_masses:
// empty, or one a row: what CutMass::kept says of the result's Cut; 0 where the row has a status.
//
// Reads the row twice in raw modes, and a third time for the rank of a token that is not among the
// likely ones; in processed modes, or with kept_masses, once for what ranks alone need, once more
// for each mass, and twice more for lists. Once more where the maximum is a zero, which takes the
// sign of the first one; some hundred times where thousands of tokens tie with the last one of a
// list.
void Logprobs(const LogitsView& logits, const RowParams& params, LogprobMode mode,
              DeviceArray<TokenResult> results, DeviceArray<uint64_t> kept_masses, void* stream,
              const DeviceLogprobLists& lists = {});

}  // namespace sluice::cuda
