#include "cli/engine/engine_endpoint.h"

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "cli/engine/endpoint.h"
#include "cli/engine/engine_report.h"
#include "cli/serve/stop_signal.h"

namespace sluice::cli {
namespace {

// A frontend has a descriptor, and the usual limit is 1024 for the sake of programs that use
// select.
void UseAllDescriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

void AddEndpointFlags(CLI::App& command, EndpointOptions& options) {
  command
      .add_option(
          "--listen", options.listen,
          "listen at ipc://PATH, ipc://@NAME or tcp://HOST:PORT; port * is any that is free")
      ->type_name("ENDPOINT")
      ->capture_default_str();
  command.add_flag("--json", options.as_json, "write the counters as one JSON object at the end");
}

void ServeEngine(Engine& engine, EngineInfo info, const EndpointOptions& options, std::ostream& out,
                 FrameFault on_frame) {
  if (!IsLocal(options.listen)) {
    std::cerr << "sluice: other machines may reach " << options.listen
              << ", without authentication\n";
  }
  UseAllDescriptors();
  const std::string model = info.model;
  EngineServerOptions server_options{.listen = options.listen, .on_frame = std::move(on_frame)};
  if (!options.is_quiet) {
    server_options.log = [](std::string_view line) { std::cerr << "sluice: " << line << '\n'; };
  }
  const StopSignal stop;
  EngineServer server(engine, std::move(info), server_options);
  out << "listening on " << server.endpoint() << '\n' << std::flush;
  std::exception_ptr failure;
  try {
    server.Run(stop.token());
  } catch (...) {  // the runner's: thrown after the report of what had been done until then
    failure = std::current_exception();
  }
  const EngineReport report{.model = model,
                            .endpoint = server.endpoint(),
                            .engine = server.engine_counters(),
                            .link = server.link_counters()};
  if (options.as_json) {
    WriteReport(report, out);
  } else if (!options.is_quiet) {
    PrintReport(report, std::cerr);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sluice::cli
