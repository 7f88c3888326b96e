// One engine over a runner that checks what it is asked, and its one client.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"

namespace sluice::test {

inline void ExpectSame(const Received& received, const Received& expected) {
  EXPECT_EQ(received.ids, expected.ids);
  EXPECT_EQ(received.end, expected.end) << Name(received.end) << ": " << received.message;
  EXPECT_EQ(received.status, expected.status);
}

struct OneClient {
  explicit OneClient(CheckingOptions with = {}, EngineOptions engine_options = {})
      : options(std::move(with)),
        runner(options),
        engine(runner, std::nullopt, engine_options),
        client(engine, engine.options().max_client_requests) {}

  const Received& Run(EngineRequest request) {
    const RequestAddress address = client.Submit(std::move(request));
    Drain(engine, {&client});
    return client.Of(address);
  }

  CheckingOptions options;
  CheckingRunner runner;
  Engine engine;
  EngineClient client;
};

}  // namespace sluice::test
