// sluice replay: recorded requests once more, and whether their outputs are equal.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "cli/engine/engine_setup.h"
#include "cli/terminal.h"
#include "sluice/engine_messages.hpp"

namespace sluice::cli {

struct ReplayOptions {
  std::string path;
  std::string engine;  // where it is; empty: one in this process, as `setup` says
  EngineSetup setup;
  StopAt stop_at = StopAt::kEngine;
  int64_t concurrency = 0;  // requests at once; 0: all
  bool checks = false;
  bool as_json = false;
};

// Adds the command. `action` becomes what the command line selects.
void AddReplay(CLI::App& app, std::function<void()>& action);

// Throws, when all is said, where a request failed, or gave something else than its record says.
void RunReplay(const ReplayOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
