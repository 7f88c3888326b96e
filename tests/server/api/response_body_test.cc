// Whole responses.
#include "server/api/response/response_body.h"

#include <gtest/gtest.h>

#include "tests/server/api/parsed_json.h"
#include "tests/server/api/samples.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

std::string Body(Api api, std::span<const WholeChoice> choices, const Usage& usage = {3, 4}) {
  return test::WithoutVersion(
      CompletionBody(test::SampleHead(api), choices, usage, test::SampleTokenizer()));
}

constexpr std::string_view kHead =
    R"("created":1700000000,"model":"a \"model\"","system_fingerprint":"sluice-VERSION",)"
    R"("seed":18446744073709551615,"choices":[)";
constexpr std::string_view kUsage =
    R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}})";

TEST(ResponseBody, OfAChat) {
  const WholeChoice choices[] = {
      {.content = {.text = "Hi\n"}, .end = {.end = GenerationEnd::kStopToken}},
      {.content = {.index = 1, .text = ""},
       .end = {.index = 1, .end = GenerationEnd::kStopString, .stop = "EN\"D"}}};
  EXPECT_EQ(Body(Api::kChat, choices),
            std::string(R"({"id":"chatcmpl-1","object":"chat.completion",)")
                .append(kHead)
                .append(R"({"index":0,"message":{"role":"assistant","content":"Hi\n"},)"
                        R"("logprobs":null,"finish_reason":"stop","stop_reason":null},)"
                        R"({"index":1,"message":{"role":"assistant","content":""},)"
                        R"("logprobs":null,"finish_reason":"stop","stop_reason":"EN\"D"}],)")
                .append(kUsage));
}

TEST(ResponseBody, OfACompletion) {
  const WholeChoice choices[] = {
      {.content = {.text = "Hi"}, .end = {.end = GenerationEnd::kLength}},
      {.content = {.index = 1, .text = "x"},
       .end = {.index = 1, .end = GenerationEnd::kStopToken, .stop_token = 7}}};
  EXPECT_EQ(Body(Api::kCompletions, choices),
            std::string(R"({"id":"cmpl-1","object":"text_completion",)")
                .append(kHead)
                .append(R"({"index":0,"text":"Hi","logprobs":null,"finish_reason":"length",)"
                        R"("stop_reason":null},{"index":1,"text":"x","logprobs":null,)"
                        R"("finish_reason":"stop","stop_reason":7}],)")
                .append(kUsage));
}

TEST(ResponseBody, EchoPutsThePromptInFrontOfTextAndLogprobs) {
  const std::vector<int32_t> prompt = {test::kHello, test::kWorld};
  const std::vector<float> logprobs = {-2.0f};
  const std::vector<int32_t> output = {test::kLine};
  const WholeChoice choice{
      .echo = {.text = "Hello world", .logprobs = {.ids = prompt, .logprobs = logprobs}},
      .content = {.text = "\n",
                  .logprobs = {.ids = output, .logprobs = logprobs},
                  .text_offset = 11},
      .end = {.end = GenerationEnd::kLength}};
  const ParsedJson json(Body(Api::kCompletions, {&choice, 1}));
  EXPECT_EQ(json.Text("/choices/0/text"), "Hello world\n");
  EXPECT_EQ(json.Json("/choices/0/logprobs/tokens"), R"(["Hello"," world","\n"])");
  EXPECT_EQ(json.Json("/choices/0/logprobs/token_logprobs"), "[null,-2,-2]");
  EXPECT_EQ(json.Json("/choices/0/logprobs/text_offset"), "[0,5,11]");
  EXPECT_FALSE(json.Has("/choices/0/prompt_logprobs"));
}

TEST(ResponseBody, PromptLogprobsAndIdsStandWhereVllmHasThem) {
  const test::SampleLogprobs sample;
  const WholeChoice choice{
      .content = {.text = "Hi", .logprobs = sample.View(), .token_ids = sample.ids},
      .end = {.end = GenerationEnd::kLength},
      .prompt_logprobs = sample.View(),
      .prompt_ids = sample.ids};
  const ParsedJson completion(Body(Api::kCompletions, {&choice, 1}));
  EXPECT_EQ(completion.Json("/choices/0/prompt_token_ids"), "[0,2,5]");
  EXPECT_EQ(completion.Json("/choices/0/token_ids"), "[0,2,5]");
  EXPECT_EQ(completion.Json("/choices/0/prompt_logprobs/0"), "null");
  EXPECT_EQ(completion.Integer("/choices/0/prompt_logprobs/2/2/rank"), 3);
  const ParsedJson chat(Body(Api::kChat, {&choice, 1}));
  EXPECT_EQ(chat.Json("/prompt_token_ids"), "[0,2,5]");
  EXPECT_EQ(chat.Integer("/prompt_logprobs/2/2/rank"), 3);
  EXPECT_EQ(chat.Json("/choices/0/token_ids"), "[0,2,5]");
  EXPECT_FALSE(chat.Has("/choices/0/prompt_token_ids"));
  EXPECT_EQ(chat.Text("/choices/0/logprobs/content/0/token"), "Hello");
}

TEST(ResponseBody, HostileTextsComeBack) {
  const std::string hostile = test::HostileText();
  const WholeChoice choice{.content = {.text = hostile},
                           .end = {.end = GenerationEnd::kStopString, .stop = hostile}};
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    const ParsedJson json(Body(api, {&choice, 1}));
    EXPECT_EQ(json.Text(api == Api::kChat ? "/choices/0/message/content" : "/choices/0/text"),
              hostile);
    EXPECT_EQ(json.Text("/choices/0/stop_reason"), hostile);
  }
}

}  // namespace
}  // namespace sluice::server
