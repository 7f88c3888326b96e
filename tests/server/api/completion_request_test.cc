// Bodies of /v1/completions and /v1/chat/completions: every field's good values, and every bad one
// with the words that refuse it.
#include "server/api/request/completion_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/server/api/parsed_json.h"
#include "tests/server/api/refused.h"
#include "tests/text/timing.h"

namespace sluice::server {
namespace {

using test::BadBody;
using test::ParsedJson;

constexpr std::string_view kUser = R"("messages":[{"role":"user","content":"hi"}])";

CompletionRequest Completion(std::string_view fields, const SamplingParams& defaults = {}) {
  const std::string body = std::string("{\"prompt\":\"x\"").append(fields).append("}");
  return ParseCompletionRequest(Api::kCompletions, body, defaults);
}
CompletionRequest Chat(std::string_view fields) {
  const std::string body = std::string("{").append(kUser).append(fields).append("}");
  return ParseCompletionRequest(Api::kChat, body, {});
}
void ExpectBad(Api api, std::string_view fields, const std::string& param,
               const std::string& in_message, const std::string& code = {}) {
  const std::string begin = api == Api::kChat ? std::string(kUser) : "\"prompt\":\"x\"";
  test::ExpectRefused({"{" + begin + std::string(fields) + "}", param, in_message, code},
                      [&](std::string_view body) { ParseCompletionRequest(api, body, {}); });
}
void ExpectBadBody(Api api, const BadBody& bad) {
  test::ExpectRefused(bad, [&](std::string_view body) { ParseCompletionRequest(api, body, {}); });
}

TEST(CompletionRequest, HasTheDefaultsOfItsApi) {
  const SamplingParams defaults{.temperature = 0.6f, .top_k = 20};
  const CompletionRequest request = Completion("", defaults);
  EXPECT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(request.prompts[0].text, "x");
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.streams);
  EXPECT_EQ(request.params, defaults);
  EXPECT_EQ(request.text, TextOptions{});
  EXPECT_EQ(request.max_tokens, std::nullopt);
  EXPECT_EQ(request.logprobs, std::nullopt);
  EXPECT_TRUE(request.adds_special_tokens);
  EXPECT_TRUE(request.unknown.empty());
  EXPECT_FALSE(Chat("").adds_special_tokens);
}

TEST(CompletionRequest, ReadsEveryFieldThatBothHave) {
  const std::string_view fields = R"(, "model":"m", "n":3, "stream":true,
      "stream_options":{"include_usage":true,"continuous_usage_stats":true,"other":[1]},
      "stop":["END","é"], "max_tokens":7, "temperature":0.5, "top_p":0.9, "top_k":40, "min_p":0.1,
      "repetition_penalty":1.1, "presence_penalty":-2, "frequency_penalty":2, "min_tokens":2,
      "logit_bias":{"5":-100,"6":1.5}, "seed":7, "ignore_eos":true, "stop_token_ids":[1,2],
      "include_stop_str_in_output":true, "skip_special_tokens":false,
      "spaces_between_special_tokens":false, "return_token_ids":true, "stream_interval":4,
      "user":"someone", "metadata":{"a":[{}]}, "add_special_tokens":true)";
  for (const CompletionRequest& request : {Completion(fields), Chat(fields)}) {
    EXPECT_EQ(request.model, "m");
    EXPECT_EQ(request.n, 3);
    EXPECT_TRUE(request.streams && request.includes_usage && request.continuous_usage);
    EXPECT_EQ(request.text.stops, (std::vector<std::string>{"END", "é"}));
    EXPECT_EQ(request.max_tokens, 7);
    EXPECT_EQ(request.params.temperature, 0.5f);
    EXPECT_EQ(request.params.top_p, 0.9f);
    EXPECT_EQ(request.params.top_k, 40);
    EXPECT_EQ(request.params.min_p, 0.1f);
    EXPECT_EQ(request.params.repetition_penalty, 1.1f);
    EXPECT_EQ(request.params.presence_penalty, -2.0f);
    EXPECT_EQ(request.params.frequency_penalty, 2.0f);
    EXPECT_EQ(request.params.min_tokens, 2);
    EXPECT_EQ(request.params.logit_bias, (BiasEntries{{5, -100.0f}, {6, 1.5f}}));
    EXPECT_EQ(request.params.seed, 7u);
    EXPECT_EQ(request.params.stop_token_ids, (TokenIds{1, 2}));
    EXPECT_TRUE(request.ignores_end);
    EXPECT_TRUE(request.text.include_stop);
    EXPECT_FALSE(request.text.detokenizer.skip_special_tokens);
    EXPECT_FALSE(request.text.detokenizer.spaces_between_special_tokens);
    EXPECT_TRUE(request.returns_token_ids);
    EXPECT_TRUE(request.adds_special_tokens);
    EXPECT_EQ(request.stream_interval, 4);
    EXPECT_TRUE(request.unknown.empty());
  }
}

