// Streams as text: whole ones as the files of golden/ have them, and every event read back by a
// parser. SLUICE_WRITE_GOLDEN=1 writes the files anew.
#include "server/api/response/stream_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/server/api/parsed_json.h"
#include "tests/server/api/samples.h"
#include "tests/support/counting_allocator.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

StreamWriter Writer(Api api, bool includes_usage = false) {
  return {test::SampleHead(api), includes_usage, test::SampleTokenizer()};
}

void ExpectGolden(const std::string& name, const std::string& stream) {
  const std::string path = std::string(SLUICE_GOLDEN) + "/" + name;
  const std::string text = test::WithoutVersion(stream);
  if (std::getenv("SLUICE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

TEST(StreamWriter, AChat) {
  const StreamWriter writer = Writer(Api::kChat);
  std::string out;
  writer.Role(out, 0);
  writer.Content(out, {.text = "Hello"});
  writer.Content(out, {.text = " \"world\"\n"});
  writer.Content(out, {.text = "😀"});
  writer.Finish(out, {.end = GenerationEnd::kStopToken});
  StreamWriter::Done(out);
  ExpectGolden("chat.txt", out);
}

TEST(StreamWriter, AChatOfTwoChoicesWithUsage) {
  const StreamWriter writer = Writer(Api::kChat, true);
  std::string out;
  writer.Role(out, 1);
  writer.Content(out, {.index = 1, .text = "a"});
  StreamWriter::KeepAlive(out);
  writer.Role(out, 0);
  writer.Content(out, {.text = "b"}, Usage{5, 1});
  writer.Finish(out, {.index = 1, .end = GenerationEnd::kStopString, .stop = "EN\"D"}, Usage{5, 2});
  writer.Content(out, {.text = "c"});
  writer.Finish(out, {.end = GenerationEnd::kLength});
  writer.UsageEvent(out, {5, 4});
  StreamWriter::Done(out);
  ExpectGolden("chat_usage.txt", out);
}

TEST(StreamWriter, AChatWithLogprobsAndTokenIds) {
  const StreamWriter writer = Writer(Api::kChat);
  const test::SampleLogprobs sample;
  const std::vector<int32_t> prompt = {test::kHello, test::kWorld};
  std::string out;
  writer.Role(out, 0);
  writer.Content(out, {.text = "Hello\"",
                       .logprobs = sample.View(),
                       .token_ids = sample.ids,
                       .prompt_ids = prompt});
  writer.Content(out, {.text = "", .token_ids = sample.ids});
  writer.Finish(out, {.end = GenerationEnd::kContext});
  StreamWriter::Done(out);
  ExpectGolden("chat_logprobs.txt", out);
}

TEST(StreamWriter, ACompletionWithEcho) {
  const StreamWriter writer = Writer(Api::kCompletions, true);
  const test::SampleLogprobs sample;
  const std::vector<int32_t> prompt = {test::kHello, test::kWorld};
  const std::vector<float> prompt_logprobs = {-2.0f};
  std::string out;
  writer.Content(out, {.text = "Hello world",
                       .logprobs = {.ids = prompt, .logprobs = prompt_logprobs},
                       .prompt_ids = prompt});
  writer.Content(
      out, {.text = "Hello", .logprobs = sample.View(), .token_ids = sample.ids, .text_offset = 11},
      Usage{2, 3});
  writer.Finish(out, {.end = GenerationEnd::kStopToken, .stop_token = 5});
  writer.UsageEvent(out, {2, 3});
  StreamWriter::Done(out);
  ExpectGolden("completion_echo.txt", out);
}

TEST(StreamWriter, ACompletionThatFails) {
  const StreamWriter writer = Writer(Api::kCompletions);
  std::string out;
  writer.Content(out, {.text = "so far"});
  StreamWriter::Error(out, Unavailable("the engine is \"gone\"\n"));
  StreamWriter::Done(out);
  ExpectGolden("completion_error.txt", out);
}

TEST(StreamWriter, EveryEventIsOneLineOfJsonWithTheSameHead) {
  const std::string hostile = test::HostileText();
  const test::SampleLogprobs sample;
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    for (const bool includes_usage : {false, true}) {
      const bool is_chat = api == Api::kChat;
      ResponseHead head = test::SampleHead(api);
      head.id = hostile;
      head.model = hostile;
      const StreamWriter writer(head, includes_usage, test::SampleTokenizer());
      std::string out;
      if (is_chat) {
        writer.Role(out, 127);
      } else {
        writer.Content(out, {.index = 127, .text = hostile});
      }
      writer.Content(out, {.index = 127, .text = hostile});
      writer.Content(out, {.index = 127, .text = hostile, .logprobs = sample.View()});
      writer.Content(out, {.index = 127, .text = hostile}, Usage{1, 2});
      writer.Finish(out, {.index = 127, .end = GenerationEnd::kStopString, .stop = hostile});
      writer.UsageEvent(out, {1, 2});
      const std::vector<std::string> events = test::EventsOf(out);
      ASSERT_EQ(events.size(), 6u);
      for (size_t i = 0; i < events.size(); ++i) {
        const ParsedJson json(events[i]);
        EXPECT_EQ(json.Text("/id"), hostile);
        EXPECT_EQ(json.Text("/model"), hostile);
        EXPECT_EQ(json.Integer("/created"), 1700000000);
        EXPECT_EQ(json.Json("/seed"), "18446744073709551615");
        EXPECT_EQ(json.Text("/object"), is_chat ? "chat.completion.chunk" : "text_completion");
        if (i == 5) {
          EXPECT_EQ(json.Json("/choices"), "[]");
          EXPECT_EQ(json.Integer("/usage/total_tokens"), 3);
          continue;
        }
        EXPECT_EQ(json.Integer("/choices/0/index"), 127);
        EXPECT_EQ(json.Has("/usage"), includes_usage || i == 3);
        if (includes_usage && i != 3) {
          EXPECT_EQ(json.Json("/usage"), "null");
        }
        if (i == 4) {
          EXPECT_EQ(json.Text("/choices/0/finish_reason"), "stop");
          EXPECT_EQ(json.Text("/choices/0/stop_reason"), hostile);
          continue;
        }
        EXPECT_EQ(json.Json("/choices/0/finish_reason"), "null");
        if (i > 0) {
          EXPECT_EQ(json.Text(is_chat ? "/choices/0/delta/content" : "/choices/0/text"), hostile);
        }
      }
    }
  }
}

TEST(StreamWriter, AllocatesNothingWhereThereIsRoom) {
  const StreamWriter writer = Writer(Api::kChat, true);
  const StreamWriter completions = Writer(Api::kCompletions);
  const test::SampleLogprobs sample;
  std::string out;
  out.reserve(1 << 16);
  const int64_t before = test::AllocationCount();
  writer.Role(out, 0);
  for (int i = 0; i < 10; ++i) {
    writer.Content(out, {.text = "Hello \"world\" \n"}, Usage{1, 2});
    writer.Content(out, {.text = "x", .logprobs = sample.View(), .token_ids = sample.ids});
    completions.Content(out, {.text = "x", .logprobs = sample.View(), .token_ids = sample.ids});
  }
  writer.Finish(out, {.end = GenerationEnd::kStopString, .stop = "END"});
  writer.UsageEvent(out, {1, 2});
  StreamWriter::KeepAlive(out);
  StreamWriter::Done(out);
  EXPECT_EQ(test::AllocationCount(), before);
}

TEST(StreamWriter, FinishReasonsAreStopOrLength) {
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kStopString}), "stop");
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kStopToken}), "stop");
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kLength}), "length");
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kContext}), "length");
}

TEST(StreamWriter, FinishReasonsAreCallsWhereTheOutputHasSome) {
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kStopToken, .has_calls = true}), "tool_calls");
  EXPECT_EQ(FinishReasonName({.end = GenerationEnd::kLength, .has_calls = true}), "length");
}

}  // namespace
}  // namespace sluice::server
