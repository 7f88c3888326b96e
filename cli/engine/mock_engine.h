// sluice mock-engine: an engine without a model. Its tokens come from a script, at a rate, and it
// can be made to stall, die and send what it must not.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/engine/engine_endpoint.h"
#include "cli/engine/faults.h"

namespace sluice::cli {

struct MockEngineOptions {
  EndpointOptions endpoint;
  FaultOptions faults;
  std::string script_path;  // a text; empty: `tokens`, and if there are none, it echoes
  std::vector<int32_t> tokens;
  bool echoes = false;
  std::string tokenizer_path;  // empty: of the built-in model
  double rate = 0;             // steps a second; 0: as fast as it can
  int32_t max_requests = 256;
  int64_t step_tokens = 8192;
  int64_t context = 1 << 20;
  int64_t burst = 1;
  int32_t steps_in_flight = 0;
  std::string grammar_library;  // empty: see FindGrammarLibrary
};

// Adds the command. `action` becomes what the command line selects.
void AddMockEngine(CLI::App& app, std::function<void()>& action);

void RunMockEngine(const MockEngineOptions& options, std::ostream& out);

}  // namespace sluice::cli