TEST(CompletionRequest, APromptIsATextOrIdsOrAListOfEither) {
  const auto prompts = [](std::string_view json) {
    const std::string body = std::string("{\"prompt\":").append(json).append("}");
    return ParseCompletionRequest(Api::kCompletions, body, {}).prompts;
  };
  EXPECT_EQ(prompts(R"("")")[0].text, "");
  const auto texts = prompts(R"(["a","\ud83d\ude00"])");
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].text, "😀");
  EXPECT_FALSE(texts[0].is_ids);
  const auto ids = prompts("[1, 2147483647 ,3.0]");
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_TRUE(ids[0].is_ids);
  EXPECT_EQ(ids[0].ids, (std::vector<int32_t>{1, 2147483647, 3}));
  const auto lists = prompts("[[1],[2,3]]");
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_EQ(lists[1].ids, (std::vector<int32_t>{2, 3}));
  for (const std::string bad : {"[]", "[[]]", "[[1],[]]", "[1,\"a\"]", "[\"a\",1]", "[{}]",
                                "[true]", "{}", "3", "false", "[1,[2]]"}) {
    ExpectBadBody(Api::kCompletions, {"{\"prompt\":" + bad + "}", "prompt", "prompt"});
  }
  ExpectBadBody(Api::kCompletions, {"{\"prompt\":[-1]}", "prompt", "[0, 2147483647]"});
  ExpectBadBody(Api::kCompletions, {"{\"prompt\":[1.5]}", "prompt", "a whole number"});
  ExpectBadBody(Api::kCompletions, {"{\"prompt\":[2147483648]}", "prompt", "[0, 2147483647]"});
  ExpectBadBody(Api::kCompletions, {"{}", "prompt", "missing prompt: "});
  ExpectBadBody(Api::kCompletions, {"{\"prompt\":null}", "prompt", "missing prompt: "});
  ExpectBadBody(Api::kChat, {"{}", "messages", "missing messages: "});
  std::string many = "\"a\"";
  for (int i = 1; i < 128; ++i) many.append(",\"a\"");
  EXPECT_EQ(prompts("[" + many + "]").size(), 128u);
  ExpectBadBody(Api::kCompletions,
                {"{\"prompt\":[" + many + ",\"a\"]}", "prompt", "at most 128 prompts"});
  ExpectBadBody(Api::kCompletions, {"{\"n\":2,\"prompt\":[" + many + "]}", "n", "at most 128"});
}

