// Calls and reasoning in answers: their shape, streamed and whole, and what the engine gets.
#include <gtest/gtest.h>

#include <set>

#include "tests/server/api/parsed_json.h"
#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

using server::Api;

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
    R"("properties":{"a":{"type":"integer"}}}}},{"type":"function","function":{"name":"g"}}])";

server::CompletionSettings Settings(ToolFormat tools,
                                    ReasoningFormat reasoning = ReasoningFormat::kNone) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.formats = {.tools = tools, .reasoning = reasoning};
  return settings;
}

std::string Body(std::string_view fields) {
  return R"({"messages":[{"role":"user","content":"a"}],)" + std::string(fields) + "}";
}

// The deltas of a stream's events, one a line.
std::string Deltas(const FakeExchange& exchange) {
  constexpr std::string_view kDelta = "\"delta\":";
  constexpr std::string_view kAfter = ",\"logprobs\":";
  const std::string sent = exchange.sent();
  std::string deltas;
  for (size_t at = 0; (at = sent.find(kDelta, at)) != std::string::npos;) {
    at += kDelta.size();
    deltas.append(sent, at, sent.find(kAfter, at) - at).append("\n");
  }
  return deltas;
}

std::string WithoutIds(std::string text) {
  constexpr std::string_view kId = "{\"id\":\"";
  constexpr std::string_view kDeltaId = ",\"id\":\"";
  for (const std::string_view id : {kId, kDeltaId}) {
    for (size_t at = 0; (at = text.find(id, at)) != std::string::npos;) {
      at += id.size();
      const size_t size = text.find('"', at) - at;
      if (size == 9) text.replace(at, size, "ID");
    }
  }
  return text;
}

TEST(Reasoning, HasABudgetWhereARequestOrTheServerSaysSo) {
  server::CompletionSettings settings = Settings(ToolFormat::kNone, ReasoningFormat::kDeepSeek);
  const auto thinking = [&](std::string_view fields) {
    FakeServing fake(settings);
    fake.Ask(Body(fields), Api::kChat);
    EXPECT_EQ(fake.client.submitted.size(), 1u) << fields;
    return fake.client.submitted.at(0).thinking;
  };
  EXPECT_EQ(thinking("\"n\":1"), std::nullopt);
  const ThinkingBudget five{.format = ReasoningFormat::kDeepSeek, .tokens = 5};
  EXPECT_EQ(thinking("\"thinking_token_budget\":5"), five);
  EXPECT_EQ(thinking("\"thinking_budget\":-1"), std::nullopt);
  settings.formats.reasoning_budget = 5;
  EXPECT_EQ(thinking("\"n\":1"), five);
  EXPECT_EQ(thinking("\"thinking_budget\":-1"), std::nullopt);
  EXPECT_EQ(thinking("\"reasoning\":{\"max_tokens\":0}")->tokens, 0);
}

// A grammar is the answer's then, so that the reasoning is taken apart.
TEST(Reasoning, WithABudgetComesBeforeAGrammar) {
  server::CompletionSettings settings = Settings(ToolFormat::kHermes, ReasoningFormat::kDeepSeek);
  FakeServing fake(settings, {.has_grammars = true});
  FakeExchange& exchange = fake.Ask(
      Body(R"("thinking_token_budget":9,"response_format":{"type":"json_object"})"), Api::kChat);
  ASSERT_EQ(fake.client.submitted.size(), 1u);
  EXPECT_TRUE(fake.client.submitted[0].grammar.has_value());
  fake.client.Give(0, "<think>so</think>{}", GenerationEnd::kStopToken, 9);
  fake.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_NE(exchange.response()->body.find(R"("content":"{}","reasoning_content":"so")"),
            std::string::npos)
      << exchange.response()->body;
}

TEST(Reasoning, WithoutAnEndTakesNoBudget) {
  for (const ReasoningFormat format : {ReasoningFormat::kNone, ReasoningFormat::kHarmony}) {
    FakeServing fake(Settings(ToolFormat::kNone, format));
    const FakeExchange& exchange = fake.Ask(Body("\"thinking_budget\":5"), Api::kChat);
    ASSERT_TRUE(exchange.response().has_value());
    EXPECT_EQ(exchange.response()->status, 400);
    EXPECT_NE(exchange.response()->body.find("thinking_budget is not supported"),
              std::string::npos);
    EXPECT_TRUE(fake.client.submitted.empty());
  }
}

