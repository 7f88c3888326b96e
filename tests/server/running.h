// A server on a port of its own, over engines that spell the alphabet: all in this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/engine_server.hpp"
#include "sluice/script_runner.hpp"
#include "sluice/server.hpp"
#include "tests/link/letters.h"
#include "tests/link/running_server.h"
#include "tests/server/completions/responses.h"
#include "tests/server/letters_text.h"
#include "tests/server/test_client.h"

namespace sluice::test {

using std::chrono::milliseconds;

// A request whose prompt begins with "c" gets "cdef...": a letter a step.
inline ScriptOptions AlphabetScript(int32_t slots = 64, milliseconds step = milliseconds(0)) {
  return {.vocab = 27,
          .tokens = Ids("abcdefghijklmnopqrstuvwxyz"),
          .context = 4096,
          .max_requests = slots,
          .step_time = step};
}

class AlphabetEngine {
 public:
  explicit AlphabetEngine(ScriptOptions script = AlphabetScript(),
                          const EngineServerOptions& link = {.listen = LocalEndpoint()},
                          int32_t waiting = 0)
      : slots_(script.max_requests),
        runner_(std::move(script)),
        engine_(runner_, Letters(), {.max_client_requests = slots_ + waiting}),
        server_(engine_, InfoOf(Letters(), slots_), link),
        thread_([this](const std::stop_token& stop) { server_.Run(stop); }) {}

  const std::string& endpoint() const { return server_.endpoint(); }
  EngineCounters counters() const { return server_.engine_counters(); }

 private:
  int32_t slots_;
  ScriptRunner runner_;
  Engine engine_;
  EngineServer server_;
  std::jthread thread_;
};

class RunningHttp {
 public:
  // Without engines of its own in the options: over one AlphabetEngine.
  explicit RunningHttp(ServerOptions options = {}, const ScriptOptions& script = AlphabetScript())
      : engine_(script),
        server_(LettersText(), With(std::move(options))),
        thread_([this] { server_.Run(drain_.get_token(), now_.get_token()); }) {}
  ~RunningHttp() { Stop(); }

  Server& server() { return server_; }
  AlphabetEngine& engine() { return engine_; }
  TestClient Connect() const { return TestClient(server_.port()); }
  TestResponse Get(std::string_view path, std::string_view fields = "") const {
    return Connect().Get(path, fields);
  }
  TestResponse Post(std::string_view path, std::string_view body,
                    std::string_view fields = "") const {
    return Connect().Post(path, body, fields);
  }

  void Drain() { drain_.request_stop(); }
  void StopNow() { now_.request_stop(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  void Stop() {
    StopNow();
    Join();
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  ServerOptions With(ServerOptions options) {
    options.port = 0;
    if (options.engines.empty()) options.engines = {engine_.endpoint()};
    options.log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
    return options;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::stop_source drain_;
  std::stop_source now_;
  AlphabetEngine engine_;
  Server server_;
  std::thread thread_;
};

// Within a minute.
inline bool Becomes(const std::function<bool()>& holds) { return RunningServer::Becomes(holds); }

inline ReadError ErrorOf(const TestResponse& response) {
  const ReadResponse read = ResponseReader::Whole(response.body);
  EXPECT_TRUE(read.error.has_value()) << response.status << " " << response.body;
  return read.error.value_or(ReadError{});
}

// {"prompt":"c","max_tokens":3,...}
inline std::string Asking(std::string_view prompt, int64_t max_tokens, std::string_view rest = "") {
  return R"({"prompt":")" + std::string(prompt) + R"(","max_tokens":)" +
         std::to_string(max_tokens) + std::string(rest) + "}";
}
inline constexpr std::string_view kStreams = R"(,"stream":true)";

}  // namespace sluice::test