TEST(CompletionRequest, NamesTheFieldAndItsRangeInBoth) {
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    ExpectBad(api, ",\"temperature\":-0.1", "temperature", "[0, 2]");
    ExpectBad(api, ",\"temperature\":2.01", "temperature", "[0, 2]");
    ExpectBad(api, ",\"temperature\":\"1\"", "temperature", "[0, 2]");
    ExpectBad(api, ",\"top_p\":0", "top_p", "(0, 1]");
    ExpectBad(api, ",\"top_p\":1.1", "top_p", "(0, 1]");
    ExpectBad(api, ",\"top_k\":-2", "top_k", "[-1, 2147483647]");
    ExpectBad(api, ",\"min_p\":2", "min_p", "[0, 1]");
    ExpectBad(api, ",\"repetition_penalty\":0", "repetition_penalty", "(0, ");
    ExpectBad(api, ",\"presence_penalty\":3", "presence_penalty", "[-2, 2]");
    ExpectBad(api, ",\"frequency_penalty\":-3", "frequency_penalty", "[-2, 2]");
    ExpectBad(api, ",\"n\":0", "n", "[1, 128]");
    ExpectBad(api, ",\"n\":129", "n", "[1, 128]");
    ExpectBad(api, ",\"n\":1.5", "n", "whole");
    ExpectBad(api, ",\"n\":\"1\"", "n", "whole");
    ExpectBad(api, ",\"stream\":1", "stream", "true or false");
    ExpectBad(api, ",\"stream\":\"true\"", "stream", "true or false");
    ExpectBad(api, ",\"stream_options\":{}", "stream_options", "stream");
    ExpectBad(api, ",\"stream\":false,\"stream_options\":{}", "stream_options", "stream");
    ExpectBad(api, ",\"stream\":true,\"stream_options\":true", "stream_options", "object");
    ExpectBad(api, R"(,"stream":true,"stream_options":{"include_usage":1})",
              "stream_options.include_usage", "true or false");
    ExpectBad(api, ",\"max_tokens\":-1", "max_tokens", "[0, 2147483647]");
    ExpectBad(api, ",\"max_tokens\":0", "max_tokens", "1 or more");
    ExpectBad(api, ",\"max_completion_tokens\":0", "max_completion_tokens", "1 or more");
    ExpectBad(api, ",\"max_tokens\":\"5\"", "max_tokens", "whole");
    ExpectBad(api, ",\"max_tokens\":2,\"min_tokens\":3", "min_tokens", "at most max_tokens");
    ExpectBad(api, ",\"min_tokens\":-1", "min_tokens", "[0, 2147483647]");
    ExpectBad(api, ",\"model\":7", "model", "a text");
    ExpectBad(api, ",\"seed\":1.5", "seed", "whole");
    ExpectBad(api, ",\"seed\":\"1\"", "seed", "whole");
    ExpectBad(api, ",\"seed\":18446744073709551616", "seed", "[0, 18446744073709551615]");
    ExpectBad(api, ",\"logit_bias\":{\"x\":1}", "logit_bias", "as a key");
    ExpectBad(api, ",\"logit_bias\":{\"1\":\"x\"}", "logit_bias", "a number");
    ExpectBad(api, ",\"logit_bias\":\"1\"", "logit_bias", "an object");
    ExpectBad(api, ",\"stop_token_ids\":[\"a\"]", "stop_token_ids", "whole");
    ExpectBad(api, ",\"ignore_eos\":0", "ignore_eos", "true or false");
    ExpectBad(api, ",\"skip_special_tokens\":\"no\"", "skip_special_tokens", "true or false");
    ExpectBad(api, ",\"stream_interval\":0", "stream_interval", "[1, 2147483647]");
    ExpectBad(api, ",\"prompt_logprobs\":21", "prompt_logprobs", "[0, 20]");
    ExpectBad(api, ",\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs", "stream");
    ExpectBad(api, ",\"prompt_logprobs\":1,\"echo\":true", "prompt_logprobs", "echo is true");
    ExpectBad(api, ",\"add_special_tokens\":1", "add_special_tokens", "true or false");
    ExpectBad(api, ",\"return_token_ids\":1", "return_token_ids", "true or false");
  }
}

TEST(CompletionRequest, StopsAreShortTextsAndFew) {
  EXPECT_EQ(Completion(",\"stop\":\"a\"").text.stops, std::vector<std::string>{"a"});
  EXPECT_TRUE(Completion(",\"stop\":[]").text.stops.empty());
  EXPECT_TRUE(Completion(",\"stop\":null").text.stops.empty());
  const std::string longest(1024, 'x');
  EXPECT_EQ(Completion(",\"stop\":\"" + longest + "\"").text.stops[0], longest);
  std::string most = "\"a\"";
  for (int i = 1; i < 16; ++i) most.append(",\"a\"");
  EXPECT_EQ(Completion(",\"stop\":[" + most + "]").text.stops.size(), 16u);
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    ExpectBad(api, ",\"stop\":\"\"", "stop", "an empty text");
    ExpectBad(api, ",\"stop\":[\"a\",\"\"]", "stop", "an empty text");
    ExpectBad(api, ",\"stop\":[1]", "stop", "a text");
    ExpectBad(api, ",\"stop\":7", "stop", "a text or a list of texts");
    ExpectBad(api, ",\"stop\":[" + most + ",\"b\"]", "stop",
              "stop = a list of more than 16 texts is not allowed: at most 16 texts");
    ExpectBad(api, ",\"stop\":\"" + longest + "y\"", "stop", "1024 bytes");
    ExpectBad(api, ",\"stop\":\"" + std::string(1 << 20, 'y') + "\"", "stop", "1048576 bytes");
  }
}