TEST(Tools, AreCallsOfAMessage) {
  FakeServing fake(Settings(ToolFormat::kHermes));
  FakeExchange& exchange = fake.Ask(Body(kTools), Api::kChat);
  ASSERT_EQ(fake.client.submitted.size(), 1u);
  EXPECT_EQ(fake.client.submitted[0].grammar, std::nullopt);
  fake.client.Give(0,
                   "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n"
                   "<tool_call>{\"name\": \"g\"}</tool_call>",
                   GenerationEnd::kStopToken, 9);
  fake.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  const std::string body = WithoutIds(exchange.response()->body);
  EXPECT_NE(
      body.find(R"("message":{"role":"assistant","content":null,"tool_calls":[{"id":"ID","type":)"
                R"("function","function":{"name":"f","arguments":"{\"a\": 1}"}},{"id":"ID","type":)"
                R"("function","function":{"name":"g","arguments":"{}"}}]},"logprobs":null,)"
                R"("finish_reason":"tool_calls")"),
      std::string::npos)
      << body;
}

// Requests of one conversation may have one X-Request-Id.
TEST(Tools, HaveIdsOfTheirOwnInEachResponse) {
  FakeServing fake(Settings(ToolFormat::kMistral));
  std::set<std::string> ids;
  for (size_t number = 0; number < 3; ++number) {
    FakeExchange& exchange = fake.Ask(Body(kTools), Api::kChat);
    fake.client.Give(number, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}",
                     GenerationEnd::kStopToken, 9);
    fake.Poll();
    const ParsedJson body(exchange.response()->body);
    EXPECT_EQ(body.Text("/id"), "chatcmpl-req-1");
    for (const char* const call : {"0", "1"}) {
      const std::string id =
          body.Text(std::string("/choices/0/message/tool_calls/") + call + "/id");
      EXPECT_EQ(id.size(), 9u);
      ids.insert(id);
    }
  }
  EXPECT_EQ(ids.size(), 6u);
}

TEST(Tools, AreStreamedAsTheyCome) {
  FakeServing fake(Settings(ToolFormat::kHermes));
  FakeExchange& exchange = fake.Ask(Body(std::string(kTools) + R"(,"stream":true)"), Api::kChat);
  for (const char* const text :
       {"Well.", " <tool_", "call>\n{\"name\": \"f\", \"arguments\": ", "{\"a\"", ": 1}",
        "}\n</tool", "_call>\n<tool_call>{\"name\":\"g\"}</tool_call>"}) {
    fake.client.Give(0, text);
    fake.Poll();
  }
  fake.client.Give(0, "", GenerationEnd::kStopToken);
  fake.Poll();
  EXPECT_EQ(WithoutIds(Deltas(exchange)),
            R"({"role":"assistant","content":""})"
            "\n"
            R"({"content":"Well."})"
            "\n"
            R"({"content":" "})"
            "\n"
            R"({"tool_calls":[{"index":0,"id":"ID","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"a\""}}]})"
            "\n"
            R"({"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]})"
            "\n"
            R"({"tool_calls":[{"index":1,"id":"ID","type":"function","function":{"name":"g",)"
            R"("arguments":"{}"}}]})"
            "\n{}\n");
  EXPECT_NE(exchange.sent().find("\"finish_reason\":\"tool_calls\""), std::string::npos);
}

