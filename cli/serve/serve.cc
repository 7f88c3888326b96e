#include "cli/serve/serve.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "cli/engine/endpoint.h"
#include "cli/engine/engine_supervisor.h"
#include "cli/files/file.h"
#include "cli/flags/choices.h"
#include "cli/serve/access_log.h"
#include "cli/serve/hangup.h"
#include "cli/serve/private_folder.h"
#include "cli/serve/serve_check.h"
#include "cli/serve/serve_report.h"
#include "cli/serve/stop_signal.h"
#include "cli/text.h"
#include "server/server_options.h"
#include "sluice/error.hpp"
#include "sluice/reasoning.hpp"

namespace sluice::cli {
namespace {

constexpr const char* kKeyVariable = "SLUICE_API_KEY";

// Of the engine of its own: the flag here, and the flag of sluice engine.
constexpr std::pair<const char*, const char*> kEngineFlags[] = {
    {"--weights", "--weights"},
    {"--engine-threads", "--threads"},
    {"--head", "--head"},
    {"--head-file", "--head-file"},
    {"--backend", "--backend"},
    {"--engine-requests", "--max-requests"},
    {"--step-tokens", "--step-tokens"},
    {"--cache-tokens", "--cache-tokens"},
    {"--max-prefixes", "--max-prefixes"},
    {"--draft-tokens", "--draft-tokens"},
    {"--steps-in-flight", "--steps-in-flight"},
    {"--max-logprobs", "--max-logprobs"},
    {"--grammar-library", "--grammar-library"}};

void AddListenFlags(CLI::App& command, ServerOptions& server) {
  CLI::Option* const host =
      command
          .add_option("--host", server.host,
                      "listen at this address; 0.0.0.0 and :: are all addresses")
          ->type_name("ADDRESS")
          ->capture_default_str();
  CLI::Option* const port =
      command.add_option("--port", server.port, "listen at this port; 0 is any that is free")
          ->check(CLI::Range(0, 65535))
          ->capture_default_str();
  command.add_option("--unix-socket", server.unix_socket, "listen at this path instead of a port")
      ->type_name("PATH")
      ->excludes(host)
      ->excludes(port);
}

void AddEngineFlags(CLI::App& command, ServeOptions& options) {
  CLI::Option* const engine =
      command
          .add_option("--engine", options.server.engines,
                      "use this engine instead of starting one; may be given many times. "
                      "vllm+tcp://ADDRESS:PORT waits there for an engine of vLLM")
          ->type_name("ENDPOINT")
          ->allow_extra_args(false);
  command
      .add_option_function<std::string>(
          "--stop-at",
          [&options](const std::string& name) { options.server.stop_at = StopAtByName(name); },
          "where stops are found; the text is the same")
      ->default_str("engine")
      ->type_name(ChoiceType({"engine", "frontend"}));
  AddEngineSetupFlags(command, options.setup,
                      {.threads = "--engine-threads", .max_requests = "--engine-requests"});
  for (const auto& [flag, name] : kEngineFlags) engine->excludes(command.get_option(flag));
}

void AddFormatFlags(CLI::App& command, ServerOptions& server) {
  const auto choices = [](std::span<const std::string_view> names) {
    std::vector<std::string> all(names.begin(), names.end());
    return ChoiceType(all);
  };
  command
      .add_option_function<std::string>(
          "--tool-format",
          [&server](const std::string& name) { server.tool_format = Name(ToolFormatByName(name)); },
          "the form in which the model writes calls of tools; without it, that of its chat "
          "template")
      ->type_name(choices(ToolFormatNames()));
  command
      .add_option_function<std::string>(
          "--reasoning-format",
          [&server](const std::string& name) {
            server.reasoning_format = Name(ReasoningFormatByName(name));
          },
          "the form in which the model writes reasoning, which answers have apart; without it, "
          "that of its chat template")
      ->type_name(choices(ReasoningFormatNames()));
  command
      .add_option("--reasoning-budget", server.reasoning_budget,
                  "end the reasoning of chats after this many tokens, unless they say how many; "
                  "-1: no bound")
      ->check(CLI::Range(-1, INT32_MAX))
      ->capture_default_str();
}

int32_t EncodeThreads() {
  return std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency() / 2), 2, 8);
}

