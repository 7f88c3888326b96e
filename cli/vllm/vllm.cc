#include "cli/vllm/vllm.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/flags/choices.h"
#include "cli/generate/model_source.h"
#include "cli/serve/serve.h"
#include "cli/serve/serve_flags.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "cli/vllm/find_vllm.h"
#include "cli/vllm/held_port.h"
#include "cli/vllm/model_folder.h"
#include "cli/vllm/vllm_flags.h"
#include "link/vllm/handshake.h"
#include "link/vllm/vllm_endpoint.h"

namespace sluice::cli {
namespace {

constexpr const char* kVllmKeyVariable = "VLLM_API_KEY";
constexpr const char* kLoopback = "127.0.0.1";
constexpr uint16_t kVllmPort = 8000;
constexpr int32_t kUsualLogprobs = 20;
// A model of hundreds of gigabytes from a slow disk; an engine that has ended is seen at once.
constexpr std::chrono::hours kStartTime{2};

struct VllmOptions {
  ServeOptions serve;
  std::string model;
  std::string revision;
  std::string python;
  std::string reasoning_parser;  // of the engine
  EngineLine engine;
  int32_t ranks = 1;
  int32_t max_logprobs = kUsualLogprobs;
  bool has_tool_choice = false;
};

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
          [&options, &server](const std::string& name) {
            server.reasoning_format = ReasoningFormatOfParser(name);
            options.reasoning_parser = ReasoningParserOfEngine(name);
          },
          "--reasoning-format by vLLM's name of it; the engine gets it too, for budgets")
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
  command
      .add_option_function<int64_t>(
          "--sse-keep-alive-interval",
          [&server](int64_t seconds) {
            if (seconds > 0) server.keep_alive = std::chrono::seconds(seconds);
          },
          "seconds of silence in a stream before a comment; without it, and with 0, 15")
      ->type_name("INT")
      ->check(CLI::Range(0, 86400));
  command.add_option("--uds", server.unix_socket, "--unix-socket by vLLM's name of it")
      ->type_name("PATH")
      ->excludes("--unix-socket");
  CLI::Option* const cert = command
                                .add_option("--ssl-certfile", options.serve.tls_cert_path,
                                            "--tls-cert by vLLM's name of it")
                                ->type_name("FILE")
                                ->excludes("--tls-cert");
  CLI::Option* const key =
      command
          .add_option("--ssl-keyfile", options.serve.tls_key_path, "--tls-key by vLLM's name of it")
          ->type_name("FILE")
          ->excludes("--tls-key")
          ->needs(cert);
  cert->needs(key);
  command.add_flag("--enable-auto-tool-choice", options.has_tool_choice,
                   "no effect: it is always on");
  AddThreadsFlag(command, server);
  command.add_option("--api-server-count", server.threads, "--threads by vLLM's name of it")
      ->type_name("INT")
      ->check(CLI::Range(1, 256))
      ->excludes("--threads");
  command
      .add_option_function<std::vector<std::string>>(
          "--lora-modules",
          [&server](const std::vector<std::string>& modules) {
            for (const std::string& text : modules) server.adapters.push_back(AdapterOf(text));
          },
          "adapters as NAME=PATH, each a name of a model in requests; the engine gets "
          "--enable-lora")
      ->type_name("ADAPTER");
  command
      .add_option("--max-logprobs", options.max_logprobs,
                  "log-probabilities of a token that requests may have; -1: of all tokens")
      ->type_name("INT")
      ->check(CLI::Range(-1, INT32_MAX))
      ->capture_default_str();
  command
      .add_option(
          "--data-parallel-size", options.ranks,
          "start so many engines, each with the whole model; a request goes to the one with "
          "the fewest")
      ->type_name("INT")
      ->check(CLI::Range(1, link::kMostVllmRanks));
}

void RunVllm(VllmOptions options) {
  ServeOptions& serve = options.serve;
  ServerOptions& server = serve.server;
  serve.setup.source.directory = ModelFolder(options.model, options.revision);
  if (server.model_names.empty()) server.model_names = {options.model};
  for (const std::string& note : options.engine.notes) std::cerr << "sluice: " + note + "\n";
  if (options.ranks > 1 && HasExperts(serve.setup.source.directory)) {
    throw std::runtime_error(
        "--data-parallel-size " + Number(options.ranks) + " is not taken for " + options.model +
        ": the ranks of a model with experts compute together, and Sluice has no coordinator for "
        "that; --tensor-parallel-size spreads it over GPUs");
  }
  const FoundVllm found = FindVllm(options.python);
  const HeldPort held(kLoopback);  // where the engine looks for this server
  const std::string port = Number(held.number());
  server.engines = {"vllm+tcp://" + std::string(kLoopback) + ":" + port};
  if (options.ranks > 1 || options.max_logprobs != kUsualLogprobs) {
    server.engines[0] +=
        "?ranks=" + Number(options.ranks) + "&max_logprobs=" + Number(options.max_logprobs);
  }
  server.start_timeout = kStartTime;
  std::vector<std::string>& command = serve.vllm_command;
  command = {found.python,  "-m",         "vllm.entrypoints.cli.main", "serve",
             options.model, "--headless", "--data-parallel-rpc-port",  port};
  if (!options.revision.empty()) command.insert(command.end(), {"--revision", options.revision});
  if (options.max_logprobs != kUsualLogprobs) {
    command.insert(command.end(), {"--max-logprobs", Number(options.max_logprobs)});
  }
  if (!server.adapters.empty()) command.emplace_back("--enable-lora");
  if (options.ranks > 1) {
    command.insert(command.end(), {"--data-parallel-size", Number(options.ranks),
                                   "--data-parallel-address", kLoopback});
  }
  if (!options.reasoning_parser.empty()) {
    command.insert(command.end(), {"--reasoning-parser", options.reasoning_parser});
  }
  command.insert(command.end(), options.engine.words.begin(), options.engine.words.end());
  // With one rank vLLM takes the address from the variable alone.
  ::setenv("VLLM_DP_MASTER_IP", kLoopback, 1);
  std::cerr << "sluice: starts vLLM " + found.version + " of " + found.python + "\n";
  if (link::vllm::FitOf(found.version) == link::vllm::VersionFit::kNewer) {
    std::cerr << "sluice: vLLM " + found.version + " is newer than those that are known, " +
                     std::string(link::vllm::kKnownVersions) +
                     ": it may end at a request that it reads otherwise\n";
  }
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
    options->engine = EngineWords(*command, command->remaining());
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
