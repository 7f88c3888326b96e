#include "cli/serve/serve.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "cli/engine/endpoint.h"
#include "cli/engine/engine_supervisor.h"
#include "cli/files/file.h"
#include "cli/flags/choices.h"
#include "cli/serve/access_log.h"
#include "cli/serve/error_log.h"
#include "cli/serve/hangup.h"
#include "cli/serve/private_folder.h"
#include "cli/serve/serve_check.h"
#include "cli/serve/serve_flags.h"
#include "cli/serve/serve_report.h"
#include "cli/serve/stop_signal.h"
#include "cli/text.h"
#include "cli/vllm/vllm_engine.h"
#include "link/vllm/vllm_endpoint.h"
#include "server/server_options.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

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

void AddEngineFlags(CLI::App& command, ServeOptions& options) {
  CLI::Option* const engine =
      command
          .add_option("--engine", options.server.engines,
                      "use this engine instead of starting one; may be given many times. "
                      "vllm+tcp://ADDRESS:PORT waits there for an engine of vLLM, and with "
                      "?ranks=N for N of them")
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

// What the engine's own command line is, of the flags that were given here.
std::vector<std::string> EngineArguments(const CLI::App& command) {
  std::vector<std::string> arguments;
  for (const auto& [flag, name] : kEngineFlags) {
    const CLI::Option* const option = command.get_option(flag);
    if (option->count() > 0) arguments.insert(arguments.end(), {name, option->results().back()});
  }
  return arguments;
}

using SayLine = std::function<void(std::string_view)>;

// Sluice engine as a child, at an address that only this user reaches.
class OwnEngine {
 public:
  OwnEngine(const ServeOptions& options, SayLine say, const std::stop_token& stop)
      : supervisor_({.command = Command(options, folder_.path()), .log = std::move(say)}, stop) {}

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
std::unique_ptr<OwnEngine> StartEngine(const ServeOptions& options, const SayLine& say,
                                       const std::stop_token& stop) {
  try {
    return std::make_unique<OwnEngine>(options, say, stop);
  } catch (const Error&) {
    if (stop.stop_requested()) return nullptr;
    throw std::runtime_error("the engine did not start; the lines above say why");
  }
}

// How the engines of vLLM are started that this server waits for.
void SayHowToStart(const ServeOptions& options, const SayLine& say) {
  for (const std::string& endpoint : options.server.engines) {
    if (!IsVllmEndpoint(endpoint)) continue;
    const link::VllmEndpoint read = link::ReadVllmEndpoint(endpoint);
    const std::string host = read.host.substr(read.host.find("//") + 2);
    const std::string port = read.address.substr(read.address.rfind(':') + 1);
    const std::string& directory = options.setup.source.directory;
    const std::string serves = "vllm serve " + (directory.empty() ? "MODEL" : directory) +
                               " --headless --data-parallel-rpc-port " + port;
    if (read.ranks == 1) {
      // With one rank vLLM takes the address from the variable alone.
      say("waits for an engine: VLLM_DP_MASTER_IP=" + host + " " + serves);
    } else {
      say("waits for " + Number(read.ranks) + " engines: " + serves + " --data-parallel-address " +
          host + " --data-parallel-size " + Number(read.ranks));
    }
    if (!IsLocal(read.address)) {
      say("other machines may reach " + endpoint + ", without authentication");
    }
  }
}

// Throws where it was given up.
void CheckVllm(const std::optional<VllmEngine>& vllm) {
  const std::string failure = vllm.has_value() ? vllm->Failure() : std::string();
  if (failure.empty()) return;
  throw std::runtime_error("the engine of vLLM ended (" + failure + "); its log above says why");
}

// Before anything is loaded.
void CheckOptions(ServerOptions options) {
  for (const std::string& endpoint : options.engines) {
    const size_t scheme = IsVllmEndpoint(endpoint) ? std::string_view("vllm+").size() : 0;
    CheckEndpoint("engine", endpoint.substr(scheme, endpoint.find('?') - scheme));
    if (scheme > 0) link::ReadVllmEndpoint(endpoint);
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
  AddListenFlags(*command, *options);
  AddEngineFlags(*command, *options);
  AddParamDefaultsFlag(*command, options->setup.source);
  command
      ->add_option("--name", server.model_names,
                   "a name of the model in requests; may be given many times, responses have the "
                   "first. Without one, the engine's name")
      ->type_name("MODEL")
      ->allow_extra_args(false);
  AddTemplateFlags(*command, *options);
  AddThreadsFlag(*command, server);
  AddAccessFlags(*command, *options, kKeyVariable);
  AddDrainFlag(*command, server);
  command->add_flag(
      "--check", options->only_checks,
      "check the model, the template, the engine, the address and the keys, then exit");
  command->add_flag("--json", options->as_json,
                    "write the line at the start, and what --check found, as one JSON object");
  command->footer(
      "The built-in model is " + std::string(kBuiltInModel) +
      "; give --model for real work.\nThe server prints \"listening on URL\" when it accepts "
      "requests. SIGINT, SIGTERM or, without --api-key-file, --tls-cert and a file as "
      "--access-log, "
      "SIGHUP ends it with exit code 0 when the requests in flight are done; a second signal ends "
      "them with an error "
      "event, a third one at once.\nSLUICE_MODEL is --model, "
      "SLUICE_API_KEY is --api-key.");
  command->callback([&action, command, options] {
    options->engine_arguments = EngineArguments(*command);
    TakeKeyVariable(*command, kKeyVariable);
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
  ErrorLog log;
  const SayLine say = [&log](std::string_view line) { log.Say(line); };
  Hangup hangup(given, say);
  std::optional<StopSignal> signals;
  if (!options.only_checks) {
    signals.emplace(StopSignal::kTwice,
                    hangup.HasWork() ? [&hangup] { hangup.Handle(); } : std::function<void()>());
  }
  server.api_keys = KeysOf(given);
  ReadTls(given, server);
  CheckOptions(server);
  if (options.only_checks) {
    RunServeCheck(options, out, Terminal::Detect());
    return;
  }
  StopSignal& stop = *signals;
  const ModelText text = OpenServedText(options);
  CheckAddress(server);
  if (!IsLocal(server) && server.api_keys.empty()) {
    say("other machines may reach " + server.host + ", without a key: --api-key requires one");
  }
  std::optional<AccessLog> access_log;
  if (!options.access_log_path.empty()) {
    access_log.emplace(options.access_log_path, say);
    server.access_log = [&access_log](std::string_view line) { access_log->Write(line); };
  }
  const Hangup::Lease log_lease = hangup.Use(access_log.has_value() ? &*access_log : nullptr);
  std::unique_ptr<OwnEngine> own;
  if (server.engines.empty()) {
    own = StartEngine(options, say, stop.token());
    if (own == nullptr) return;
    server.engines = {own->endpoint()};
  }
  if (!options.setup.is_quiet) server.log = say;
  if (HasVllmEngine(server)) {
    if (server.model_names.empty()) server.model_names = {options.setup.source.ShortName()};
    if (!options.setup.is_quiet && options.vllm_command.empty()) SayHowToStart(options, say);
  }
  // A signal, or the end of the engine.
  std::stop_source over;
  const std::stop_callback on_signal(stop.token(), [&over] { over.request_stop(); });
  std::optional<VllmEngine> vllm;
  if (!options.vllm_command.empty()) {
    vllm.emplace(VllmEngineOptions{
        .command = options.vllm_command,
        .on_line = [&log](std::string_view line) { log.Write("vllm: " + std::string(line)); },
        .log = say,
        .on_given_up = [&over] { over.request_stop(); }});
    server.engine_observer = [&vllm](const EngineState& state) {
      if (state.health == EngineHealth::kReady) vllm->SetReady();
    };
  }
  server.stop = over.get_token();
  std::optional<Server> connected;
  try {
    connected.emplace(text, server);
  } catch (const Error&) {
    if (stop.token().stop_requested()) return;
    CheckVllm(vllm);
    throw;
  }
  Server& serving = *connected;
  const ServeStart start{
      .url = serving.url(),
      .model = server.model_names.empty() ? serving.info().model : server.model_names[0],
      .engines = server.engines,
      .engine_pid = own != nullptr     ? std::optional(own->pid())
                    : vllm.has_value() ? std::optional(vllm->pid())
                                       : std::nullopt,
      .has_api_keys = !server.api_keys.empty(),
      .is_built_in_model = own != nullptr && options.setup.source.directory.empty()};
  if (!options.setup.is_quiet) {
    std::ostringstream shown;
    PrintStart(start, shown, Terminal::Detect(STDERR_FILENO));
    std::string lines = std::move(shown).str();
    if (lines.ends_with('\n')) lines.pop_back();
    log.Write(lines);
  }
  if (options.as_json) {
    WriteStart(start, out);
  } else {
    out << "listening on " << start.url << std::endl;
  }
  const Hangup::Lease server_lease = hangup.Use(serving);
  serving.Run(over.get_token(), stop.now());
  CheckVllm(vllm);
}

}  // namespace sluice::cli