TEST(CompletionRequest, ASeedMayBeAnyOf64BitsAndMinusOneIsNone) {
  EXPECT_EQ(Completion(",\"seed\":0").params.seed, 0u);
  EXPECT_EQ(Completion(",\"seed\":18446744073709551615").params.seed, UINT64_MAX);
  EXPECT_EQ(Completion(",\"seed\":7.0").params.seed, 7u);
  EXPECT_EQ(Completion(",\"seed\":-1", {.seed = 3}).params.seed, std::nullopt);
  EXPECT_EQ(Completion(",\"seed\":null", {.seed = 3}).params.seed, 3u);
  for (const std::string bad : {"-2", "-1.5", "-9223372036854775808"}) {
    ExpectBad(Api::kChat, ",\"seed\":" + bad, "seed", "seed = " + bad);
    ExpectBad(Api::kCompletions, ",\"seed\":" + bad, "seed", "-1 for none");
  }
}

TEST(CompletionRequest, LogprobsAreANumberOrForChatsASwitch) {
  EXPECT_EQ(Completion(",\"logprobs\":0").logprobs, 0);
  EXPECT_EQ(Completion(",\"logprobs\":20").params.logprobs, 20);
  EXPECT_EQ(Completion("", {.logprobs = 5}).params.logprobs, std::nullopt);
  EXPECT_EQ(Chat(",\"logprobs\":true").logprobs, 0);
  EXPECT_EQ(Chat(",\"top_logprobs\":20,\"logprobs\":true").params.logprobs, 20);
  EXPECT_EQ(Chat(",\"logprobs\":false").logprobs, std::nullopt);
  ExpectBad(Api::kCompletions, ",\"logprobs\":21", "logprobs", "[0, 20]");
  ExpectBad(Api::kCompletions, ",\"logprobs\":-1", "logprobs", "[0, 20]");
  ExpectBad(Api::kCompletions, ",\"logprobs\":true", "logprobs", "whole");
  ExpectBad(Api::kChat, ",\"logprobs\":1", "logprobs", "true or false");
  ExpectBad(Api::kChat, ",\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "[0, 20]");
  ExpectBad(Api::kChat, ",\"top_logprobs\":2", "top_logprobs", "logprobs: true");
  ExpectBad(Api::kChat, ",\"top_logprobs\":2,\"logprobs\":false", "top_logprobs", "logprobs: true");
}

TEST(CompletionRequest, EchoAllowsNoTokensAndGivesThePromptsLogprobs) {
  const CompletionRequest request = Completion(",\"echo\":true,\"max_tokens\":0,\"logprobs\":2");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_EQ(request.prompt_logprobs, 2);
  EXPECT_EQ(Completion(",\"echo\":true").prompt_logprobs, std::nullopt);
  EXPECT_EQ(Completion(",\"prompt_logprobs\":3").prompt_logprobs, 3);
  EXPECT_EQ(Completion(",\"echo\":true,\"logprobs\":1,\"stream\":true").prompt_logprobs, 1);
  ExpectBad(Api::kChat, ",\"echo\":true", "echo", "chats");
  EXPECT_FALSE(Chat(",\"echo\":false").echo);
}

TEST(CompletionRequest, MaxCompletionTokensComesFirst) {
  EXPECT_EQ(Chat(",\"max_completion_tokens\":5,\"max_tokens\":9").max_tokens, 5);
  EXPECT_EQ(Completion(",\"max_completion_tokens\":5").max_tokens, 5);
  EXPECT_EQ(Chat(",\"max_tokens\":null").max_tokens, std::nullopt);
}

TEST(CompletionRequest, BestOfIsN) {
  EXPECT_EQ(Completion(",\"best_of\":2,\"n\":2").n, 2);
  EXPECT_EQ(Completion(",\"best_of\":1").n, 1);
  ExpectBad(Api::kCompletions, ",\"best_of\":2", "best_of", "the same as n");
  ExpectBad(Api::kCompletions, ",\"best_of\":1,\"n\":2", "best_of", "the same as n");
  ExpectBad(Api::kCompletions, ",\"best_of\":0", "best_of", "[1, 128]");
}

TEST(CompletionRequest, WhatWouldChangeTheAnswerAndIsNotDoneIsRefusedByName) {
  struct {
    const char* field;
    const char* asks;
    const char* asks_nothing;
  } const cases[] = {
      {"adaptive_target", "0.5", "-1.0"},
      {"custom_logit_processor", R"("x")", "null"},
      {"input_embeds", "[[0.5]]", "null"},
      {"input_ids", "[1]", "[]"},
      {"no_stop_trim", "true", "false"},
      {"reasoning_budget_message", R"("Enough.")", R"("")"},
      {"repetition_detection", R"({"max_pattern_size":3})", "null"},
      {"return_hidden_states", "true", "false"},
      {"return_logprob", "true", "false"},
      {"session_params", R"({"id":"x"})", "null"},
      {"stop_regex", R"("a+")", "[]"},
      {"suffix", R"("x")", R"("")"},
      {"functions", "[{}]", "null"},
      {"function_call", R"({"name":"f"})", R"("none")"},
      {"guided_whitespace_pattern", R"("[ ]?")", R"("")"},
      {"logits_processors", "[1]", "[]"},
      {"use_beam_search", "true", "false"},
      {"prompt_embeds", "\"AAAA\"", "null"},
      {"chat_template", "\"{{x}}\"", "null"},
      {"bad_words", "[\"a\"]", "[]"},
      {"audio", "{\"voice\":\"x\"}", "null"},
      {"modalities", "[\"text\",\"audio\"]", "[\"text\"]"},
      {"return_tokens_as_token_ids", "true", "false"},
      {"documents", "[{}]", "[]"},
      {"early_stopping", "true", "false"},
      {"grammar_lazy", "true", "false"},
      {"length_penalty", "1.1", "1.0"},
      {"lora", R"([{"id":0,"scale":1}])", "[]"},
      {"lora_request", R"({"lora_name":"a"})", "null"},
      {"min_keep", "1", "0"},
      {"mirostat", "2", "0"},
      {"n_predict", "5", "null"},
      {"n_probs", "3", "0"},
      {"reasoning", R"({"effort":"high"})", R"({"effort":"none"})"},
      {"reasoning_effort", R"("low")", R"("none")"},
      {"repeat_last_n", "64", "-1"},
      {"repeat_penalty", "1.2", "1"},
      {"samplers", R"(["top_k"])", "[]"},
      {"stop_sequences", R"(["a"])", "[]"},
      {"tfs_z", "0.9", "1"},
      {"thinking", R"({"type":"adaptive"})", R"({"type":"disabled"})"},
      {"thinking", "true", "false"},
      {"verbosity", R"("high")", R"("medium")"},
      {"vllm_xargs", R"({"a":1})", "{}"},
      {"web_search_options", "{}", "null"},
  };
  for (const Api api : {Api::kCompletions, Api::kChat}) {
    for (const auto& c : cases) {
      const std::string field = std::string(",\"") + c.field + "\":";
      ExpectBad(api, field + c.asks, c.field,
                std::string(c.field) + " is not supported: ", "unsupported_parameter");
      const std::string taken = field + c.asks_nothing;
      const CompletionRequest request = api == Api::kChat ? Chat(taken) : Completion(taken);
      EXPECT_TRUE(request.unknown.empty()) << taken;
    }
  }
}

TEST(CompletionRequest, ABudgetOfReasoningHasTheNamesOfOtherServers) {
  const std::string fields[] = {"thinking_token_budget", "thinking_budget",
                                "thinking_budget_tokens", "reasoning_budget",
                                "reasoning_budget_tokens"};
  for (const std::string& name : fields) {
    const std::string field = ",\"" + name + "\":";
    EXPECT_EQ(Chat(field + "7").thinking_tokens, 7);
    EXPECT_EQ(Chat(field + "0").thinking_field, name);
    EXPECT_EQ(Chat(field + "-1").thinking_tokens, -1);
    EXPECT_EQ(Chat(field + "null").thinking_tokens, std::nullopt);
    ExpectBad(Api::kChat, field + "-2", name, "[-1, 2147483647]");
    ExpectBad(Api::kCompletions, field + "7", name, "is for chats", "unsupported_parameter");
    EXPECT_EQ(Completion(field + "-1").thinking_tokens, std::nullopt);
  }
  const CompletionRequest router = Chat(R"(,"reasoning":{"max_tokens":9,"exclude":true})");
  EXPECT_EQ(router.thinking_tokens, 9);
  EXPECT_EQ(router.thinking_field, "reasoning.max_tokens");
  EXPECT_FALSE(router.tools.includes_reasoning);
  EXPECT_EQ(router.chat_variables.find("thinking"), std::string::npos);
  for (const std::string none :
       {R"("reasoning":{"enabled":false})", R"("reasoning":{"effort":"none"})",
        R"("reasoning":false)", R"("thinking":{"type":"disabled"})", R"("thinking":false)"}) {
    EXPECT_NE(Chat("," + none).chat_variables.find(R"("enable_thinking":false,"thinking":false)"),
              std::string::npos)
        << none;
  }
  EXPECT_NE(Chat(R"(,"reasoning":{"enabled":true})").chat_variables.find(R"("thinking":true)"),
            std::string::npos);
  EXPECT_EQ(Chat(R"(,"thinking":{"type":"enabled","budget_tokens":5})").thinking_tokens, 5);
  EXPECT_EQ(Chat(R"(,"thinking_budget":5,"reasoning":{"max_tokens":5})").thinking_tokens, 5);
  ExpectBad(Api::kChat, R"(,"thinking_budget":5,"thinking_token_budget":6)",
            "thinking_token_budget", "the same as thinking_budget");
  ExpectBad(Api::kChat, R"(,"reasoning":{"max_tokens":-1})", "reasoning.max_tokens",
            "[0, 2147483647]");
  ExpectBad(Api::kChat, R"(,"thinking":{"type":"enabled"})", "thinking", "budget_tokens",
            "unsupported_parameter");
}

// Of prompts that are no chats.
TEST(CompletionRequest, ToolsAreForChats) {
  for (const char* const field : {"\"tools\":[{}]", "\"tool_choice\":\"required\""}) {
    const std::string name = std::string(field).substr(1, std::string(field).find(':') - 2);
    ExpectBad(Api::kCompletions, std::string(",") + field, name,
              name + " is not supported: chats have tools and tool_choice",
              "unsupported_parameter");
  }
  EXPECT_TRUE(Completion(",\"tools\":[],\"tool_choice\":\"auto\"").unknown.empty());
}

TEST(CompletionRequest, WhatIsNotSupportedNamesWhatDoesIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"n_predict\":5", "n_predict is not supported: max_tokens does it"},
      {"\"repeat_penalty\":1.2", "repeat_penalty is not supported: repetition_penalty does it"},
      {"\"stop_sequences\":[\"a\"]", "stop_sequences is not supported: stop does it"}};
  for (const auto& [field, message] : cases) {
    const std::string name = std::string(field).substr(1, std::string(field).find(':') - 2);
    ExpectBad(Api::kChat, std::string(",") + field, name, message, "unsupported_parameter");
  }
}

