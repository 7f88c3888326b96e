#include "cli/engine/engine.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/engine/endpoint.h"
#include "cli/serve/stop_signal.h"

namespace sluice::cli {

void AddEngine(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command =
      app.add_subcommand("engine", "run a model as an engine for frontends in other processes");
  const auto options = std::make_shared<EngineCommandOptions>();
  AddEndpointFlags(*command, options->endpoint);
  AddEngineSetupFlags(*command, options->setup);
  command->add_flag(kRelayProgressFlag, options->setup.relays_progress)
      ->group("");  // not for people
  command->footer(
      "The engine prints \"listening on ENDPOINT\" when frontends can connect. SIGINT, SIGTERM or "
      "SIGHUP ends it with exit code 0, a second one at once. It has no authentication: every "
      "process that reaches the endpoint may use it.");
  command->callback([&action, options] { action = [options] { RunEngine(*options, std::cout); }; });
}

void RunEngine(const EngineCommandOptions& options, std::ostream& out) {
  IgnoreHarmlessSignals();
  CheckEndpoint("listen", options.endpoint.listen);
  ModelEngine engine(options.setup);
  EndpointOptions endpoint = options.endpoint;
  endpoint.is_quiet = options.setup.is_quiet;
  ServeEngine(engine.engine(), engine.Info(), endpoint, out);
}

}  // namespace sluice::cli
