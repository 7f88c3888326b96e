// sluice serve: HTTP for an engine of its own, or for engines elsewhere.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/engine/engine_setup.h"
#include "sluice/server.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

struct ServeOptions {
  ServerOptions server;
  EngineSetup setup;                          // of the engine of its own
  std::vector<std::string> engine_arguments;  // of that engine, as its process gets them
  // Starts an engine of vLLM that connects to the one in server.engines; empty: nothing is started.
  std::vector<std::string> vllm_command;
  std::string chat_template_path;
  std::string api_key_path;
  std::string tls_cert_path;
  std::string tls_key_path;
  std::string access_log_path;
  bool only_checks = false;
  bool as_json = false;
};

// Adds the command. `action` becomes what the command line selects.
void AddServe(CLI::App& app, std::function<void()>& action);

// One line on `out` when it can be reached, "listening on URL" or an object of JSON; then it serves
// until SIGINT, SIGTERM or SIGHUP, and the requests in flight are done. The engine of its own is a
// child, which is started again when it ends.
void RunServe(const ServeOptions& options, std::ostream& out);

// "127.0.0.1:8080", "[::1]:8080" or a path; and whether only this machine reaches it.
std::string AddressText(const ServerOptions& server);
bool IsLocal(const ServerOptions& server);

// Throws what keeps the server from listening there, and what to do.
void CheckAddress(const ServerOptions& server);

// Whether it is to wait for an engine of vLLM, which has no other frontend then.
bool HasVllmEngine(const ServerOptions& server);

// The model's text, with another template where one is given.
ModelText OpenServedText(const ServeOptions& options);

}  // namespace sluice::cli