TEST(CompletionRequest, AHintNamesAFieldOfTheRequestsOwnApi) {
  struct {
    const char* field;
    const char* hints[4];  // of completions, chats, messages, responses; null: it has the field
  } const cases[] = {
      {R"("n_predict":5)",
       {"max_tokens does", "max_tokens does", "max_tokens does", "max_output_tokens does"}},
      {R"("functions":[{}])",
       {"chats have tools", "tools and tool_choice do", "tools and tool_choice do",
        "tools and tool_choice do"}},
      {R"("stop_regex":"a")", {"stop does", "stop does", "stop_sequences does", "stop does"}},
      {R"("return_logprob":true)",
       {"logprobs does", "logprobs does", "/v1/chat/completions gives",
        "/v1/chat/completions gives"}},
      {R"("input_ids":[1])",
       {"prompt takes", "prompt of /v1/completions", "prompt of /v1/completions",
        "prompt of /v1/completions"}},
      {R"("reasoning_effort":"low")",
       {"chats have", "chat_template_kwargs has", "output_config.effort does",
        "reasoning.effort does"}},
      {R"("thinking_budget":5)",
       {"is for chats", nullptr, "thinking.budget_tokens does", "for /v1/chat/completions"}},
      {R"("system":"s")", {"the whole text", "the role system", nullptr, "instructions does"}},
      {R"("instructions":"s")", {"the whole text", "the role system", "system does", nullptr}},
      {R"("text":{"format":{"type":"json_object"}})",
       {"response_format does", "response_format does", "output_config.format does", nullptr}},
      {R"("output_config":{"effort":"low"})",
       {"response_format does", "response_format does", nullptr, "text.format does"}},
      {R"("input":"x")", {"/v1/responses", "/v1/responses", "/v1/responses", nullptr}},
      {R"("previous_response_id":"r")",
       {"nothing is stored", "nothing is stored", "nothing is stored", "nothing is stored"}},
  };
  constexpr Api kApis[] = {Api::kCompletions, Api::kChat, Api::kMessages, Api::kResponses};
  constexpr const char* kHeads[] = {
      R"("prompt":"x")", R"("messages":[{"role":"user","content":"a"}])",
      R"("max_tokens":5,"messages":[{"role":"user","content":"a"}])", R"("input":"x")"};
  for (const auto& c : cases) {
    const std::string field = c.field;
    const std::string name = field.substr(1, field.find(':') - 2);
    for (size_t i = 0; i < 4; ++i) {
      if (c.hints[i] == nullptr) continue;
      test::ExpectRefused(
          {"{" + field + "," + kHeads[i] + "}", name, c.hints[i], "unsupported_parameter"},
          [&](std::string_view body) { ParseCompletionRequest(kApis[i], body, {}); });
    }
  }
}

