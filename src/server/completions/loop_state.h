// The state that the completions of one loop share. On its thread alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/completions.h"
#include "server/completions/choice_table.h"
#include "server/completions/preparation.h"

namespace sluice::server {

class LiveExchange;

struct LoopState {
  Client& client;
  CompletionSettings settings;
  std::shared_ptr<const PreparationSettings> preparation;  // which threads of the pool read as well
  std::chrono::steady_clock::time_point now = {};          // when the loop last looked at the clock
  CompletionCounters counters = {};
  ChoiceTable choices = {};                   // that the engine has
  std::vector<LiveExchange*> exchanges = {};  // that are not over
  std::vector<LiveExchange*> with_news = {};  // from this Poll
  std::optional<std::string> ended = {};      // why EndAll was called
};

}  // namespace sluice::server
