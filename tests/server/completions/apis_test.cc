// Messages and responses over an engine whose outputs a test makes up: their errors, counts, and
// that an answer is one whatever the pieces are that it comes in.
#include <gtest/gtest.h>

#include <random>

#include "tests/server/api/parsed_json.h"
#include "tests/server/completions/serving.h"
#include "tests/text/output_cases.h"

namespace sluice::test {
namespace {

using Element = simdjson::dom::element;

constexpr std::string_view kMessagesHead =
    R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}])";
constexpr std::string_view kResponsesHead = R"({"input":"a")";
constexpr std::string_view kMessageTools =
    R"(,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"g"}])";
constexpr std::string_view kResponseTools =
    R"(,"tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}])";

std::string BodyOf(Api api, std::string_view more = "") {
  const bool is_messages = api == Api::kMessages;
  return std::string(is_messages ? kMessagesHead : kResponsesHead)
      .append(is_messages ? kMessageTools : kResponseTools)
      .append(more)
      .append("}");
}

std::string TextOf(const Element& object, std::string_view member) {
  std::string_view text;
  return object[member].get(text) == simdjson::SUCCESS ? std::string(text) : "";
}

// One line a block: its type, the name of a tool, and its text.
std::string BlockLine(const Element& block) {
  std::string line = TextOf(block, "type") + " " + TextOf(block, "name") + " ";
  for (const char* const member : {"text", "thinking", "arguments"}) {
    line += TextOf(block, member);
  }
  Element part;
  if (block["input"].get(part) == simdjson::SUCCESS) line += simdjson::minify(part);
  if (block["content"].get(part) == simdjson::SUCCESS) {
    for (const Element text : part.get_array()) line += TextOf(text, "text");
  }
  return line + "\n";
}

std::string BlocksOf(const Element& root, std::string_view list) {
  std::string blocks;
  for (const Element block : root[list].get_array()) blocks += BlockLine(block);
  return blocks;
}

std::vector<std::string> DataOf(std::string_view sent) {
  std::vector<std::string> events;
  constexpr std::string_view kData = "\ndata: ";
  while (!sent.empty()) {
    const std::string_view event = sent.substr(0, sent.find("\n\n"));
    sent.remove_prefix(event.size() + 2);
    if (!event.starts_with(":"))
      events.emplace_back(event.substr(event.find(kData) + kData.size()));
  }
  return events;
}

// The blocks of a stream of messages, from its deltas.
std::string FoldMessages(std::string_view sent) {
  std::string blocks;
  std::string line;
  std::string json;
  for (const std::string& data : DataOf(sent)) {
    simdjson::dom::parser parser;
    const Element event = parser.parse(data);
    const std::string type = TextOf(event, "type");
    if (type == "content_block_start") {
      const Element block = event["content_block"];
      line = TextOf(block, "type") + " " + TextOf(block, "name") + " ";
      json.clear();
    } else if (type == "content_block_delta") {
      const Element delta = event["delta"];
      line += TextOf(delta, "text") + TextOf(delta, "thinking");
      json += TextOf(delta, "partial_json");
    } else if (type == "content_block_stop") {
      simdjson::dom::parser arguments;
      blocks += line + (json.empty() ? "" : simdjson::minify(arguments.parse(json))) + "\n";
    }
  }
  return blocks;
}

// As above for responses; what `done` events repeat has to be the sum of the deltas.
std::string FoldResponses(std::string_view sent) {
  std::string blocks;
  std::string line;
  std::string text;
  for (const std::string& data : DataOf(sent)) {
    simdjson::dom::parser parser;
    const Element event = parser.parse(data);
    const std::string type = TextOf(event, "type");
    if (type == "response.output_item.added") {
      const Element item = event["item"];
      line = TextOf(item, "type") + " " + TextOf(item, "name") + " ";
      text.clear();
    } else if (type.ends_with(".delta")) {
      text += TextOf(event, "delta");
    } else if (type.ends_with("_text.done") || type.ends_with("arguments.done")) {
      EXPECT_EQ(TextOf(event, "text") + TextOf(event, "arguments"), text);
    } else if (type == "response.output_item.done") {
      EXPECT_EQ(BlockLine(event["item"]), line + text + "\n");
      blocks += line + text + "\n";
    } else if (type == "response.completed") {
      EXPECT_EQ(BlocksOf(event["response"], "output"), blocks);
    }
  }
  return blocks;
}

