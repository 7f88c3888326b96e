// Log-probabilities of tokens as JSON, for outputs and prompts alike.
#pragma once

#include <cstdint>
#include <span>

#include "json/writer.h"
#include "sluice/prompt_logprobs.hpp"

namespace sluice::cli {

// Fields of an object. The lists are one token's, as LogprobLists has them.
inline void WriteLogprob(JsonWriter& json, float logprob, int32_t rank,
                         std::span<const int32_t> ids, std::span<const float> values) {
  json.Key("logprob").Value(logprob);
  json.Key("rank").Value(rank);
  json.Key("top_logprobs").Array([&] {
    for (size_t i = 1; i < ids.size() && ids[i] >= 0; ++i) {
      json.Object([&] {
        json.Key("id").Value(ids[i]);
        json.Key("value").Value(values[i]);
      });
    }
  });
}

// A list with an object for each token of the prompt but the first.
inline void WritePromptLogprobs(JsonWriter& json, std::span<const int32_t> prompt,
                                const PromptLogprobs& scored) {
  const auto width = static_cast<size_t>(scored.width);
  json.Array([&] {
    for (size_t i = 0; i < scored.logprobs.size(); ++i) {
      json.Object([&] {
        json.Key("id").Value(prompt[static_cast<size_t>(scored.first_token) + i]);
        WriteLogprob(json, scored.logprobs[i], scored.ranks[i],
                     scored.ids.subspan(i * width, width), scored.values.subspan(i * width, width));
      });
    }
  });
}

}  // namespace sluice::cli
