// sluice engine: a model behind an endpoint, for frontends in other processes.
#pragma once

#include <functional>
#include <ostream>

#include "cli/engine_endpoint.h"
#include "cli/engine_setup.h"

namespace sluice::cli {

struct EngineCommandOptions {
  EngineSetup setup;
  EndpointOptions endpoint;
};

// Adds the command. What the command line asks for becomes `action`.
void AddEngine(CLI::App& app, std::function<void()>& action);

void RunEngine(const EngineCommandOptions& options, std::ostream& out);

}  // namespace sluice::cli