server::CompletionSettings SettingsOf(const OutputFormat& format) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.formats = {.tools = format.tools, .reasoning = format.reasoning};
  return settings;
}

void Give(FakeServing& fake, size_t number, std::string_view text,
          const std::vector<size_t>& cuts) {
  size_t begin = 0;
  for (const size_t cut : cuts) {
    fake.client.Give(number, text.substr(begin, cut - begin));
    fake.Poll();
    begin = cut;
  }
  fake.client.Give(number, text.substr(begin), GenerationEnd::kStopToken);
  fake.Poll();
}

std::string WholeOf(const OutputCase& of, Api api) {
  FakeServing fake(SettingsOf(of.format));
  FakeExchange& exchange = fake.Ask(BodyOf(api), api);
  fake.client.Give(0, of.text, GenerationEnd::kStopToken);
  fake.Poll();
  simdjson::dom::parser parser;
  const Element root = parser.parse(exchange.response()->body);
  return BlocksOf(root, api == Api::kMessages ? "content" : "output");
}

// Of which each call is whole: the input of a whole message is an object in any case.
std::vector<OutputCase> WholeCases() {
  std::vector<OutputCase> cases = ToolCases();
  std::erase_if(cases, [](const OutputCase& of) {
    return of.format.tools == ToolFormat::kNone || of.format.opens_reasoning ||
           of.shown.find("broken") != std::string::npos;
  });
  return cases;
}

TEST(Apis, AnAnswerIsOneForEveryCut) {
  int64_t streams = 0;
  std::mt19937_64 random(7);
  for (const OutputCase& of : WholeCases()) {
    for (const Api api : {Api::kMessages, Api::kResponses}) {
      SCOPED_TRACE(of.text);
      const auto fold = api == Api::kMessages ? FoldMessages : FoldResponses;
      const std::string whole = WholeOf(of, api);
      FakeServing fake(SettingsOf(of.format));
      std::vector<std::vector<size_t>> cuttings = {{}};
      const auto is_place = [&](size_t at) {  // clients give whole characters
        return (static_cast<unsigned char>(of.text[at]) >> 6) != 2;
      };
      for (size_t i = 1; i < of.text.size(); ++i) {
        if (is_place(i)) cuttings.push_back({i});
      }
      for (int i = 0; i < 20; ++i) {
        std::vector<size_t> cuts;
        for (size_t at = 1; at < of.text.size(); ++at) {
          if (random() % 4 == 0 && is_place(at)) cuts.push_back(at);
        }
        cuttings.push_back(cuts);
      }
      for (size_t number = 0; number < cuttings.size(); ++number, ++streams) {
        FakeExchange& exchange = fake.Ask(BodyOf(api, R"(,"stream":true)"), api);
        Give(fake, number, of.text, cuttings[number]);
        ASSERT_TRUE(exchange.is_complete());
        ASSERT_EQ(fold(exchange.sent()), whole);
      }
    }
  }
  EXPECT_GT(streams, 1000);
}

TEST(Apis, ReasoningIsABlockUnlessTheRequestHasItOff) {
  const OutputFormat format = {.reasoning = ReasoningFormat::kDeepSeek};
  const auto answer = [&](std::string_view more, Api api) {
    FakeServing fake(SettingsOf(format));
    FakeExchange& exchange = fake.Ask(BodyOf(api, more), api);
    fake.client.Give(0, "<think>Hm.</think>Yes.", GenerationEnd::kStopToken, 5);
    fake.Poll();
    simdjson::dom::parser parser;
    const Element root = parser.parse(exchange.response()->body);
    return BlocksOf(root, api == Api::kMessages ? "content" : "output");
  };
  const std::string_view none = R"(,"tool_choice":{"type":"none"})";
  EXPECT_EQ(answer(none, Api::kMessages), "thinking  Hm.\ntext  Yes.\n");
  EXPECT_EQ(answer(std::string(none) + R"(,"thinking":{"type":"disabled"})", Api::kMessages),
            "text  Yes.\n");
  EXPECT_EQ(answer(R"(,"tool_choice":"none")", Api::kResponses), "reasoning  Hm.\nmessage  Yes.\n");
}

