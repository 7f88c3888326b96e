// Every case of text_cases.h through the schema: as a stream and as a whole response, over an
// engine in this process and one behind a link, the same text, finish, usage, ids and
// log-probabilities.
#include <map>
#include <memory>
#include <thread>

#include "sluice/engine_server.hpp"
#include "tests/link/running_server.h"
#include "tests/link/text_script.h"
#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

std::string Json(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) json += (json.size() > 1 ? "," : "") + JsonText(text);
  return json + "]";
}
std::string Json(const std::vector<int32_t>& ids) {
  std::string json = "[";
  for (const int32_t id : ids) json += (json.size() > 1 ? "," : "") + std::to_string(id);
  return json + "]";
}

std::string Body(const ClientRequest& request, bool streams, bool tells_tokens) {
  std::string body = R"({"prompt":)" + Json(request.prompt);
  body += R"(,"max_tokens":)" + std::to_string(request.max_tokens);
  body += R"(,"min_tokens":)" + std::to_string(request.params.min_tokens);
  body += R"(,"stop_token_ids":)" + Json(request.params.stop_token_ids);
  body += R"(,"stop":)" + Json(request.text.stops);
  if (request.text.include_stop) body += R"(,"include_stop_str_in_output":true)";
  if (!request.text.detokenizer.skip_special_tokens) body += R"(,"skip_special_tokens":false)";
  if (tells_tokens) body += R"(,"logprobs":1,"return_token_ids":true)";
  if (streams) body += R"(,"stream":true,"stream_options":{"include_usage":true})";
  return body + "}";
}

ReadChoice Expected(const TextScript& script, size_t number, bool tells_tokens) {
  const Collected all = script.Expected(number);
  ReadChoice choice;
  choice.text = all.text;
  choice.finish = all.end == GenerationEnd::kLength ? "length" : "stop";
  choice.stop_reason = "null";
  if (!all.stop.empty()) choice.stop_reason = JsonText(all.stop);
  const TextCase& one = script.cases[number];
  const bool is_named = !one.stop_tokens.empty();
  if (all.stop_token >= 0 && is_named) choice.stop_reason = std::to_string(all.stop_token);
  if (all.stop_token >= 0 && one.stops == std::vector{one.stop_token}) {
    choice.stop_reason = JsonText(one.stop_token);
  }
  if (!tells_tokens) return choice;
  for (size_t i = 0; i < all.ids.size(); ++i) {
    choice.ids.push_back(all.ids[i]);
    choice.logprobs.push_back(all.logprobs[i]);
  }
  return choice;
}

void RunAll(Client& client, const ModelText& text, const TextScript& script, bool tells_tokens) {
  Serving serving(client, text);
  struct Asked {
    size_t number;
    FakeExchange* exchange;
  };
  std::vector<Asked> asked;
  for (size_t number = 0; number < script.cases.size(); ++number) {
    // No field of the schema asks for it.
    if (script.cases[number].incomplete == Incomplete::kDrop) continue;
    for (const bool streams : {false, true}) {
      const ClientRequest request = script.Request(number, OutputMode::kDelta);
      asked.push_back({number, &serving.Ask(Body(request, streams, tells_tokens))});
    }
  }
  for (const Asked& one : asked) {
    SCOPED_TRACE(script.cases[one.number].name + (one.exchange->head() ? ", stream" : ", whole"));
    ASSERT_TRUE(serving.Completes(*one.exchange));
    ReadResponse got = Read(*one.exchange);
    ASSERT_FALSE(got.error.has_value()) << got.error->message;
    EXPECT_TRUE(got.is_done);
    const Collected all = script.Expected(one.number);
    ReadChoice& choice = got.choices[0];
    EXPECT_TRUE(std::is_sorted(choice.offsets.begin(), choice.offsets.end()));
    EXPECT_EQ(choice.offsets.size(), choice.logprobs.size());
    choice.offsets.clear();
    for (double& logprob : choice.logprobs) logprob = static_cast<float>(logprob);
    EXPECT_EQ(choice, Expected(script, one.number, tells_tokens));
    EXPECT_EQ(got.usage, (ReadUsage{all.prompt_tokens, all.output_tokens}));
    for (const std::string& delta : choice.deltas) EXPECT_NE(delta, "");
  }
  EXPECT_EQ(serving.completions.live(), 0);
  EXPECT_EQ(serving.completions.counters().choices_running, 0);
}

struct Parts {
  TextScript script;
  ModelText text = ModelText::FromFiles({.tokenizer = ByteLevelTokenizerJson(script.tokens)});
  ScriptRunner runner{
      {.vocab = script.vocab, .tokens = script.script, .max_requests = 64, .burst = 1}};
  Engine engine{runner, text.tokenizer(), {.max_client_requests = 1024}};
  EngineInfo info = script.Info(text.tokenizer());
};

TEST(CompletionTexts, AreThoseOfTheCasesInOneProcess) {
  for (const bool tells_tokens : {false, true}) {
    Parts parts;
    const auto client = MakeLocalClient(parts.engine, parts.info, parts.text.tokenizer());
    RunAll(*client, parts.text, parts.script, tells_tokens);
  }
}

TEST(CompletionTexts, AreThoseOfTheCasesOverALink) {
  for (const StopAt stop_at : {StopAt::kEngine, StopAt::kFrontend}) {
    Parts parts;
    EngineServer server(parts.engine, parts.info, {.listen = LocalEndpoint()});
    std::jthread steps([&](const std::stop_token& stop) { server.Run(stop); });
    const std::string endpoints[] = {server.endpoint()};
    const auto client =
        ConnectClient(endpoints, parts.text.tokenizer(), {.stop_at = stop_at, .credits = 4});
    RunAll(*client, parts.text, parts.script, true);
  }
}

}  // namespace
}  // namespace sluice::test
