#include "cli/vllm/vllm.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/flags/choices.h"
#include "cli/generate/model_source.h"
#include "cli/serve/serve.h"
#include "cli/serve/serve_flags.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "cli/vllm/find_vllm.h"
#include "cli/vllm/model_folder.h"
#include "cli/vllm/vllm_flags.h"
#include "link/file_descriptor.h"

namespace sluice::cli {
namespace {

constexpr const char* kVllmKeyVariable = "VLLM_API_KEY";
constexpr const char* kLoopback = "127.0.0.1";
constexpr uint16_t kVllmPort = 8000;
// A model of hundreds of gigabytes from a slow disk; an engine that has ended is seen at once.
constexpr std::chrono::hours kStartTime{2};

struct VllmOptions {
  ServeOptions serve;
  std::string model;
  std::string revision;
  std::string python;
  std::vector<std::string> engine_words;
  int32_t servers = 1;
  bool has_tool_choice = false;
};

// Where the engine looks for this server.
uint16_t FreePort() {
  const link::FileDescriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, kLoopback, &address.sin_addr);
  socklen_t size = sizeof address;
  auto* const its = reinterpret_cast<sockaddr*>(&address);
  if (!probe.IsOpen() || ::bind(probe.get(), its, size) != 0 ||
      ::getsockname(probe.get(), its, &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "a port for the engine");
  }
  return ntohs(address.sin_port);
}

void AddNameFlags(CLI::App& command, VllmOptions& options) {
  command
      .add_option("MODEL", options.model,
                  "the model's folder, or its name where Hugging Face's cache has it")
      ->type_name("MODEL");
  command.add_option("--revision", options.revision, "of a name: this branch, tag or commit")
      ->type_name("TEXT");
  command
      .add_option("--served-model-name", options.serve.server.model_names,
                  "names of the model in requests; answers have the first. Without one, MODEL")
      ->type_name("MODEL");
  command
      .add_option("--python", options.python,
                  "the interpreter that has vLLM; without it that of the program vllm on PATH, or "
                  "python3")
      ->type_name("PROGRAM");
}

// Flags of vLLM's server with other names here.
void AddServerFlagsOfVllm(CLI::App& command, VllmOptions& options) {
  ServerOptions& server = options.serve.server;
  command
      .add_option_function<std::string>(
          "--tool-call-parser",
          [&server](const std::string& name) { server.tool_format = ToolFormatOfParser(name); },
          "--tool-format by vLLM's name of it")
      ->type_name("PARSER");
  command
      .add_option_function<std::string>(
          "--reasoning-parser",
          [&server](const std::string& name) {
            server.reasoning_format = ReasoningFormatOfParser(name);
          },
          "--reasoning-format by vLLM's name of it")
      ->type_name("PARSER");
  command
      .add_option_function<std::string>(
          "--allowed-origins",
          [&server](const std::string& text) {
            for (std::string& origin : OriginsOf(text)) {
              server.cors_origins.push_back(std::move(origin));
            }
          },
          "--cors-origin, one or a list in JSON")
      ->type_name("JSON");
  command.add_flag("--enable-auto-tool-choice", options.has_tool_choice,
                   "no effect: it is always on");
  command.add_option("--api-server-count", options.servers, "no effect: one process is enough")
      ->type_name("INT");
}

void RunVllm(VllmOptions options) {
  ServeOptions& serve = options.serve;
  ServerOptions& server = serve.server;
  serve.setup.source.directory = ModelFolder(options.model, options.revision);
  if (server.model_names.empty()) server.model_names = {options.model};
  const FoundVllm found = FindVllm(options.python);
  const std::string port = Number(FreePort());
  server.engines = {"vllm+tcp://" + std::string(kLoopback) + ":" + port};
  server.start_timeout = kStartTime;
  std::vector<std::string>& command = serve.vllm_command;
  command = {found.python,  "-m",         "vllm.entrypoints.cli.main", "serve",
             options.model, "--headless", "--data-parallel-rpc-port",  port};
  if (!options.revision.empty()) command.insert(command.end(), {"--revision", options.revision});
  command.insert(command.end(), options.engine_words.begin(), options.engine_words.end());
  // With one rank vLLM takes the address from the variable alone.
  ::setenv("VLLM_DP_MASTER_IP", kLoopback, 1);
  std::cerr << "sluice: starts vLLM " + found.version + " of " + found.python + "\n";
  RunServe(serve, std::cout);
}

}  // namespace

void AddVllm(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command = app.add_subcommand(
      "vllm", "start an engine of vLLM with Sluice's server, in place of vllm serve");
  const auto options = std::make_shared<VllmOptions>();
  ServeOptions& serve = options->serve;
  serve.server.port = kVllmPort;
  command->allow_extras();
  AddNameFlags(*command, *options);
  AddListenFlags(*command, serve);
  AddParamDefaultsFlag(*command, serve.setup.source);
  AddTemplateFlags(*command, serve);
  AddServerFlagsOfVllm(*command, *options);
  AddAccessFlags(*command, serve, kVllmKeyVariable);
  AddDrainFlag(*command, serve.server);
  command->add_flag("--json", serve.as_json, "write the line at the start as one JSON object");
  command->footer(
      "All other flags go to the engine: vllm serve --help=all lists them. The engine listens to "
      "this machine alone, and its log is on standard error after \"vllm: \"; when it ends it is "
      "started again. Signals end both, as in sluice serve.\nVLLM_API_KEY is --api-key.");
  command->callback([&action, command, options] {
    if (options->model.empty()) {
      throw UsageError(
          "missing MODEL: give the folder of a model, or its name, before all flags\n"
          "See sluice vllm --help");
    }
    options->engine_words = EngineWords(*command, command->remaining());
    TakeKeyVariable(*command, kVllmKeyVariable);
    // That of sluice serve requires a key here as well.
    if (const char* const key = std::getenv(kKeyVariable); key != nullptr) {
      options->serve.server.api_keys.emplace_back(key);
    }
    TakeKeyVariable(*command, kKeyVariable);
    action = [options] { RunVllm(*options); };
  });
}

}  // namespace sluice::cli