// Letters and the signs of markers, one a token.
ModelText MarkupText() {
  std::vector<TestToken> tokens = {{"<"}, {"/"}, {">"}};
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back({std::string(1, c)});
  const std::string tokenizer = ByteLevelTokenizerJson(tokens);
  return ModelText::FromFiles(
      {.tokenizer = tokenizer,
       .chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"});
}

// Tokens are letters here: those of <think> and of what follows it count, those of </think> do not.
TEST(Apis, TheUsageOfAResponseHasItsTokensOfReasoning) {
  const auto reasoning = [](ReasoningFormat format, std::string_view text, std::string_view more) {
    EchoServing echo(SettingsOf({.reasoning = format}), MarkupText());
    const std::string body = R"({"input":")" + std::string(text) + "\"" + std::string(more) + "}";
    const FakeExchange& exchange = echo.serving->Ask(body, Api::kResponses);
    EXPECT_TRUE(echo.serving->Completes(exchange));
    const bool is_whole = exchange.response().has_value();
    const ParsedJson last(is_whole ? exchange.response()->body : DataOf(exchange.sent()).back());
    const std::string usage = std::string(is_whole ? "" : "/response") + "/usage";
    return last.Integer(usage + "/output_tokens_details/reasoning_tokens");
  };
  const std::string tokens = R"(,"max_output_tokens":)";
  for (const std::string stream : {"", R"(,"stream":true)"}) {
    SCOPED_TRACE(stream);
    const auto of = [&](std::string_view text, int64_t most) {
      return reasoning(ReasoningFormat::kDeepSeek, text, tokens + std::to_string(most) + stream);
    };
    EXPECT_EQ(of("<think>ab</think>cd", 19), 9);
    EXPECT_EQ(of("<think>ab</think>cd", 8), 8);
    EXPECT_EQ(of("abcd", 4), 0);
    EXPECT_EQ(reasoning(ReasoningFormat::kNone, "<think>ab", tokens + "9" + stream), 0);
  }
}

TEST(Apis, CountsTokensWithoutTheEngine) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(
      R"({"system":"ab","messages":[{"role":"user","content":"cde"}],"foo":1})", Api::kCountTokens);
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->body, R"({"input_tokens":5})");
  EXPECT_EQ(exchange.response()->fields.at(0).value, "foo");
  EXPECT_TRUE(fake.client.submitted.empty());
  EXPECT_EQ(fake.serving.completions.live(), 0);
}

TEST(Apis, GiveTheEngineWhatAChatGives) {
  FakeServing fake;
  fake.Ask(R"({"max_tokens":3,"messages":[{"role":"user","content":"abc"}],"stop_sequences":["x"],
               "seed":5,"temperature":0.5})",
           Api::kMessages);
  fake.Ask(R"({"max_output_tokens":3,"input":"abc","stop":["x"],"seed":5,"temperature":0.5})",
           Api::kResponses);
  fake.Ask(R"({"max_tokens":3,"messages":[{"role":"user","content":"abc"}],"stop":["x"],"seed":5,
               "temperature":0.5})",
           Api::kChat);
  ASSERT_EQ(fake.client.submitted.size(), 3u);
  const ClientRequest& chat = fake.client.submitted[2];
  for (const ClientRequest& request : fake.client.submitted) {
    EXPECT_EQ(request.prompt, chat.prompt);
    EXPECT_EQ(request.max_tokens, 3);
    EXPECT_EQ(request.text.stops, chat.text.stops);
    EXPECT_EQ(request.params.seed, 5u);
    EXPECT_EQ(request.params.temperature, chat.params.temperature);
  }
}

