// What a client is told when something goes wrong, at every stage of a request; and that nothing is
// left behind by one that went away.
#include <memory>
#include <utility>

#include "server/completions.h"
#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

constexpr auto kLength = GenerationEnd::kLength;
constexpr auto kRejected = GenerationEnd::kRejected;
constexpr auto kLost = GenerationEnd::kEngineLost;
constexpr char kStream[] = R"({"prompt":"a","stream":true})";
constexpr char kTwo[] = R"({"prompt":"a","stream":true,"n":2})";
constexpr char kWhole[] = R"({"prompt":"a"})";

void ExpectNothingLeft(FakeServing& fake) {
  EXPECT_EQ(fake.serving.completions.live(), 0);
  EXPECT_EQ(fake.serving.completions.counters().choices_running, 0);
}

// A stream that began, and ends with an error event.
void ExpectErrorEvent(const FakeExchange& exchange, std::string_view text) {
  ASSERT_TRUE(exchange.is_complete());
  ReadResponse got = Read(exchange);
  EXPECT_TRUE(got.is_done);
  ASSERT_TRUE(got.error.has_value());
  EXPECT_EQ(got.choices[0].text, text);
  EXPECT_EQ(got.choices[0].finish, "");
}

TEST(CompletionFailures, AnswerUnavailableWithoutAnEngine) {
  for (const char* const body : {kStream, kWhole}) {
    FakeServing fake;
    fake.client.engine_health = EngineHealth::kDead;
    const FakeExchange& exchange = fake.Ask(body);
    ASSERT_TRUE(exchange.response().has_value());
    EXPECT_EQ(exchange.response()->status, 503);
    EXPECT_NE(exchange.Retry(), "");
    ExpectNothingLeft(fake);
  }
}

TEST(CompletionFailures, TakeBackChoicesWhenThereIsNoRoomForAll) {
  FakeServing fake;
  fake.client.room = 2;
  const FakeExchange& exchange = fake.Ask(R"({"prompt":"a","stream":true,"n":3})");
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->status, 503);
  EXPECT_EQ(fake.client.aborted, (std::vector<RequestId>{{1}, {2}}));
  ExpectNothingLeft(fake);
  fake.client.Give(0, "x", GenerationEnd::kCancelled);  // dropped
  fake.Poll();
}

TEST(CompletionFailures, AreOneRequestsWhenThereIsNoMemoryForIt) {
  FakeServing fake;
  fake.client.has_memory = false;
  const FakeExchange& refused = fake.Ask(kStream);
  ASSERT_TRUE(refused.response().has_value());
  EXPECT_EQ(refused.response()->status, 503);
  fake.client.has_memory = true;
  EXPECT_FALSE(fake.Ask(kStream).response().has_value());
  EXPECT_EQ(fake.serving.completions.live(), 1);
}

TEST(CompletionFailures, NameTheClientsFieldOfAGrammar) {
  struct Case {
    std::string fields;
    std::string parameter;  // the engine's
    std::string param;
    std::string message = " = a schema is not allowed: no, at /a";
  };
  const Case cases[] = {
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}})", "json_schema",
       "response_format.json_schema.schema"},
      {R"("structured_outputs":{"json":{}})", "json_schema", "structured_outputs.json"},
      {R"("guided_json":{})", "json_schema", "guided_json", ".size() = 9 is not allowed: 0"},
      {R"("guided_choice":["a"])", "grammar", "guided_choice"},
      {R"("grammar":"start: \"a\"")", "lark", "grammar"},
      {R"("structured_outputs":{"regex":"a"})", "regex", "structured_outputs.regex"},
  };
  for (const Case& one : cases) {
    for (const char* const stream : {"true", "false"}) {
      SCOPED_TRACE(one.fields);
      FakeServing fake(SettingsOfTests(), {.has_grammars = true});
      const FakeExchange& exchange =
          fake.Ask(R"({"prompt":"a","stream":)" + std::string(stream) + "," + one.fields + "}");
      fake.client.Fail(0, kRejected, ErrorCode::kInvalidValue, one.parameter + one.message);
      fake.client.NameParameter(one.parameter + (one.message[0] == '.' ? ".size()" : ""));
      fake.Poll();
      ASSERT_TRUE(exchange.response().has_value());
      EXPECT_EQ(exchange.response()->status, 400);
      const ReadError error = Read(exchange).error.value();
      EXPECT_EQ(error.param, one.param);
      EXPECT_EQ(error.message, one.param + one.message);
      ExpectNothingLeft(fake);
    }
  }
  // What is about something else keeps its name.
  FakeServing fake(SettingsOfTests(), {.has_grammars = true});
  const FakeExchange& exchange = fake.Ask(R"({"prompt":"a","regex":"a"})");
  fake.client.Fail(0, kRejected, ErrorCode::kInvalidValue, "regexes = 1");
  fake.client.NameParameter("regexes");
  fake.Poll();
  EXPECT_EQ(Read(exchange).error->param, "regexes");
}

