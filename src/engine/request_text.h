// How the tokens of a request become text, and where that ends. Engine and frontend both make their
// stream here, so they read the same tokens alike, whichever of them searches for stops.
#pragma once

#include "sluice/engine_messages.hpp"
#include "sluice/stop.hpp"
#include "sluice/text_stream.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::engine {

// Throws Error for stops that the limits do not allow.
inline TextStreamOptions StreamOptions(const EngineRequest& request, StopListCache& stop_lists,
                                       const StopLimits& limits) {
  TextStreamOptions options;
  options.detokenizer = request.text.detokenizer;
  options.stops = stop_lists.Get(request.text.stops, limits);
  options.stop = {.include_stop = request.text.include_stop,
                  .min_tokens = request.params.min_tokens};
  // TextStream adds the tokens (Tokenizer::StopTokenIds) that a stop spells.
  options.stop_token_ids = request.params.stop_token_ids;
  options.incomplete = request.text.incomplete;
  options.thinking = request.thinking;
  return options;
}

inline TextStream MakeTextStream(const EngineRequest& request, const Tokenizer& tokenizer,
                                 StopListCache& stop_lists, const StopLimits& limits) {
  return TextStream(tokenizer, StreamOptions(request, stop_lists, limits), request.prompt);
}

}  // namespace sluice::engine