TEST(Tools, AreOneCallWhereTheRequestTakesOne) {
  FakeServing fake(Settings(ToolFormat::kMistral));
  FakeExchange& exchange =
      fake.Ask(Body(std::string(kTools) + R"(,"parallel_tool_calls":false)"), Api::kChat);
  fake.client.Give(0, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{}", GenerationEnd::kStopToken, 9);
  fake.Poll();
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/choices/0/message/tool_calls/0/function/name"), "f");
  EXPECT_EQ(exchange.response()->body.find("\"name\":\"g\""), std::string::npos);
}

TEST(Tools, AreContentWhereNoneMayBeCalled) {
  FakeServing fake(Settings(ToolFormat::kMistral));
  FakeExchange& exchange =
      fake.Ask(Body(std::string(kTools) + R"(,"tool_choice":"none")"), Api::kChat);
  fake.client.Give(0, "[TOOL_CALLS]f[ARGS]{}", GenerationEnd::kStopToken, 9);
  fake.Poll();
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/choices/0/message/content"), "[TOOL_CALLS]f[ARGS]{}");
  EXPECT_EQ(body.Text("/choices/0/finish_reason"), "stop");
}

TEST(Tools, HaveAFormThatTheTemplateNames) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(Body(kTools), Api::kChat);
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->status, 400);
  const ReadError error = Read(exchange).error.value();
  EXPECT_EQ(error.param, "tools");
  EXPECT_NE(error.message.find("serve --tool-format NAME"), std::string::npos) << error.message;
}

// Arguments reach a template as objects, and as texts where it fails with objects.
TEST(Tools, OfAHistoryHaveArgumentsAsTheTemplateReadsThem) {
  const auto prompt = [](const std::string& of_arguments) {
    FakeServing fake;
    const ModelText text = fake.text.WithChatTemplate(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}"
        "{{ " +
        of_arguments + " }}{% endfor %}{% endfor %}");
    Serving serving(fake.client, text);
    serving.Ask(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":)"
                R"([{"id":"i","function":{"name":"f","arguments":"{\"a\": 1}"}}]}]})",
                Api::kChat);
    return fake.client.submitted.empty() ? std::string()
                                         : text.tokenizer().Decode(fake.client.submitted[0].prompt);
  };
  EXPECT_EQ(prompt("'object' if a.a == 1 else 'text'"), "object");
  EXPECT_EQ(prompt("'text' if ('b' + a) == 'b{\"a\":1}' else 'other'"), "text");
  EXPECT_EQ(prompt("5 + a"), "");
}

