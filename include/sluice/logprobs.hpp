// Log-probabilities and ranks of sampled tokens, and lists of the most likely ones.
#pragma once

#include <cstdint>
#include <span>

#include "sluice/draw.hpp"

namespace sluice {

struct LogprobInput {
  // Raw modes: the logits as the model gave them. Processed modes: the adjusted ones.
  LogitsView logits = {};
  LogprobMode mode = LogprobMode::kRawLogprobs;
  std::span<const SelectParams> params = {};  // one or one a row
};

// The most likely tokens of each row: `width` entries a row, the sampled token first, then the
// first tokens of the total order (the sampled one may be among them). Entries after the last token
// that has a probability are id -1 and -inf. A row with a status is all -1 and NaN.
struct LogprobLists {
  int32_t width = 0;  // 0: no lists; else 1 + the number of most likely tokens
  std::span<int32_t> ids = {};
  std::span<float> values = {};
};

// Reads id, status and cut of each result and fills logprob and rank. Needs SelectWorkspaceBytes.
void Logprobs(const LogprobInput& input, std::span<TokenResult> results, const LogprobLists& lists,
              const Execution& execution);

}  // namespace sluice
