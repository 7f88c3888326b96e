// A whole response to /v1/completions or /v1/chat/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api/choice_delta.h"
#include "server/api/stream_writer.h"

namespace sluice::server {

struct WholeChoice {
  ChoiceDelta content = {};
  ChoiceEnd end = {};
  // Where they were asked for: of the prompt's tokens but the first (ids: those tokens), and the
  // ids of all of them.
  TokenLogprobs prompt_logprobs = {};
  std::span<const int32_t> prompt_ids = {};
};

// {"id", "object", "created", "model", "system_fingerprint", "seed", "choices": [...], "usage"}
std::string CompletionBody(const ResponseHead& head, std::span<const WholeChoice> choices,
                           const Usage& usage, const Tokenizer& tokenizer);

}  // namespace sluice::server