TEST(CompletionFailures, GiveARejectionBeforeTheHeadAStatusOfItsOwn) {
  for (const char* const body : {kStream, kWhole}) {
    FakeServing fake;
    const FakeExchange& full = fake.Ask(body);
    const FakeExchange& bad = fake.Ask(body);
    fake.client.Fail(0, kRejected, ErrorCode::kExhausted, "the queue is full");
    fake.client.Fail(1, kRejected, ErrorCode::kInvalidValue, "top_k is not so");
    fake.Poll();
    ASSERT_TRUE(full.response().has_value());
    EXPECT_EQ(full.response()->status, 503);
    EXPECT_NE(full.Retry(), "");
    ASSERT_TRUE(bad.response().has_value());
    EXPECT_EQ(bad.response()->status, 400);
    EXPECT_EQ(Read(bad).error->message, "top_k is not so");
    ExpectNothingLeft(fake);
  }
}

TEST(CompletionFailures, HoldTheHeadUntilEveryChoiceIsTaken) {
  FakeServing fake;
  const FakeExchange& exchange = fake.Ask(kTwo);
  fake.client.Give(0, "x");
  fake.Poll();
  EXPECT_FALSE(exchange.head().has_value());
  fake.client.Fail(1, kRejected, ErrorCode::kExhausted, "full");
  fake.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->status, 503);
  EXPECT_EQ(fake.client.aborted, (std::vector<RequestId>{{1}}));
  ExpectNothingLeft(fake);
}

TEST(CompletionFailures, HoldTheHeadNoLongerThanItsPatience) {
  FakeServing fake;
  const FakeExchange& exchange = fake.Ask(kTwo);
  fake.client.Give(0, "x");
  fake.Poll();
  fake.serving.Tick(milliseconds(500));
  EXPECT_FALSE(exchange.head().has_value());
  fake.serving.Tick(milliseconds(1500));
  ASSERT_TRUE(exchange.head().has_value());
  EXPECT_EQ(Read(exchange).choices[0].text, "x");
  fake.client.Fail(1, kRejected, ErrorCode::kExhausted, "full");
  fake.Poll();
  ExpectErrorEvent(exchange, "x");
  ExpectNothingLeft(fake);
}

TEST(CompletionFailures, EndAStreamThatLostItsEngineWithAnError) {
  FakeServing fake;
  const FakeExchange& before = fake.Ask(kStream);
  const FakeExchange& whole = fake.Ask(kWhole);
  const FakeExchange& behind = fake.Ask(kTwo);
  fake.client.Give(2, "x");
  fake.client.Give(3, "y");
  fake.Poll();
  for (size_t i = 0; i < 4; ++i) {
    const bool has_more = i >= 2;
    fake.client.Fail(i, kLost, ErrorCode::kUnavailable,
                     "the engine ipc:///tmp/sluice-a/engine: it died", RowStatus::kOk,
                     has_more ? "held" : "");
  }
  fake.Poll();
  for (const FakeExchange* const exchange : {&before, &whole}) {
    ASSERT_TRUE(exchange->response().has_value());
    EXPECT_EQ(exchange->response()->status, 503);
    EXPECT_EQ(Read(*exchange).error->message,
              "the engine that computed this request was lost; it may be sent again");
  }
  ExpectErrorEvent(behind, "xheld");
  EXPECT_EQ(Read(behind).choices[1].text, "yheld");
  EXPECT_EQ(Read(behind).error->type, "service_unavailable");
  EXPECT_EQ(Read(behind).error->message.find("ipc:"), std::string::npos);
  ExpectNothingLeft(fake);
}

TEST(CompletionFailures, NameTheStatusOfARow) {
  FakeServing fake;
  const FakeExchange& empty = fake.Ask(kWhole);
  const FakeExchange& nan = fake.Ask(kStream);
  const FakeExchange& runner = fake.Ask(kStream);
  constexpr auto kStatus = GenerationEnd::kStatus;
  fake.client.Fail(0, kStatus, ErrorCode::kInvalidValue, "", RowStatus::kEmptySupport);
  fake.client.Fail(1, kStatus, ErrorCode::kInvalidValue, "", RowStatus::kNanInput);
  fake.client.Give(2, "x");
  fake.Poll();
  EXPECT_EQ(empty.response()->status, 400);
  EXPECT_EQ(Read(empty).error->code, "empty_support");
  EXPECT_EQ(nan.response()->status, 500);
  EXPECT_EQ(Read(nan).error->type, "server_error");
  fake.client.Fail(2, kStatus, ErrorCode::kExhausted, "no pages are left");
  fake.Poll();
  ExpectErrorEvent(runner, "x");
  EXPECT_EQ(Read(runner).error->message, "no pages are left");
}

