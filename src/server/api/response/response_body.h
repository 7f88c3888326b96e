// A whole response, in the form of its API.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api/response/choice_delta.h"
#include "server/api/response/stream_writer.h"

namespace sluice::server {

struct WholeChoice {
  // With echo the prompt, as a stream's first content has it: its text precedes the content's
  // (text_offset counts it), and its log-probabilities precede the others.
  ChoiceDelta echo = {};
  ChoiceDelta content = {};
  ChoiceEnd end = {};
  // With prompt_logprobs: of the prompt's tokens but the first (ids: those tokens).
  TokenLogprobs prompt_logprobs = {};
  // Where token ids were requested.
  std::span<const int32_t> prompt_ids = {};
};

// prompt_logprobs are vLLM's: null for the first token, then an object a token, from ids to
// {"logprob", "rank", "decoded_token"}. They and prompt_token_ids are a choice's, for chats the
// response's, as vLLM has it.
//
// {"id", "object", "created", "model", "system_fingerprint", "seed", "choices": [...], "usage"}
// Of messages and responses: see MessageBody and ResponseBody.
std::string CompletionBody(const ResponseHead& head, std::span<const WholeChoice> choices,
                           const Usage& usage, const Tokenizer& tokenizer);

}  // namespace sluice::server
