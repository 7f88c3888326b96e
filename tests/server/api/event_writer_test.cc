// Streams and whole answers of messages and responses, as the files of golden/ have them: ids of
// calls, which are random, as ID. SLUICE_WRITE_GOLDEN=1 writes the files anew.
#include "server/api/response/event_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "server/api/response/item_events.h"
#include "server/api/response/message_events.h"
#include "tests/server/api/parsed_json.h"
#include "tests/server/api/samples.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

ResponseHead Head(Api api) {
  ResponseHead head = test::SampleHead(api);
  head.id = api == Api::kMessages ? "msg_1" : "resp_1";
  if (api == Api::kResponses) head.echo_members = R"("tools":[],"store":false,)";
  return head;
}

std::string WithoutCallIds(std::string text) {
  for (const std::string before : {R"("tool_use","id":")", R"("call_id":")"}) {
    for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
      at += before.size();
      text.replace(at, text.find('"', at) - at, "ID");
    }
  }
  return text;
}

void ExpectGolden(const std::string& name, const std::string& stream) {
  const std::string path = std::string(SLUICE_GOLDEN) + "/" + name;
  const std::string text = WithoutCallIds(stream);
  if (std::getenv("SLUICE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

// Reasoning, a text, two calls, and a text after them.
OutputParts SampleParts() {
  OutputParts parts;
  parts.Append(PartKind::kReasoning, -1, "Hm \"so\"");
  parts.Append(PartKind::kContent, -1, "I look.\n");
  parts.Append(PartKind::kCallBegin, 0, "f");
  parts.Append(PartKind::kArguments, 0, R"({"a": 1})");
  parts.Append(PartKind::kCallBegin, 1, "g");
  parts.Append(PartKind::kArguments, 1, "{}");
  parts.Append(PartKind::kContent, -1, "😀");
  return parts;
}

std::string Streamed(Api api, const std::vector<OutputParts>& deltas, const ChoiceEnd& end) {
  const auto writer = MakeEventWriter(Head(api), false, test::SampleTokenizer());
  std::string out;
  writer->Begin(out, {5, 0});
  writer->Front(out, 0);
  for (const OutputParts& parts : deltas) writer->Content(out, {.parts = &parts}, {});
  writer->KeepAlive(out);
  writer->Finish(out, end, {});
  writer->End(out, {5, 7, 2});
  return out;
}

std::string Whole(Api api, const OutputParts& parts, const ChoiceEnd& end) {
  const WholeChoice choice = {.content = {.parts = &parts}, .end = end};
  return CompletionBody(Head(api), {&choice, 1}, {5, 7, 2}, test::SampleTokenizer());
}

constexpr ChoiceEnd kCalls = {.end = GenerationEnd::kStopToken, .has_calls = true};

TEST(EventWriter, MessagesOfEveryBlock) {
  ExpectGolden("messages.txt", Streamed(Api::kMessages, {SampleParts()}, kCalls));
  ExpectGolden("message.json", Whole(Api::kMessages, SampleParts(), kCalls));
}

TEST(EventWriter, ResponsesOfEveryItem) {
  ExpectGolden("responses.txt", Streamed(Api::kResponses, {SampleParts()}, kCalls));
  ExpectGolden("response.json", Whole(Api::kResponses, SampleParts(), kCalls));
}

// A text that is not taken apart, and that comes to its last token.
TEST(EventWriter, TextsThatAreCut) {
  for (const Api api : {Api::kMessages, Api::kResponses}) {
    const auto writer = MakeEventWriter(Head(api), false, test::SampleTokenizer());
    std::string out;
    writer->Begin(out, {5, 0});
    EXPECT_EQ(writer->Content(out, {.text = ""}, {}), 0);  // no block begins without a text
    writer->Content(out, {.text = "Hel"}, {});
    writer->Content(out, {.text = "lo"}, {});
    writer->Finish(out, {.end = GenerationEnd::kLength}, {});
    writer->End(out, {5, 2});
    ExpectGolden(api == Api::kMessages ? "messages_cut.txt" : "responses_cut.txt", out);
  }
}

TEST(EventWriter, StreamsThatFail) {
  for (const Api api : {Api::kMessages, Api::kResponses}) {
    const auto writer = MakeEventWriter(Head(api), false, test::SampleTokenizer());
    std::string out;
    writer->Begin(out, {5, 0});
    writer->Content(out, {.text = "so far"}, {});
    EXPECT_EQ(writer->Fail(out, Unavailable("the engine is \"gone\"\n\xff")), 1);
    ExpectGolden(api == Api::kMessages ? "messages_error.txt" : "responses_error.txt", out);
  }
}

TEST(EventWriter, AnswersWithoutContentAreAnswers) {
  const ChoiceEnd end = {.end = GenerationEnd::kStopToken};
  EXPECT_EQ(ParsedJson(Whole(Api::kMessages, {}, end)).Json("/content"), "[]");
  EXPECT_EQ(ParsedJson(Whole(Api::kResponses, {}, end)).Json("/output"), "[]");
  EXPECT_NE(Streamed(Api::kMessages, {}, end).find("message_stop"), std::string::npos);
}

TEST(EventWriter, SaysWhyAMessageEnded) {
  const auto reason = [](const ChoiceEnd& end) {
    const ParsedJson body(Whole(Api::kMessages, {}, end));
    return body.Text("/stop_reason") + " " + body.Json("/stop_sequence");
  };
  EXPECT_EQ(reason({.end = GenerationEnd::kStopToken}), "end_turn null");
  EXPECT_EQ(reason({.end = GenerationEnd::kStopString, .stop = "x\""}), R"(stop_sequence "x\"")");
  EXPECT_EQ(reason({.end = GenerationEnd::kLength, .has_calls = true}), "max_tokens null");
  EXPECT_EQ(reason({.end = GenerationEnd::kContext}), "max_tokens null");
  EXPECT_EQ(reason(kCalls), "tool_use null");
}

// Clients read the input of a whole message as an object.
TEST(EventWriter, ArgumentsThatAreNoJsonAreAnObjectOfTheirText) {
  for (const std::string text :
       {"{\"a\": ", "[1]", "{\"a\"}", "nothing \"\n", "{} {}", "{\"a\": 01}"}) {
    OutputParts parts;
    parts.Append(PartKind::kCallBegin, 0, "f");
    parts.Append(PartKind::kArguments, 0, text);
    const ParsedJson body(Whole(Api::kMessages, parts, kCalls));
    EXPECT_EQ(body.Text("/content/0/input/INVALID_JSON"), text);
    EXPECT_EQ(ParsedJson(Whole(Api::kResponses, parts, kCalls)).Text("/output/0/arguments"), text);
  }
  OutputParts parts;
  parts.Append(PartKind::kCallBegin, 0, "f");
  const std::string text =
      R"({"a": 123456789012345678901234567890, "b": [{}, null, -0.5e3, "\""]})";
  parts.Append(PartKind::kArguments, 0, text);
  EXPECT_NE(Whole(Api::kMessages, parts, kCalls).find("\"input\":" + text), std::string::npos);
}

