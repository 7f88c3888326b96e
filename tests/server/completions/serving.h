// Completions over some client, and the exchanges that a test begins.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include "server/completions.h"
#include "sluice/engine.hpp"
#include "sluice/script_runner.hpp"
#include "tests/server/completions/fake_client.h"
#include "tests/server/completions/fake_exchange.h"
#include "tests/server/completions/responses.h"
#include "tests/server/letters_text.h"

namespace sluice::test {

using server::Api;
using std::chrono::milliseconds;

inline server::CompletionSettings SettingsOfTests() {
  server::CompletionSettings settings;
  settings.model_names = {"letters", "alias"};
  return settings;
}

class Serving {
 public:
  Serving(Client& client, const ModelText& text,
          const server::CompletionSettings& settings = SettingsOfTests())
      : completions(client, text, settings, pool, loop.get_executor()) {}

  FakeExchange& Ask(std::string_view body, Api api = Api::kCompletions, uint64_t group = 0) {
    exchanges_.emplace_back(body);
    FakeExchange& exchange = exchanges_.back();
    exchange.its_group = group;
    exchange.answer = completions.Begin(exchange, api);
    EXPECT_EQ(exchange.answer == nullptr, exchange.response().has_value());
    return exchange;
  }
  void Poll() {
    loop.restart();
    loop.poll();
    completions.Poll();
  }
  // Within ten seconds.
  template <typename F>
  bool Becomes(F is_so) {
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(10'000);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      Poll();
    }
    return true;
  }
  bool Completes(const FakeExchange& exchange) {
    return Becomes([&] { return exchange.is_complete(); });
  }
  void Tick(milliseconds from_now) {
    completions.Tick(std::chrono::steady_clock::now() + from_now);
  }
  std::deque<FakeExchange>& exchanges() { return exchanges_; }

  boost::asio::io_context loop;
  server::EncodePool pool{1};
  server::Completions completions;

 private:
  std::deque<FakeExchange> exchanges_;  // behind what their answers belong to: gone before it
};

// Outputs that a test makes up.
struct FakeServing {
  struct EngineHas {
    bool has_grammars;
  };
  explicit FakeServing(const server::CompletionSettings& settings = SettingsOfTests(),
                       EngineHas engine = {false})
      : client(With(engine, InfoOf(text.tokenizer())), text.tokenizer()),
        serving(client, text, settings) {}

  static EngineInfo With(EngineHas engine, EngineInfo info) {
    info.has_grammars = engine.has_grammars;
    return info;
  }

  FakeExchange& Ask(std::string_view body, Api api = Api::kCompletions) {
    return serving.Ask(body, api);
  }
  void Poll() { serving.Poll(); }

  ModelText text = LettersText();
  FakeClient client;
  Serving serving;
};

// An engine in this process that repeats the prompt.
struct EchoServing {
  explicit EchoServing(const server::CompletionSettings& settings = SettingsOfTests(),
                       ModelText its_text = LettersText())
      : text(std::move(its_text)) {
    EngineInfo info = InfoOf(text.tokenizer());
    info.end_tokens = {};
    client = MakeLocalClient(engine, info, text.tokenizer());
    serving.emplace(*client, text, settings);
  }
  // Its answer, or an error.
  ReadResponse Answer(std::string_view body, Api api = Api::kCompletions);

  ModelText text;
  ScriptRunner runner{{.vocab = text.tokenizer().size(), .echo = true}};
  Engine engine{runner, text.tokenizer(), {.max_client_requests = 1024}};
  std::unique_ptr<Client> client;
  std::optional<Serving> serving;
};

inline ReadResponse Read(const FakeExchange& exchange) {
  return exchange.response().has_value() ? ResponseReader::Whole(exchange.response()->body)
                                         : ResponseReader::Stream(exchange.sent());
}

inline ReadResponse EchoServing::Answer(std::string_view body, Api api) {
  const FakeExchange& exchange = serving->Ask(body, api);
  EXPECT_TRUE(serving->Completes(exchange));
  return Read(exchange);
}

}  // namespace sluice::test
