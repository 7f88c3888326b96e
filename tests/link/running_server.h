// An engine that runs a script, its server, and the thread of its steps.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"

namespace sluice::test {

// A name of this process that no other test has.
inline std::string LocalEndpoint() {
  static std::atomic<int> count{0};
  return "ipc://@sluice-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

inline ScriptOptions CountingScript() {
  ScriptOptions script{.vocab = 1000, .max_requests = 64};
  for (int32_t id = 0; id < 1000; ++id) script.tokens.push_back(id);
  return script;
}

class RunningServer {
 public:
  explicit RunningServer(ScriptOptions script = CountingScript(),
                         EngineServerOptions options = {.listen = LocalEndpoint()},
                         EngineOptions engine_options = {.max_clients = 4,
                                                         .max_client_requests = 64})
      : runner_(std::move(script)),
        engine_(runner_, std::nullopt, engine_options),
        server_(engine_, {.model = "script", .version = "1"}, WithLog(std::move(options))),
        thread_([this](const std::stop_token& stop) {
          try {
            server_.Run(stop);
          } catch (...) {
            thrown_ = std::current_exception();
          }
        }) {}
  ~RunningServer() { Stop(); }

  EngineServer& operator*() { return server_; }
  EngineServer* operator->() { return &server_; }
  const std::string& endpoint() const { return server_.endpoint(); }

  // What Run has thrown.
  std::exception_ptr Stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    return thrown_;
  }
  std::exception_ptr Join() {
    thread_.join();
    return thrown_;
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  // Within a minute.
  static bool Becomes(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

 private:
  EngineServerOptions WithLog(EngineServerOptions options) {
    options.log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  ScriptRunner runner_;
  Engine engine_;
  EngineServer server_;
  std::exception_ptr thrown_;
  std::jthread thread_;
};

// Tokens prompt[0], prompt[0] + 1, ... of a CountingScript.
inline EngineRequest CountingRequest(int32_t slot, uint32_t generation, int32_t first,
                                     int64_t max_tokens) {
  EngineRequest request;
  request.address = {slot, generation};
  request.params.seed = 1;
  request.prompt = {first};
  request.max_tokens = max_tokens;
  return request;
}
inline std::vector<int32_t> Counted(int32_t first, int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((first + i) % 1000));
  return ids;
}

}  // namespace sluice::test