// No prompt is too long to be counted, but for texts that are encoded for nothing else either.
TEST(Apis, CountsMoreTokensThanTheContextHas) {
  FakeServing fake;
  const auto count = [&](int64_t size, std::string_view more) {
    const std::string text(static_cast<size_t>(size), 'a');
    const FakeExchange& exchange = fake.Ask(
        R"({"messages":[{"role":"user","content":")" + text + "\"}]" + std::string(more) + "}",
        Api::kCountTokens);
    EXPECT_TRUE(fake.serving.Completes(exchange));
    return *exchange.response();
  };
  const int64_t context = fake.client.info().context;
  for (const int64_t size : {context - 1, context, context + 1, 10 * context}) {
    EXPECT_EQ(count(size, "").body, "{\"input_tokens\":" + std::to_string(size) + "}");
  }
  EXPECT_EQ(count(context + 9, R"(,"truncate_prompt_tokens":7)").body, R"({"input_tokens":7})");
  const server::HttpResponse refused = count((int64_t{1} << 20) + 1, "");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error->param, "messages");
  EXPECT_NE(refused.error->message.find("at most 1048576 bytes"), std::string::npos);
}

TEST(Apis, AMessageThatCannotBeContinuedNamesWhatItsClientSent) {
  FakeServing fake;
  const auto refusal = [&](const std::string& body) {
    return *fake.Ask(R"({"max_tokens":3,"messages":[{"role":"user","content":"a"},)" + body + "]}",
                     Api::kMessages)
                .response()
                ->error;
  };
  const server::ApiError error = refusal(R"({"role":"assistant","content":" \n"})");
  EXPECT_EQ(error.param, "messages");
  EXPECT_EQ(error.message,
            "messages: the last message has no text that the model could go on with");
}

TEST(Apis, StopSequencesAreReasons) {
  FakeServing fake;
  FakeExchange& exchange =
      fake.Ask(BodyOf(Api::kMessages, R"(,"tool_choice":{"type":"none"})"), Api::kMessages);
  fake.client.Give(0, "ab", GenerationEnd::kStopString, 3);
  fake.client.NameStop("x", -1);
  fake.Poll();
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/stop_reason"), "stop_sequence");
  EXPECT_EQ(body.Text("/stop_sequence"), "x");
  EXPECT_EQ(body.Integer("/usage/output_tokens"), 3);
}

TEST(Apis, AStopSequenceIsNamedWhereItIsTheReason) {
  FakeServing fake(SettingsOf({.tools = ToolFormat::kHermes}));
  FakeExchange& exchange = fake.Ask(BodyOf(Api::kMessages), Api::kMessages);
  fake.client.Give(0, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)",
                   GenerationEnd::kStopString, 3);
  fake.client.NameStop("x", -1);
  fake.Poll();
  const ParsedJson body(exchange.response()->body);
  EXPECT_EQ(body.Text("/stop_reason"), "tool_use");
  EXPECT_EQ(body.Json("/stop_sequence"), "null");
}

TEST(Apis, APromptThatIsTooLongIsSaidInTheWordsOfTheApi) {
  FakeServing fake;
  const std::string text(static_cast<size_t>(fake.client.info().context) + 5, 'a');
  const auto message = [&](Api api, const std::string& body) {
    return fake.Ask(body, api).response()->error->message;
  };
  EXPECT_NE(message(Api::kMessages,
                    R"({"max_tokens":1,"messages":[{"role":"user","content":")" + text + "\"}]}")
                .find("prompt is too long: "),
            std::string::npos);
  EXPECT_NE(message(Api::kResponses, R"({"input":")" + text + "\"}").find("in the input"),
            std::string::npos);
}

// The head of a stream is an event of its own, so that clients can wait for the rest.
TEST(Apis, AStreamThatFailsHasItsOwnLastEvent) {
  for (const Api api : {Api::kMessages, Api::kResponses}) {
    FakeServing fake(SettingsOf({.tools = ToolFormat::kHermes}));
    FakeExchange& exchange = fake.Ask(BodyOf(api, R"(,"stream":true)"), api);
    fake.client.Give(0, "so far");
    fake.Poll();
    fake.client.Fail(0, GenerationEnd::kEngineLost, ErrorCode::kUnavailable, "gone");
    fake.Poll();
    ASSERT_TRUE(exchange.is_complete());
    const std::vector<std::string> events = DataOf(exchange.sent());
    const ParsedJson first(events.front());
    const ParsedJson last(events.back());
    EXPECT_EQ(first.Text("/type"), api == Api::kMessages ? "message_start" : "response.created");
    EXPECT_EQ(last.Text("/type"), api == Api::kMessages ? "error" : "response.failed");
    EXPECT_EQ(fake.serving.completions.counters().events, std::ssize(events));
  }
}

}  // namespace
}  // namespace sluice::test