void AddAccessFlags(CLI::App& command, ServeOptions& options) {
  ServerOptions& server = options.server;
  command
      .add_option("--api-key", server.api_keys,
                  "require this key of requests; may be given many times. Other users of this "
                  "machine see it, unlike the variable SLUICE_API_KEY and a file")
      ->type_name("KEY")
      ->envname(kKeyVariable)
      ->allow_extra_args(false);
  command
      .add_option("--api-key-file", options.api_key_path,
                  "read more keys from this file, one on each line; SIGHUP reads it again")
      ->type_name("FILE");
  command
      .add_option("--cors-origin", server.cors_origins,
                  "let pages of this origin (https://example.org, or * for all) call the server "
                  "from a browser; may be given many times")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  command
      .add_option("--allowed-host", server.allowed_hosts,
                  "accept requests to this name, or * for all, where the server listens at a "
                  "loopback address and needs no key; may be given many times")
      ->type_name("HOST")
      ->allow_extra_args(false);
  command.add_flag("--strict-fields", server.refuses_unknown_fields,
                   "refuse requests with unknown fields, instead of ignoring the fields");
  command.add_flag("--refuse-special-tokens-in-content", server.refuses_special_tokens,
                   "refuse messages that spell a special token of the model, instead of reading it "
                   "as text");
  command
      .add_option(
          "--access-log", options.access_log_path,
          "append a line of JSON for each request to this file, which SIGHUP opens again; - is "
          "standard output")
      ->type_name("FILE");
  command
      .add_option("--max-requests", server.max_requests,
                  "choices in flight at most, n for each prompt of a request; status 503 when they "
                  "are all taken. A key, and without keys an address, gets no more than it leaves "
                  "free, and else status 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option(
          "--max-requests-per-key", server.max_requests_per_key,
          "choices in flight with one key at most; status 429 while it has as many, and 400 "
          "for a request of more; 0 is no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_flag("--common-priorities", server.has_common_priorities,
                   "let the field priority order the requests of all keys and addresses, which are "
                   "not served in turn then");
  command
      .add_option("--max-inflight-bytes", server.http.inflight_bytes,
                  "bytes of all bodies in memory at most; a body gets no more than it leaves to "
                  "others, and else status 503; one of more than half never fits, and gets 413")
      ->check(CLI::Range(1 << 16, 1 << 30))
      ->capture_default_str();
  server.encode_threads = EncodeThreads();
  command
      .add_option("--encode-threads", server.encode_threads,
                  "threads that read and encode long prompts; without it, one for two cores, and "
                  "2 to 8")
      ->check(CLI::Range(1, 256))
      ->default_str("");
}

// A variable that is set and empty is meant as a key, and would require none.
void CheckKeyVariable(const CLI::App& command) {
  const char* const key = std::getenv(kKeyVariable);
  if (key == nullptr || *key != '\0' || command.count("--api-key") > 0) return;
  throw Error(ErrorCode::kInvalidValue, kKeyVariable, "an empty text",
              "a key; unset the variable where requests need none");
}

// What the engine's own command line is, of the flags that were given here.
std::vector<std::string> EngineArguments(const CLI::App& command) {
  std::vector<std::string> arguments;
  for (const auto& [flag, name] : kEngineFlags) {
    const CLI::Option* const option = command.get_option(flag);
    if (option->count() > 0) arguments.insert(arguments.end(), {name, option->results().back()});
  }
  return arguments;
}

// Lines of several threads, each in one piece.
void Say(std::string_view line) { std::cerr << "sluice: " + std::string(line) + "\n"; }

// Sluice engine as a child, at an address that only this user reaches.
class OwnEngine {
 public:
  OwnEngine(const ServeOptions& options, const std::stop_token& stop)
      : supervisor_({.command = Command(options, folder_.path()), .log = Say}, stop) {}

  const std::string& endpoint() const { return supervisor_.endpoint(); }
  int pid() const { return supervisor_.pid(); }

