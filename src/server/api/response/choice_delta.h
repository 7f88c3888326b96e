// The new part of one choice: text, tokens, and their log-probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/generation_end.hpp"
#include "sluice/output_parts.hpp"

namespace sluice::server {

// The columns of some tokens, as ClientOutput has them; empty where they were not requested. Where
// there are fewer logprobs than ids, the first ones have none: a prompt's first token.
struct TokenLogprobs {
  std::span<const int32_t> ids = {};
  std::span<const float> logprobs = {};
  std::span<const int32_t> ranks = {};  // empty, or one a logprob: vLLM's prompt_logprobs have them
  int32_t width = 0;
  std::span<const int32_t> top_ids =
      {};  // width a logprob; the token itself need not be among them
  std::span<const float> top_logprobs = {};
};

struct ChoiceDelta {
  int32_t index = 0;
  std::string_view text = {};
  const OutputParts* parts = nullptr;  // of a chat that is taken apart, in place of the text
  TokenLogprobs logprobs = {};
  std::span<const int32_t> token_ids = {};   // when they were requested
  int64_t text_offset = 0;                   // code points before `text`; kCompletions' logprobs
  std::span<const int32_t> prompt_ids = {};  // of a choice's first delta, when they were requested
};

struct ChoiceEnd {
  int32_t index = 0;
  GenerationEnd end = GenerationEnd::kLength;  // one with a finish_reason
  std::string_view stop = {};                  // stop_reason: the stop string, or
  int32_t stop_token = -1;                     // the token, where a request named it
  bool has_calls = false;                      // of tools
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = -1;    // of the prompts'; -1: not known
  int64_t reasoning_tokens = 0;  // of kResponses
};

// "stop", "tool_calls" or "length".
std::string_view FinishReasonName(const ChoiceEnd& end);

}  // namespace sluice::server
