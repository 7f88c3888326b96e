// Engines for the benches: a script at an endpoint, and a process that uses it.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "sluice/client.hpp"
#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"
#include "sluice/version.hpp"

namespace sluice::bench {

inline constexpr const char* kScriptText =
    "The old man went down to the river and saw the moon in the water, and then he said to the "
    "miller: STOP. ";
inline constexpr const char* kScriptStop = "STOP";

inline ScriptOptions Script(const Tokenizer& tokenizer, int64_t requests,
                            std::chrono::nanoseconds step_time) {
  ScriptOptions script;
  script.vocab = tokenizer.size();
  script.tokens = tokenizer.Encode(kScriptText, {.add_special_tokens = false});
  script.max_requests = static_cast<int32_t>(requests);
  script.max_step_tokens = 16384;
  script.step_time = step_time;
  return script;
}

// Serves from its beginning to its end, on a thread of its own.
class ServedEngine {
 public:
  ServedEngine(const Tokenizer& tokenizer, int64_t requests, int32_t steps_in_flight,
               std::chrono::nanoseconds step_time)
      : tokenizer_(tokenizer),
        runner_(Script(tokenizer, requests, step_time)),
        engine_(runner_, tokenizer, {.steps_in_flight = steps_in_flight}),
        server_(engine_,
                {.model = "script",
                 .version = std::string(kVersionString),
                 .tokenizer_hash = TokenizerHash(tokenizer),
                 .has_text = true},
                {.listen = "ipc://@sluice-bench-" + std::to_string(getpid())}),
        thread_([this](std::stop_token stop) { server_.Run(std::move(stop)); }) {}

  std::unique_ptr<Client> Connect(StopAt stop_at = StopAt::kEngine) const {
    return ConnectClient(std::span(&server_.endpoint(), 1), tokenizer_, {.stop_at = stop_at});
  }
  const EngineServer& server() const { return server_; }
  // Waits until no request is left, and no step that has one is on its way.
  EngineCounters WhenIdle(std::chrono::nanoseconds step_time) const {
    EngineCounters last = server_.engine_counters();
    for (;;) {
      std::this_thread::sleep_for(3 * step_time + std::chrono::microseconds(200));
      const EngineCounters now = server_.engine_counters();
      if (now.running + now.waiting == 0 && now == last) return now;
      last = now;
    }
  }

 private:
  Tokenizer tokenizer_;
  ScriptRunner runner_;
  Engine engine_;
  EngineServer server_;
  std::jthread thread_;
};

// A program with its output thrown away. It is killed at the end of its life.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
    const int error =
        posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::system_error(error, std::generic_category(), command[0]);
  }
  ~Process() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Send(int signal) const { kill(pid_, signal); }

 private:
  pid_t pid_ = -1;
};

}  // namespace sluice::bench
