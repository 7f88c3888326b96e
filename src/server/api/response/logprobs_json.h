// Log-probabilities in the shapes that OpenAI and vLLM have for them.
//
// A token is the text that it decodes to. One that is not UTF-8 by itself is written
// "bytes:\xe2\x80", as OpenAI has it; chats have its bytes as well, so that a client can put
// characters together. What cannot be drawn has -9999.0, as vLLM has it: JSON has no infinity.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/response/choice_delta.h"
#include "sluice/tokenizer.hpp"

namespace sluice::server {

// Empty for an id that has no token.
std::string_view TokenBytes(const Tokenizer& tokenizer, int32_t id);
// Quoted, as above.
void AppendTokenText(std::string& out, std::string_view bytes);

// Chats: {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}. top_logprobs are the
// most likely ones and no others.
void AppendChatLogprobs(std::string& out, const TokenLogprobs& logprobs,
                        const Tokenizer& tokenizer);

// Completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, of deltas in their
// order. top_logprobs are objects from texts to log-probabilities: the token's own and the most
// likely ones; of those with one text the most likely one. An offset counts code points and never
// exceeds the end of its delta's text, which may have been cut at a stop string.
void AppendCompletionLogprobs(std::string& out, std::span<const ChoiceDelta* const> deltas,
                              const Tokenizer& tokenizer, bool skips_special_tokens);

// vLLM's prompt_logprobs, see response_body.h.
void AppendPromptLogprobs(std::string& out, const TokenLogprobs& logprobs,
                          const Tokenizer& tokenizer);

}  // namespace sluice::server
