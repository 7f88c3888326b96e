// The fields of a chat that bound its reasoning: how many tokens of it may come before the answer.
//
//   thinking_token_budget, thinking_budget, thinking_budget_tokens, reasoning_budget,
//   reasoning_budget_tokens   a number of tokens; -1: no bound (vLLM, Qwen, llama.cpp)
//   reasoning                 {"max_tokens": N, "exclude": true} (OpenRouter)
//   thinking                  {"type": "enabled", "budget_tokens": N} (Anthropic)
//
// An effort in words is refused: a model has no number of tokens for it.
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
};

bool IsThinkingField(std::string_view name);
// Throws ApiFailure and Error, for two fields that differ as well.
void ReadThinkingField(ThinkingInput& to, const RequestValue& value);

}  // namespace sluice::server
