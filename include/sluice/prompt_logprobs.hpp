// Log-probabilities of the tokens of a prompt, each given those before it.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

// Log-probabilities by the model's own logits, whatever a request makes of them, as output tokens
// have with LogprobMode::kRawLogprobs. The first token of a prompt follows nothing and has none.
struct PromptLogprobs {
  bool IsEmpty() const { return logprobs.empty(); }

  int64_t first_token = 0;  // the place in the prompt of the first of these
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};
  // As LogprobLists has them: the token itself, then the most likely ones.
  int32_t width = 0;
  std::span<const int32_t> ids = {};
  std::span<const float> values = {};
};

}  // namespace sluice