TEST(CompletionFailures, EndAllAtEveryStage) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.encode_inline_bytes = 64;
  FakeServing fake(settings);
  server::Completions& completions = fake.serving.completions;  // the loop stands still
  const FakeExchange& preparing = fake.Ask(R"({"prompt":")" + std::string(100, 'a') + "\"}");
  const FakeExchange& whole = fake.Ask(kWhole);
  const FakeExchange& silent = fake.Ask(kStream);
  const FakeExchange& streaming = fake.Ask(kStream);
  FakeExchange& slow = fake.Ask(kStream);
  fake.client.Give(2, "x");
  fake.client.Give(3, "y");
  completions.Poll();
  slow.reads = false;
  fake.client.Give(3, std::string(100'000, 'z'));
  completions.Poll();
  fake.client.Give(3, "end", kLength);
  completions.Poll();
  completions.EndAll("the server ends");
  ExpectNothingLeft(fake);
  for (const FakeExchange* const exchange : {&preparing, &whole, &silent}) {
    ASSERT_TRUE(exchange->response().has_value());
    EXPECT_EQ(exchange->response()->status, 503);
    EXPECT_EQ(Read(*exchange).error->message, "the server ends");
  }
  ExpectErrorEvent(streaming, "x");
  slow.Read();  // was over, and only its reader was behind
  EXPECT_EQ(Read(slow).choices[0].finish, "length");
  EXPECT_EQ(Read(slow).choices[0].text, "y" + std::string(100'000, 'z') + "end");
  EXPECT_EQ(fake.client.aborted.size(), 3u);
  // What the pool brings now finds nobody.
  bool is_behind = false;
  fake.serving.pool.Run([] {}, fake.serving.loop.get_executor(), [&] { is_behind = true; });
  ASSERT_TRUE(fake.serving.Becomes([&] { return is_behind; }));
  EXPECT_EQ(fake.client.submitted.size(), 4u);
}

// --- the peer goes away ------------------------------------------------------------------------

TEST(CompletionDisconnect, WhileItsPromptIsEncoded) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.encode_inline_bytes = 64;
  FakeServing fake(settings);
  for (int i = 0; i < 20; ++i) {
    FakeExchange& exchange = fake.Ask(R"({"prompt":")" + std::string(3000, 'a') + "\"}");
    exchange.answer.reset();
    fake.serving.exchanges().pop_back();
  }
  ExpectNothingLeft(fake);
  FakeExchange& last = fake.Ask(R"({"prompt":")" + std::string(3000, 'b') + "\"}");
  ASSERT_TRUE(fake.serving.Becomes([&] { return !fake.client.submitted.empty(); }));
  EXPECT_EQ(fake.client.submitted.size(), 1u) << "of those that went, none is submitted";
  EXPECT_EQ(fake.client.submitted[0].prompt[0], 1);
  last.answer.reset();
}

TEST(CompletionDisconnect, AbortsWhatLives) {
  for (const char* const body : {kTwo, R"({"prompt":"a","n":2})"}) {
    for (const int outputs : {0, 1, 2}) {
      FakeServing fake;
      FakeExchange& exchange = fake.Ask(body);
      for (int i = 0; i < outputs; ++i) {
        fake.client.Give(0, "x", i == 1 ? kLength : GenerationEnd::kNone);
        fake.client.Give(1, "y");
        fake.Poll();
      }
      exchange.answer.reset();
      fake.serving.exchanges().clear();
      ExpectNothingLeft(fake);
      const std::vector<RequestId> both = {{1}, {2}};
      const std::vector<RequestId> second = {{2}};
      EXPECT_EQ(fake.client.aborted, outputs == 2 ? second : both);
      // These come late, to nobody.
      fake.client.Give(0, "x", GenerationEnd::kCancelled);
      fake.client.Give(1, "y", GenerationEnd::kCancelled);
      fake.Poll();
    }
  }
}

TEST(CompletionDisconnect, BehindTheFinishAbortsNothing) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(kStream);
  fake.client.Give(0, "x", kLength);
  fake.Poll();
  exchange.answer.reset();
  EXPECT_TRUE(fake.client.aborted.empty());
  ExpectNothingLeft(fake);
}

TEST(CompletionDisconnect, LeavesTheOthersAlone) {
  FakeServing fake;
  std::vector<FakeExchange*> all;
  for (int i = 0; i < 10; ++i) all.push_back(&fake.Ask(kStream));
  for (size_t i = 0; i < 10; ++i) fake.client.Give(i, "x");
  fake.Poll();
  for (size_t i = 0; i < 10; i += 3) all[i]->answer.reset();
  for (size_t i = 0; i < 10; ++i) fake.client.Give(i, "y", kLength);
  fake.Poll();
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(all[i]->is_complete(), i % 3 != 0);
    if (i % 3 != 0) {
      EXPECT_EQ(Read(*all[i]).choices[0].text, "xy");
    }
  }
}

TEST(CompletionDisconnect, AnAnswerMayOutliveItsCompletions) {
  const ModelText text = LettersText();
  FakeClient client(InfoOf(text.tokenizer()), text.tokenizer());
  FakeExchange exchange(kStream);
  {
    Serving serving(client, text);
    exchange.answer = serving.completions.Begin(exchange, Api::kCompletions);
  }
  EXPECT_EQ(client.aborted.size(), 1u);
  exchange.answer.reset();
  EXPECT_EQ(client.aborted.size(), 1u);
}

}  // namespace
}  // namespace sluice::test