 private:
  static std::vector<std::string> Command(const ServeOptions& options, const std::string& folder) {
    std::vector<std::string> command = {"/proc/self/exe", "engine", "--listen",
                                        "ipc://" + folder + "/engine"};
    const EngineSetup& setup = options.setup;
    if (!setup.source.directory.empty()) {
      command.insert(command.end(), {"--model", setup.source.directory});
    }
    command.insert(command.end(), options.engine_arguments.begin(), options.engine_arguments.end());
    // Its frontends are of no interest here.
    command.emplace_back("--quiet");
    if (!setup.is_quiet && Terminal::Detect(STDERR_FILENO).can_redraw) {
      command.emplace_back(kRelayProgressFlag);
    }
    return command;
  }

  PrivateFolder folder_;
  EngineSupervisor supervisor_;
};

// Null when a signal came first. What the engine says about a model that it cannot load is on
// standard error by then.
std::unique_ptr<OwnEngine> StartEngine(const ServeOptions& options, const std::stop_token& stop) {
  try {
    return std::make_unique<OwnEngine>(options, stop);
  } catch (const Error&) {
    if (stop.stop_requested()) return nullptr;
    throw std::runtime_error("the engine did not start; the lines above say why");
  }
}

constexpr std::string_view kVllm = "vllm+";

// How the engines of vLLM are started that this server waits for.
void SayHowToStart(const ServeOptions& options) {
  for (const std::string& endpoint : options.server.engines) {
    if (!IsVllmEndpoint(endpoint)) continue;
    const std::string_view address = std::string_view(endpoint).substr(endpoint.find("//") + 2);
    const size_t colon = address.rfind(':');
    const std::string& directory = options.setup.source.directory;
    // With one rank vLLM takes the address from the variable alone.
    Say("waits for an engine: VLLM_DP_MASTER_IP=" + std::string(address.substr(0, colon)) +
        " vllm serve " + (directory.empty() ? "MODEL" : directory) +
        " --headless --data-parallel-rpc-port " + std::string(address.substr(colon + 1)));
    if (!IsLocal(std::string_view(endpoint).substr(kVllm.size()))) {
      Say("other machines may reach " + endpoint + ", without authentication");
    }
  }
}

// Before anything is loaded.
void CheckOptions(ServerOptions options) {
  for (const std::string& endpoint : options.engines) {
    CheckEndpoint("engine", IsVllmEndpoint(endpoint) ? endpoint.substr(kVllm.size()) : endpoint);
  }
  if (options.engines.empty()) options.engines = {"its own"};
  server::CheckServerOptions(options);
}

}  // namespace

void AddServe(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command = app.add_subcommand(
      "serve", "start an OpenAI-compatible server (with the built-in model by default)");
  const auto options = std::make_shared<ServeOptions>();
  ServerOptions& server = options->server;
  AddListenFlags(*command, server);
  AddEngineFlags(*command, *options);
  AddParamDefaultsFlag(*command, options->setup.source);
  command
      ->add_option("--name", server.model_names,
                   "a name of the model in requests; may be given many times, responses have the "
                   "first. Without one, the engine's name")
      ->type_name("MODEL")
      ->allow_extra_args(false);
  command
      ->add_option("--chat-template", options->chat_template_path,
                   "use this template instead of the model's own")
      ->type_name("FILE");
  AddFormatFlags(*command, server);
  command
      ->add_option("--threads", server.threads,
                   "threads of the server, each with connections of its own")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  AddAccessFlags(*command, *options);
  command
      ->add_option_function<int64_t>(
          "--drain-timeout",
          [&server](int64_t seconds) { server.drain_timeout = std::chrono::seconds(seconds); },
          "seconds that requests in flight get to finish when the server ends")
      ->default_str("30")
      ->type_name("INT")
      ->check(CLI::Range(0, 86400));
  command->add_flag(
      "--check", options->only_checks,
      "check the model, the template, the engine, the address and the keys, then exit");
  command->add_flag("--json", options->as_json,
                    "write the line at the start, and what --check found, as one JSON object");
  command->footer(
      "The built-in model is " + std::string(kBuiltInModel) +
      "; give --model for real work.\nThe server prints \"listening on URL\" when it accepts "
      "requests. SIGINT, SIGTERM or, without --api-key-file and a file as --access-log, SIGHUP "
      "ends "
      "it with "
      "exit code 0 when the requests in flight are done; a second signal ends them with an error "
      "event, a third one at once.\nSLUICE_MODEL is --model, "
      "SLUICE_API_KEY is --api-key.");
  command->callback([&action, command, options] {
    options->engine_arguments = EngineArguments(*command);
    CheckKeyVariable(*command);
    ::unsetenv(kKeyVariable);  // the engine needs no key
    action = [options] { RunServe(*options, std::cout); };
  });
}