TEST(CompletionRequest, UnknownFieldsAreRefusedWhereTheServerIsStrict) {
  const RequestLimits strict{.refuses_unknown = true};
  const auto refusal = [&](Api api, const std::string& fields) {
    const std::string begin = api == Api::kChat ? std::string(kUser) : "\"prompt\":\"x\"";
    return test::RefusalOf(
        [&] { ParseCompletionRequest(api, "{" + begin + fields + "}", {}, strict); });
  };
  const ApiError typo = refusal(Api::kChat, ",\"temprature\":0.5");
  EXPECT_EQ(typo.status, 400);
  EXPECT_EQ(typo.message, "temprature is not a field of this request; did you mean temperature?");
  EXPECT_EQ(typo.param, "temprature");
  EXPECT_EQ(typo.code, "unknown_parameter");
  EXPECT_EQ(refusal(Api::kCompletions, ",\"cache_prompt\":true,\"x\":1").message,
            "cache_prompt is not a field of this request; the others are x");
  EXPECT_EQ(refusal(Api::kCompletions, ",\"max_tokesn\":1").message,
            "max_tokesn is not a field of this request; did you mean max_tokens?");
  EXPECT_EQ(refusal(Api::kChat, ",\"best_off\":1").message,
            "best_off is not a field of this request");
  EXPECT_NO_THROW(ParseCompletionRequest(
      Api::kChat, "{" + std::string(kUser) + R"(,"user":"u","top_k":3,"tools":[]})", {}, strict));
}

