// What sluice engine and sluice mock-engine do alike: an engine at an endpoint until a signal
// comes, and what it has done.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "sluice/engine_server.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

inline constexpr const char* kDefaultEndpoint = "tcp://127.0.0.1:5656";

struct EndpointOptions {
  std::string listen = kDefaultEndpoint;
  bool as_json = false;
  bool is_quiet = false;
};

// --listen and --json.
void AddEndpointFlags(CLI::App& command, EndpointOptions& options);

using FrameFault = decltype(EngineServerOptions::on_frame);

// One line on `out`, "listening on ENDPOINT", when it can be reached; then it serves until SIGINT
// or SIGTERM, and says what it has done on standard error or, as JSON, on `out`.
void ServeEngine(Engine& engine, EngineInfo info, const EndpointOptions& options, std::ostream& out,
                 FrameFault on_frame = {});

}  // namespace sluice::cli
