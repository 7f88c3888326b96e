// Exact selection: from logits and parameters to a Cut, and what to do with a Cut.
//
// Every function takes one SelectParams (and NoiseKey) for all rows or one a row. A row with
// parameters out of range has status kBadParam; calls with shapes that do not fit throw Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/cut.hpp"
#include "sluice/execution.hpp"
#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

struct SelectInput {
  LogitsView logits = {};
  std::span<const SelectParams> params = {};
  std::span<const NoiseKey> keys = {};  // read by XTC and by draws; else it may be empty
  Limits limits = {};
};

// Bytes of workspace for each function of this header, of draw.hpp and of logprobs.hpp.
size_t SelectWorkspaceBytes(const LogitsView& logits, const Execution& execution);

// cuts: one a row. masses: empty, or one a row.
void Select(const SelectInput& input, std::span<Cut> cuts, std::span<CutMass> masses,
            const Execution& execution);

// Writes -inf to the tokens that the row's Cut drops and leaves every other bit alone. Rows with a
// status are left alone.
void Mask(const MutableLogitsView& logits, std::span<const Cut> cuts, const Execution& execution);

// The kept sets as bitmasks: ceil(vocab / 32) words a row, bit i of word w is token 32 w + i. Rows
// with a status keep nothing.
void KeptBitmask(const LogitsView& logits, std::span<const Cut> cuts, std::span<int32_t> bitmask,
                 const Execution& execution);

enum class CandidateOrder : uint8_t {
  kById,
  kByRank,  // the total order: value descending, then id ascending
};

// The kept tokens of row r are written from element offsets[r] on; offsets has rows + 1 elements,
// the running sum of the Cuts' counts. Any of the three outputs may be empty.
struct Candidates {
  std::span<const int64_t> offsets = {};
  std::span<int32_t> ids = {};
  std::span<float> logits = {};
  std::span<uint64_t> weights =
      {};  // at the temperature of the draw; the row's maximum weighs 2^40
};

void Collect(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
             const Candidates& candidates, const Execution& execution);

}  // namespace sluice