TEST(Tools, ThatAreRequiredAreBoundByAGrammar) {
  FakeServing fake(SettingsOfTests(), {.has_grammars = true});
  FakeExchange& exchange = fake.Ask(
      Body(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
      Api::kChat);
  ASSERT_EQ(fake.client.submitted.size(), 1u);
  const OutputGrammar grammar = fake.client.submitted[0].grammar.value();
  EXPECT_EQ(grammar.kind, GrammarKind::kStructuralTag);
  const Tool tool = {.name = "f",
                     .parameters = R"({"type":"object","properties":{"a":{"type":"integer"}}})"};
  EXPECT_EQ(grammar.text, ToolGrammar(ToolFormat::kHermes, {&tool, 1},
                                      {.choice = ToolChoice::kRequired, .is_parallel = false}));
  fake.client.Give(0, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
                   GenerationEnd::kStopToken, 9);
  fake.Poll();
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/choices/0/message/tool_calls/0/function/arguments"), "{\"a\": 1}");
}

TEST(Tools, HaveSchemasThatErrorsNameWithThePlace) {
  FakeServing fake(Settings(ToolFormat::kHermes), {.has_grammars = true});
  const auto body = [&](const std::string& first, const std::string& second,
                        const std::string& more) {
    const std::string tools = R"("tools":[{"type":"function","function":{"name":"f")" + first +
                              R"(}},{"type":"function","function":{"name":"g")" + second +
                              R"(,"parameters":{"type":"object","properties":{"a":{"not":{}}}}}}])";
    return Body(tools + more);
  };
  const auto error_of = [&](const std::string& second, const std::string& more) {
    return Read(fake.Ask(body("", second, more), Api::kChat)).error.value_or(ReadError{});
  };
  const std::string place =
      "tools[1].function.parameters = a schema is not allowed: \"not\" is not a supported keyword, "
      "at /properties/a/not";
  for (const std::string& more :
       {std::string(R"(,"tool_choice":"required")"),
        std::string(R"(,"tool_choice":{"type":"function","function":{"name":"g"}})")}) {
    const ReadError error = error_of("", more);
    EXPECT_EQ(error.param, "tools[1].function.parameters") << more;
    EXPECT_EQ(error.message, place) << more;
  }
  EXPECT_EQ(error_of(R"(,"strict":true)", "").message, place);
  EXPECT_EQ(fake.client.submitted.size(), 0u);
  // Where it is not bound to its schema.
  fake.Ask(body(R"(,"strict":true)", "", ""), Api::kChat);
  fake.Ask(body("", "", ""), Api::kChat);
  fake.Ask(body("", "", R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
           Api::kChat);
  EXPECT_EQ(fake.client.submitted.size(), 3u);
}

TEST(Tools, ThatAreRequiredNeedAnEngineWithGrammars) {
  FakeServing fake;
  FakeExchange& exchange =
      fake.Ask(Body(std::string(kTools) + R"(,"tool_choice":"required")"), Api::kChat);
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(Read(exchange).error.value().param, "tool_choice");
}

TEST(Tools, ThatAreRequiredAllowNoOtherGrammar) {
  FakeServing fake(SettingsOfTests(), {.has_grammars = true});
  FakeExchange& exchange = fake.Ask(
      Body(std::string(kTools) + R"(,"tool_choice":"required","guided_regex":"a")"), Api::kChat);
  ASSERT_TRUE(exchange.response().has_value());
  const ReadError error = Read(exchange).error.value();
  EXPECT_EQ(error.param, "tool_choice");
  EXPECT_NE(error.message.find("guided_regex"), std::string::npos);
}

TEST(Reasoning, IsApartFromTheContent) {
  FakeServing fake(Settings(ToolFormat::kNone, ReasoningFormat::kDeepSeek));
  FakeExchange& stream = fake.Ask(Body(R"("stream":true)"), Api::kChat);
  FakeExchange& whole = fake.Ask(Body(R"("n":1)"), Api::kChat);
  FakeExchange& without = fake.Ask(Body(R"("include_reasoning":false)"), Api::kChat);
  FakeExchange& mixed = fake.Ask(Body(R"("separate_reasoning":false)"), Api::kChat);
  for (const char* const text : {"<thi", "nk>Why", "?</think>So", "."}) {
    fake.client.Give(0, text);
    fake.Poll();
  }
  const std::string text = "<think>Why?</think>So.";
  fake.client.Give(0, "", GenerationEnd::kStopToken);
  for (const size_t number : {1u, 2u, 3u}) {
    fake.client.Give(number, text, GenerationEnd::kStopToken, 5);
  }
  fake.Poll();
  EXPECT_EQ(Deltas(stream), R"({"role":"assistant","content":""})"
                            "\n"
                            R"({"reasoning_content":"Why"})"
                            "\n"
                            R"({"reasoning_content":"?","content":"So"})"
                            "\n"
                            R"({"content":"."})"
                            "\n{}\n");
  const ParsedJson body(whole.response()->body);
  EXPECT_EQ(body.Text("/choices/0/message/reasoning_content"), "Why?");
  EXPECT_EQ(body.Text("/choices/0/message/content"), "So.");
  EXPECT_EQ(body.Text("/choices/0/finish_reason"), "stop");
  EXPECT_EQ(without.response()->body.find("reasoning_content"), std::string::npos);
  EXPECT_EQ(ParsedJson(mixed.response()->body).Text("/choices/0/message/content"), text);
}

TEST(Reasoning, GoesOnFromThePrompt) {
  FakeServing fake;
  Serving serving(fake.client, fake.text.WithChatTemplate("a<think>"),
                  Settings(ToolFormat::kNone, ReasoningFormat::kDeepSeek));
  FakeExchange& exchange = serving.Ask(Body(R"("n":1)"), Api::kChat);
  fake.client.Give(0, "Why?</think>So.", GenerationEnd::kStopToken, 5);
  serving.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/choices/0/message/reasoning_content"), "Why?");
  EXPECT_EQ(body.Text("/choices/0/message/content"), "So.");
}

}  // namespace
}  // namespace sluice::test
