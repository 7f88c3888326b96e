#include "cli/serve/serve_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/flags/choices.h"
#include "cli/serve/serve.h"
#include "sluice/error.hpp"
#include "sluice/reasoning.hpp"
#include "sluice/tool_calls.hpp"

namespace sluice::cli {

void AddListenFlags(CLI::App& command, ServeOptions& options) {
  ServerOptions& server = options.server;
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
  CLI::Option* const cert =
      command
          .add_option("--tls-cert", options.tls_cert_path,
                      "speak HTTPS with the certificate of this file and those that signed it, as "
                      "PEM; SIGHUP reads it again")
          ->type_name("FILE");
  CLI::Option* const key = command
                               .add_option("--tls-key", options.tls_key_path,
                                           "the key of the certificate, as PEM without a password")
                               ->type_name("FILE")
                               ->needs(cert);
  cert->needs(key);
  command.add_option("--unix-socket", server.unix_socket, "listen at this path instead of a port")
      ->type_name("PATH")
      ->excludes(host)
      ->excludes(port);
}

void AddThreadsFlag(CLI::App& command, ServerOptions& server) {
  command
      .add_option("--threads", server.threads,
                  "threads of the server, each with connections of its own")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

void AddTemplateFlags(CLI::App& command, ServeOptions& options) {
  command
      .add_option("--chat-template", options.chat_template_path,
                  "use this template instead of the model's own")
      ->type_name("FILE");
  ServerOptions& server = options.server;
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

namespace {

int32_t EncodeThreads() {
  return std::clamp(static_cast<int32_t>(std::thread::hardware_concurrency() / 2), 2, 8);
}

}  // namespace

void AddAccessFlags(CLI::App& command, ServeOptions& options, const char* key_variable) {
  ServerOptions& server = options.server;
  command
      .add_option("--api-key", server.api_keys,
                  "require this key of requests; may be given many times. Other users of this "
                  "machine see it, unlike the variable " +
                      std::string(key_variable) + " and a file")
      ->type_name("KEY")
      ->envname(key_variable)
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

void TakeKeyVariable(const CLI::App& command, const char* variable) {
  const char* const key = std::getenv(variable);
  if (key != nullptr && *key == '\0' && command.count("--api-key") == 0) {
    throw Error(ErrorCode::kInvalidValue, variable, "an empty text",
                "a key; unset the variable where requests need none");
  }
  ::unsetenv(variable);
}

void AddDrainFlag(CLI::App& command, ServerOptions& server) {
  command
      .add_option_function<int64_t>(
          "--drain-timeout",
          [&server](int64_t seconds) { server.drain_timeout = std::chrono::seconds(seconds); },
          "seconds that requests in flight get to finish when the server ends")
      ->default_str("30")
      ->type_name("INT")
      ->check(CLI::Range(0, 86400));
}

}  // namespace sluice::cli
