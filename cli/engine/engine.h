// sluice engine: a model at an endpoint, for frontends in other processes.
#pragma once

#include <functional>
#include <ostream>

#include "cli/engine/engine_endpoint.h"
#include "cli/engine/engine_setup.h"

namespace sluice::cli {

struct EngineCommandOptions {
  EngineSetup setup;
  EndpointOptions endpoint;
};

// Adds the command. `action` becomes what the command line selects.
void AddEngine(CLI::App& app, std::function<void()>& action);

void RunEngine(const EngineCommandOptions& options, std::ostream& out);

}  // namespace sluice::cli
