// Where a request's tokens end it, seen by the engine: at stop token ids always, at stop strings
// where it is the one to look for them. A request without stop strings needs no text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/request_text.h"
#include "sluice/generation_end.hpp"
#include "support/check.h"

namespace sluice::engine {

class EngineStop {
 public:
  struct Found {
    size_t tokens = 0;  // up to and with the one that ended it
    GenerationEnd end = GenerationEnd::kNone;
  };

  // Throws Error for stops that the limits do not allow, or that it would have to look for without
  // a tokenizer (null).
  EngineStop(const EngineRequest& request, const Tokenizer* tokenizer, StopListCache& stop_lists,
             const StopLimits& limits)
      : min_tokens_(request.params.min_tokens) {
    const auto list = stop_lists.Get(request.text.stops, limits);
    if (request.stop_at == StopAt::kEngine && !list->IsEmpty()) {
      if (tokenizer == nullptr) {
        ThrowInvalid("stop_at", "engine",
                     "frontend for requests with stops: this engine has no text");
      }
      stream_ = MakeTextStream(request, *tokenizer, stop_lists, limits);
    } else {
      stop_token_ids_ = request.params.stop_token_ids;
      std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
    }
  }

  // Takes the next tokens; those after an end are not read. `text` is for use inside.
  Found Take(std::span<const int32_t> ids, std::string& text) {
    const int64_t before = tokens_;
    if (stream_.has_value()) {
      text.clear();
      const Delta& delta = stream_->Step(ids, text);
      tokens_ = delta.tokens;
      return {static_cast<size_t>(tokens_ - before), EndOf(delta)};
    }
    for (const int32_t id : ids) {
      const bool counts = tokens_++ >= min_tokens_;
      if (counts && std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), id)) {
        return {static_cast<size_t>(tokens_ - before), GenerationEnd::kStopToken};
      }
    }
    return {ids.size(), GenerationEnd::kNone};
  }

  // For an end of another reason: whether a stop string ends in what comes out then.
  bool FinishStops(std::string& text) {
    if (!stream_.has_value()) return false;
    text.clear();
    return stream_->Finish(text).finish == FinishReason::kStopString;
  }

 private:
  static GenerationEnd EndOf(const Delta& delta) {
    if (delta.finish == FinishReason::kStopString) return GenerationEnd::kStopString;
    if (delta.finish == FinishReason::kStopToken) return GenerationEnd::kStopToken;
    return GenerationEnd::kNone;
  }

  std::optional<TextStream> stream_;
  std::vector<int32_t> stop_token_ids_;  // ascending; without a stream
  int64_t min_tokens_;
  int64_t tokens_ = 0;
};

}  // namespace sluice::engine
