// An engine and its frontend in one program, with ZeroMQ between them.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sluice/client.hpp>
#include <sluice/default_model.hpp>
#include <sluice/engine_server.hpp>
#include <sluice/model_runner.hpp>
#include <sluice/version.hpp>
#include <thread>

int main(int argc, char** argv) {
  if (argc != 2 || std::strcmp(argv[1], sluice::kVersionString.data()) != 0) return 1;
  const auto checkpoint = sluice::Checkpoint::FromFiles(sluice::DefaultModelFiles());
  const sluice::Tokenizer& tokenizer = checkpoint.tokenizer();
  sluice::ModelRunner runner(checkpoint, {.max_requests = 2});
  sluice::Engine engine(runner, tokenizer);
  sluice::EngineServer server(
      engine,
      {.model = "default", .tokenizer_hash = sluice::TokenizerHash(tokenizer), .has_text = true});
  const std::jthread serving([&](std::stop_token stop) { server.Run(stop); });
  const auto client = sluice::ConnectClient({&server.endpoint(), 1}, tokenizer);
  client->Submit({.prompt = tokenizer.Encode("Once upon a time"), .max_tokens = 8});
  std::string text;
  while (client->live_requests() > 0) {
    for (const auto& output : client->Poll(std::chrono::seconds(1))) text += output.text;
  }
  std::puts(text.c_str());
  return text.empty() ? 1 : 0;
}