std::string AddressText(const ServerOptions& server) {
  if (!server.unix_socket.empty()) return server.unix_socket;
  const bool is_v6 = server.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + server.host + "]" : server.host) + ":" + Number(server.port);
}

bool IsLocal(const ServerOptions& server) {
  return !server.unix_socket.empty() || IsLocal("tcp://" + AddressText(server));
}

void CheckAddress(const ServerOptions& server) {
  try {
    server::CheckCanListen(server);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) throw;
    const std::string& value = error.value();  // "8080 (Address already in use)"
    std::string text =
        "cannot listen at " + AddressText(server) + " " + value.substr(value.rfind('('));
    if (error.parameter() == "unix_socket") {
      text += ": --unix-socket takes " + error.allowed();
    } else if (error.parameter() == "host") {
      text += ": --host takes an address of this machine";
    } else {
      text += ": end what listens there, or choose another --port; 0 is any that is free";
    }
    throw std::runtime_error(text);
  }
}

bool HasVllmEngine(const ServerOptions& server) {
  return std::ranges::any_of(server.engines, IsVllmEndpoint);
}

ModelText OpenServedText(const ServeOptions& options) {
  const ModelText text = OpenModelText(options.setup.source);
  if (options.chat_template_path.empty()) return text;
  return text.WithChatTemplate(ReadTextFile("chat-template", options.chat_template_path));
}

void RunServe(const ServeOptions& given, std::ostream& out) {
  IgnoreHarmlessSignals();
  ServeOptions options = given;
  ServerOptions& server = options.server;
  Hangup hangup(given, Say);
  std::optional<StopSignal> signals;
  if (!options.only_checks) {
    signals.emplace(StopSignal::kTwice,
                    hangup.HasWork() ? [&hangup] { hangup.Handle(); } : std::function<void()>());
  }
  server.api_keys = KeysOf(given);
  CheckOptions(server);
  if (options.only_checks) {
    RunServeCheck(options, out, Terminal::Detect());
    return;
  }
  StopSignal& stop = *signals;
  const ModelText text = OpenServedText(options);
  CheckAddress(server);
  if (!IsLocal(server) && server.api_keys.empty()) {
    Say("other machines may reach " + server.host + ", without a key: --api-key requires one");
  }
  std::optional<AccessLog> access_log;
  if (!options.access_log_path.empty()) {
    access_log.emplace(options.access_log_path, Say);
    server.access_log = [&access_log](std::string_view line) { access_log->Write(line); };
  }
  const Hangup::Lease log_lease = hangup.Use(access_log.has_value() ? &*access_log : nullptr);
  std::unique_ptr<OwnEngine> own;
  if (server.engines.empty()) {
    own = StartEngine(options, stop.token());
    if (own == nullptr) return;
    server.engines = {own->endpoint()};
  }
  if (!options.setup.is_quiet) server.log = Say;
  if (HasVllmEngine(server)) {
    if (server.model_names.empty()) server.model_names = {options.setup.source.ShortName()};
    if (!options.setup.is_quiet) SayHowToStart(options);
  }
  server.stop = stop.token();
  std::optional<Server> connected;
  try {
    connected.emplace(text, server);
  } catch (const Error&) {
    if (stop.token().stop_requested()) return;
    throw;
  }
  Server& serving = *connected;
  const ServeStart start{
      .url = serving.url(),
      .model = server.model_names.empty() ? serving.info().model : server.model_names[0],
      .engines = server.engines,
      .engine_pid = own == nullptr ? std::nullopt : std::optional(own->pid()),
      .has_api_keys = !server.api_keys.empty(),
      .is_built_in_model = own != nullptr && options.setup.source.directory.empty()};
  if (!options.setup.is_quiet) PrintStart(start, std::cerr, Terminal::Detect(STDERR_FILENO));
  if (options.as_json) {
    WriteStart(start, out);
  } else {
    out << "listening on " << start.url << std::endl;
  }
  const Hangup::Lease server_lease = hangup.Use(serving);
  serving.Run(stop.token(), stop.now());
}

}  // namespace sluice::cli
