// The fields of a chat that bound its reasoning: how many tokens of it may come before the answer.
//
//   thinking_token_budget, thinking_budget, thinking_budget_tokens, reasoning_budget,
//   reasoning_budget_tokens   a number of tokens; -1: no bound (vLLM, Qwen, llama.cpp)
//   reasoning                 {"max_tokens": N, "exclude": true, "enabled": false} (OpenRouter)
//   thinking                  {"type": "enabled", "budget_tokens": N} or {"type": "disabled"}
//                             (Anthropic)
//
// Both may also be false, and an effort of "none" is no reasoning either. Other efforts in words
// are refused: a model has no number of tokens for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/request/request_value.h"

namespace sluice::server {

struct ThinkingInput {
  std::optional<int64_t> tokens = {};  // -1: no bound, whatever the server's is
  std::string field = {};              // that said so
  bool excludes_reasoning = false;     // from the answer
  std::optional<bool> reasons = {};    // whether the model shall, where it can do either
};

bool IsThinkingField(std::string_view name);
// Throws ApiFailure and Error, for two fields that differ as well.
void ReadThinkingField(ThinkingInput& to, const RequestValue& value);

}  // namespace sluice::server