// The lines of each event are its type and one object with that type, and counts are right.
TEST(EventWriter, EveryEventIsTwoLines) {
  const std::string hostile = test::HostileText();
  for (const Api api : {Api::kMessages, Api::kResponses}) {
    ResponseHead head = Head(api);
    head.id += hostile;
    head.model = hostile;
    const auto writer = MakeEventWriter(head, false, test::SampleTokenizer());
    OutputParts parts;
    parts.Append(PartKind::kReasoning, -1, hostile);
    parts.Append(PartKind::kCallBegin, 0, hostile);
    parts.Append(PartKind::kArguments, 0, hostile);
    std::string out;
    int64_t count = writer->Begin(out, {1, 0});
    count += writer->Content(out, {.text = hostile}, {});
    count += writer->Content(out, {.parts = &parts}, {});
    count += writer->Finish(out, {.end = GenerationEnd::kStopString, .stop = hostile}, {});
    count += writer->End(out, {1, 2});
    int64_t seen = 0;
    for (std::string_view rest = out; !rest.empty(); ++seen) {
      const std::string_view event = rest.substr(0, rest.find("\n\n"));
      rest.remove_prefix(event.size() + 2);
      constexpr std::string_view kType = "event: ";
      constexpr std::string_view kData = "\ndata: ";
      ASSERT_TRUE(event.starts_with(kType)) << event;
      const size_t line = event.find('\n');
      ASSERT_EQ(event.substr(line, kData.size()), kData) << event;
      const std::string_view data = event.substr(line + kData.size());
      EXPECT_EQ(data.find_first_of("\r\n"), std::string_view::npos) << event;
      const ParsedJson json(data);
      EXPECT_EQ(json.Text("/type"), event.substr(kType.size(), line - kType.size()));
      if (api == Api::kMessages) continue;
      EXPECT_EQ(json.Integer("/sequence_number"), seen);
    }
    EXPECT_EQ(seen, count);
  }
}

TEST(EventWriter, ErrorsOfMessagesHaveAnthropicsTypes) {
  const auto type = [](int status) {
    return ParsedJson(MessageErrorBody({.status = status, .message = "m"}, "r"))
        .Text("/error/type");
  };
  EXPECT_EQ(type(400), "invalid_request_error");
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(403), "permission_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(408), "invalid_request_error");
  EXPECT_EQ(type(413), "request_too_large");
  EXPECT_EQ(type(429), "rate_limit_error");
  EXPECT_EQ(type(500), "api_error");
  EXPECT_EQ(type(503), "overloaded_error");
  EXPECT_EQ(MessageErrorBody({.message = "m", .param = "p", .code = "c"}, "r"),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"m","param":"p",)"
            R"("code":"c"},"request_id":"r"})");
}

}  // namespace
}  // namespace sluice::server