TEST(CompletionRequest, SpecialTokensOfPromptsAreTextUnlessTheRequestSaysSo) {
  EXPECT_FALSE(Completion("").parses_special_tokens);
  EXPECT_TRUE(Completion(",\"parse_special_tokens\":true").parses_special_tokens);
  EXPECT_TRUE(Chat("").parses_special_tokens);
  ExpectBad(Api::kChat, ",\"parse_special_tokens\":false", "parse_special_tokens", "templates");
  ExpectBad(Api::kCompletions, ",\"parse_special_tokens\":1", "parse_special_tokens", "true or");
}

TEST(CompletionRequest, UnknownFieldsAreIgnoredAndListedOnce) {
  const CompletionRequest request =
      Completion(R"(,"foo":1,"top_logprobs":[],"foo":{"a":[null]},"é":0)");
  EXPECT_EQ(request.unknown, (std::vector<std::string>{"foo", "top_logprobs", "é"}));
  EXPECT_EQ(Chat(R"(,"Prompt":3,"best_off":"x")").unknown,
            (std::vector<std::string>{"Prompt", "best_off"}));
  EXPECT_TRUE(Chat(R"(,"prompt":null,"best_of":1)").unknown.empty());
  std::string many;
  for (int i = 0; i < 1000; ++i) many.append(",\"f" + std::to_string(i) + "\":0");
  EXPECT_EQ(Completion(many).unknown.size(), 64u);
}

