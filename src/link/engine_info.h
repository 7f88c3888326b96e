// The facts that an engine reports to its frontends.
#pragma once

#include <algorithm>
#include <string>

#include "sluice/engine.hpp"
#include "sluice/grammar_service.hpp"
#include "sluice/version.hpp"
#include "support/check.h"

namespace sluice::link {

// `info` has what only its maker can supply: the model's name, the tokenizer, the end tokens.
inline EngineInfo Completed(EngineInfo info, const Engine& engine) {
  const RunnerInfo& runner = engine.runner_info();
  const EngineOptions& options = engine.options();
  if (info.version.empty()) info.version = std::string(kVersionString);
  info.vocab = runner.vocab;
  info.context = runner.context;
  info.max_requests = runner.max_requests;
  info.max_client_requests = options.max_client_requests;
  info.max_logprobs = runner.max_logprobs;
  info.steps_in_flight = options.steps_in_flight;
  info.limits = runner.limits;
  info.has_grammars = options.grammars != nullptr;
  if (!info.has_grammars) return info;
  // Else a frontend would not expect the token that ends an output with a grammar.
  for (const int32_t id : options.grammars->stop_tokens()) {
    if (std::ranges::find(info.end_tokens, id) == info.end_tokens.end()) {
      ThrowInvalid("grammars.stop_tokens()", ToText(int64_t{id}), "one of the model's end tokens");
    }
  }
  return info;
}

}  // namespace sluice::link