TEST(CompletionRequest, OfAFieldThatComesTwiceTheFirstOneCounts) {
  EXPECT_EQ(Completion(",\"n\":1,\"n\":2").n, 1);
  EXPECT_EQ(Completion(",\"n\":2,\"n\":\"x\"").n, 2);
  EXPECT_EQ(Completion(",\"n\":null,\"n\":2").n, 1);
  EXPECT_EQ(Completion(",\"top_k\":5,\"top_k\":6").params.top_k, 5);
  EXPECT_EQ(Completion(",\"prompt\":[1]").prompts[0].text, "x");
  EXPECT_EQ(
      Completion(R"(,"stream":true,"stream_options":{"include_usage":true,"include_usage":0})")
          .includes_usage,
      true);
}

TEST(CompletionRequest, WhatIsNoJsonObjectIsAParseErrorThatNamesWhereItWasFound) {
  const std::string code = "json_parse_error";
  const std::string prompt = "{\"prompt\":\"x\",";
  const BadBody cases[] = {
      {"", "", "the body is refused", code},
      {" ", "", "the body is refused", code},
      {"[]", "", "no object", code},
      {"[1,2]", "", "no object", code},
      {"7", "", "no object", code},
      {"null", "", "no object", code},
      {"\"a\"", "", "no object", code},
      {"{\"model\":", "", "malformed", code},
      {"{\"model\"", "", "malformed", code},
      {"{", "", "malformed", code},
      {"{\"prompt\":\"x\"", "", "malformed", code},
      {"{\"prompt\":\"x\"}}", "", "after the object", code},
      {"{\"prompt\":\"x\"} x", "", "malformed", code},
      {"{\"prompt\":\"x\",}", "", "malformed", code},
      {"{\"prompt\":\"x\" \"n\":1}", "", "malformed", code},
      {"{\"prompt\":\"a\xff\"}", "", "malformed", code},
      {"{\"prompt\":\"\xed\xa0\x80\"}", "", "malformed", code},
      {"{\"prompt\":\"a\nb\"}", "", "malformed", code},
      {"{\"prompt\":\"\\ud800\"}", "prompt", "malformed", code},
      {"{\"prompt\":\"\\ud800\\u0041\"}", "prompt", "malformed", code},
      {"{\"prompt\":\"\\udc00\"}", "prompt", "malformed", code},
      {"{\"prompt\":\"\\x41\"}", "prompt", "malformed", code},
      {prompt + "\"foo\":\"\\udc00\"}", "foo", "malformed", code},
      {prompt + "\"foo\":[nul]}", "foo", "malformed", code},
      {prompt + "\"foo\":01}", "foo", "malformed", code},
      {prompt + "\"foo\":NaN}", "foo", "malformed", code},
      {prompt + "\"temperature\":NaN}", "temperature", "malformed", code},
      {prompt + "\"temperature\":Infinity}", "temperature", "malformed", code},
      {prompt + "\"stream\":tru}", "stream", "malformed", code},
      {"\xef\xbb\xbf{\"prompt\":\"x\"}", "", "the body is refused", code},
  };
  for (const BadBody& bad : cases) ExpectBadBody(Api::kCompletions, bad);
}

// Each body has 100,000 brackets.
TEST(CompletionRequest, DeepNestingIsRefusedInNoTime) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_NO_THROW(Completion(",\"foo\":" + nested(60)));
  ExpectBad(Api::kCompletions, ",\"foo\":" + nested(70), "foo", "64 levels", "json_parse_error");
  for (const std::string& deep : {nested(100'000), std::string(100'000, '[')}) {
    const std::pair<Api, BadBody> bodies[] = {
        {Api::kCompletions, {deep, "", "the body is refused", "json_parse_error"}},
        {Api::kChat, {"{\"messages\":" + deep + "}", "messages[0]", "an object"}},
        {Api::kChat, {"{\"foo\":" + deep + "}", "foo", "64 levels", "json_parse_error"}}};
    for (const auto& [api, bad] : bodies) {
      // A hundred times what it takes; a reader that looks at each bracket's rest takes seconds.
      EXPECT_TRUE(test::EndsWithin(0.1, [&api = api, &bad = bad] { ExpectBadBody(api, bad); }))
          << bad.param;
    }
  }
}

}  // namespace
}  // namespace sluice::server
