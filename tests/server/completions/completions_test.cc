// From a request to what the engine gets, and from outputs to a response.
#include "server/completions.h"

#include <thread>

#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

constexpr auto kLength = GenerationEnd::kLength;

TEST(Completions, StreamsRoleContentFinishUsageAndDone) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"messages":[{"role":"user","content":"ab"}],"stream":true,)"
                                    R"("stream_options":{"include_usage":true}})",
                                    Api::kChat);
  fake.Poll();
  EXPECT_FALSE(exchange.head().has_value()) << "before the engine has taken it";
  fake.client.Give(0, "he");
  fake.Poll();
  ASSERT_TRUE(exchange.head().has_value());
  EXPECT_EQ(exchange.head()->content_type, "text/event-stream; charset=utf-8");
  EXPECT_EQ(Read(exchange).choices[0].text, "he");
  fake.client.Give(0, "llo", GenerationEnd::kStopToken);
  fake.Poll();
  EXPECT_TRUE(exchange.is_complete());
  EXPECT_EQ(exchange.flushes(), 2);

  const ReadResponse got = Read(exchange);
  EXPECT_TRUE(got.is_done);
  EXPECT_EQ(got.roles, 1);
  EXPECT_EQ(got.id, "chatcmpl-req-1");
  EXPECT_EQ(got.model, "letters");
  EXPECT_EQ(got.choices.at(0).deltas, (std::vector<std::string>{"he", "llo"}));
  EXPECT_EQ(got.choices.at(0).finish, "stop");
  EXPECT_EQ(got.usage, (ReadUsage{2, 2}));
  EXPECT_EQ(got.usages.size(), 1u);
  EXPECT_EQ(fake.client.submitted[0].prompt, Ids("ab"));
  EXPECT_EQ(fake.client.submitted[0].mode, OutputMode::kDelta);
}

TEST(Completions, AnswersAWholeResponse) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"model":"alias","prompt":"ab","max_tokens":7})");
  fake.client.Give(0, "hello", kLength, 7);
  fake.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->status, 200);
  const ReadResponse got = Read(exchange);
  EXPECT_EQ(got.model, "alias");
  EXPECT_EQ(got.choices.at(0).text, "hello");
  EXPECT_EQ(got.choices.at(0).finish, "length");
  EXPECT_EQ(got.usage, (ReadUsage{2, 7}));
  EXPECT_EQ(fake.client.submitted[0].mode, OutputMode::kFinal);
  EXPECT_EQ(fake.client.submitted[0].max_tokens, 7);
}

TEST(Completions, RefusesWithTheStatusOfTheFault) {
  struct Case {
    std::string body;
    int status;
    std::string param;
    std::string code;
    std::string part;  // of the message
  };
  const std::string long_prompt(4096, 'a');
  const Case cases[] = {
      {R"({"model":"nope","prompt":"a"})", 404, "model", "model_not_found", "nope"},
      {R"({"prompt":"a","n":0})", 400, "n", "", ""},
      {R"({"prompt":)", 400, "", "json_parse_error", ""},
      {R"({"prompt":""})", 400, "prompt", "", "at least one token"},
      {R"({"prompt":")" + long_prompt + "\"}", 400, "prompt", "context_length_exceeded", "4096"},
      {R"({"prompt":[["a"]]})", 400, "prompt", "", ""},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.body.substr(0, 60));
    FakeServing fake;
    FakeExchange& exchange = fake.Ask(one.body);
    ASSERT_TRUE(exchange.response().has_value());
    EXPECT_EQ(exchange.response()->status, one.status);
    const ReadResponse got = Read(exchange);
    ASSERT_TRUE(got.error.has_value());
    EXPECT_EQ(got.error->param, one.param);
    EXPECT_EQ(got.error->code, one.code);
    EXPECT_NE(got.error->message.find(one.part), std::string::npos) << got.error->message;
    EXPECT_TRUE(fake.client.submitted.empty());
    EXPECT_EQ(fake.serving.completions.live(), 0);
  }
}

TEST(Completions, GivesEveryChoiceTheGrammar) {
  FakeServing fake(SettingsOfTests(), {.has_grammars = true});
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","n":2,"guided_regex":"a+"})");
  ASSERT_EQ(fake.client.submitted.size(), 2u);
  const OutputGrammar regex = {.kind = GrammarKind::kRegex, .text = "a+"};
  for (const ClientRequest& request : fake.client.submitted) EXPECT_EQ(request.grammar, regex);
  fake.client.Give(0, "aa", GenerationEnd::kStopToken, 2);
  fake.client.Give(1, "a", GenerationEnd::kStopToken, 1);
  fake.Poll();
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(Read(exchange).choices.at(0).finish, "stop");
  fake.Ask(R"({"prompt":"a","response_format":{"type":"text"}})");
  EXPECT_EQ(fake.client.submitted.back().grammar, std::nullopt);
}

TEST(Completions, RefusesAGrammarWhereTheEngineTakesNone) {
  FakeServing fake;
  for (const char* const body :
       {R"({"prompt":"a","response_format":{"type":"json_object"}})",
        R"({"prompt":"a","stream":true,"response_format":{"type":"json_object"}})"}) {
    FakeExchange& exchange = fake.Ask(body);
    ASSERT_TRUE(exchange.response().has_value());
    EXPECT_EQ(exchange.response()->status, 400);
    const ReadError error = Read(exchange).error.value();
    EXPECT_EQ(error.param, "response_format");
    EXPECT_EQ(error.code, "unsupported_parameter");
    EXPECT_NE(error.message.find("pip install --no-deps xgrammar==0.2.8"), std::string::npos);
  }
  EXPECT_TRUE(fake.client.submitted.empty());
  EXPECT_EQ(fake.serving.completions.live(), 0);
}

TEST(Completions, RefusesMessagesThatTheTemplateRefuses) {
  const std::string tokenizer = LettersJson();
  const ModelText text = ModelText::FromFiles(
      {.tokenizer = tokenizer, .chat_template = "{{ raise_exception('not so') }}"});
  FakeClient client(InfoOf(text.tokenizer()), text.tokenizer());
  Serving serving(client, text);
  FakeExchange& exchange =
      serving.Ask(R"({"messages":[{"role":"user","content":"a"}]})", Api::kChat);
  ASSERT_TRUE(exchange.response().has_value());
  EXPECT_EQ(exchange.response()->status, 400);
  EXPECT_EQ(Read(exchange).error->param, "messages");
}

TEST(Completions, GivesWhatTheContextLeaves) {
  FakeServing fake;
  fake.Ask(R"({"prompt":"abc"})");
  fake.Ask(R"({"prompt":"abc","max_tokens":100000})");
  fake.Ask(R"({"prompt":"abc","max_tokens":10})");
  ASSERT_EQ(fake.client.submitted.size(), 3u);
  EXPECT_EQ(fake.client.submitted[0].max_tokens, 4093);
  EXPECT_EQ(fake.client.submitted[1].max_tokens, 4093);
  EXPECT_EQ(fake.client.submitted[2].max_tokens, 10);
}

TEST(Completions, GivesAllChoicesOneSeedAndNumbersOfTheirOwn) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"prompt":["a","bc"],"n":2,"max_tokens":5,"stream":true,)"
                                    R"("stream_options":{"include_usage":true}})");
  ASSERT_EQ(fake.client.submitted.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const ClientRequest& request = fake.client.submitted[i];
    EXPECT_EQ(request.choice, i);
    EXPECT_EQ(request.prompt, Ids(i < 2 ? "a" : "bc"));
    ASSERT_TRUE(request.params.seed.has_value());
    EXPECT_EQ(request.params.seed, fake.client.submitted[0].params.seed);
    fake.client.Give(i, std::string(i + 1, 'x'), kLength, 5);
  }
  fake.Poll();
  EXPECT_EQ(exchange.flushes(), 1) << "one flush an exchange and Poll";
  ReadResponse got = Read(exchange);
  EXPECT_TRUE(got.is_done);
  EXPECT_EQ(got.seed, fake.client.submitted[0].params.seed);
  ASSERT_EQ(got.choices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.choices[static_cast<int64_t>(i)].text, std::string(i + 1, 'x'));
  }
  EXPECT_EQ(got.usage, (ReadUsage{3, 20})) << "a prompt counts once";

  fake.Ask(R"({"prompt":"a","seed":77})");
  EXPECT_EQ(fake.client.submitted[4].params.seed, 77u);
}

// So that it can be given back: a number in JavaScript has 53 bits.
TEST(Completions, DrawsSeedsThatEveryClientCanSpell) {
  FakeServing fake;
  for (size_t i = 0; i < 100; ++i) {
    fake.Ask(R"({"prompt":"a"})");
    ASSERT_LT(*fake.client.submitted[i].params.seed, uint64_t{1} << 53);
  }
  EXPECT_NE(fake.client.submitted[0].params.seed, fake.client.submitted[1].params.seed);
  FakeExchange& own = fake.Ask(R"({"prompt":"a","seed":18446744073709551615})");
  fake.client.Give(100, "x", kLength);
  fake.Poll();
  EXPECT_EQ(Read(own).seed, UINT64_MAX) << "one that is given stays what it is";
}

TEST(Completions, TellsNothingOfAPromptOfOneTokenButItself) {
  for (const bool streams : {false, true}) {
    FakeServing fake;
    FakeExchange& exchange =
        fake.Ask(std::string(R"({"prompt":"a","echo":true,"logprobs":0,"max_tokens":0,"stream":)") +
                 (streams ? "true}" : "false}"));
    fake.client.Give(0, "", kLength, 0);
    fake.Poll();
    ASSERT_TRUE(exchange.is_complete());
    const ReadResponse got = Read(exchange);
    EXPECT_EQ(got.choices.at(0).text, "a");
    EXPECT_EQ(got.choices.at(0).logprobs, (std::vector<double>{0})) << "null, for the one token";
    EXPECT_EQ(got.choices.at(0).offsets, (std::vector<int64_t>{0}));
  }
}

TEST(Completions, RefusesWhatComesBehindTheEnd) {
  FakeServing fake;
  fake.serving.completions.EndAll("the server ends");
  for (const char* const body : {R"({"prompt":"a"})", R"({"prompt":"a","stream":true})", "{"}) {
    const FakeExchange& late = fake.Ask(body);
    ASSERT_TRUE(late.response().has_value());
    EXPECT_EQ(late.response()->status, 503);
    EXPECT_EQ(Read(late).error->message, "the server ends");
  }
  EXPECT_TRUE(fake.client.submitted.empty());
  EXPECT_EQ(fake.serving.completions.live(), 0);
}

TEST(Completions, InterleavesChoicesThatEndAtTheirOwnTime) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","n":2,"stream":true,)"
                                    R"("stream_options":{"include_usage":true}})");
  fake.client.Give(0, "a0 ");
  fake.client.Give(1, "b0 ");
  fake.Poll();
  fake.client.Give(1, "b1");
  fake.client.Give(0, "a1", GenerationEnd::kStopString);
  fake.Poll();
  EXPECT_FALSE(exchange.is_complete());
  fake.client.Give(1, " b2", kLength);
  fake.Poll();
  ASSERT_TRUE(exchange.is_complete());
  ReadResponse got = Read(exchange);
  EXPECT_EQ(got.choices[0].text, "a0 a1");
  EXPECT_EQ(got.choices[0].finish, "stop");
  EXPECT_EQ(got.choices[1].text, "b0 b1 b2");
  EXPECT_EQ(got.choices[1].finish, "length");
  EXPECT_EQ(got.usage, (ReadUsage{1, 5}));
}

TEST(Completions, SumsContinuousUsageOverChoices) {
  FakeServing fake;
  FakeExchange& exchange =
      fake.Ask(R"({"prompt":"ab","stream":true,)"
               R"("stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  fake.client.Give(0, "x");
  fake.Poll();
  fake.client.Give(0, "y", kLength);
  fake.Poll();
  const ReadResponse got = Read(exchange);
  EXPECT_EQ(got.usages, (std::vector<ReadUsage>{{2, 1}, {2, 2}, {2, 2}, {2, 2}}));
  EXPECT_TRUE(exchange.is_complete());
}

TEST(Completions, PutsThePromptInFrontWithEcho) {
  for (const bool streams : {false, true}) {
    for (const char* const prompt : {R"("abc")", "[0,1,2]"}) {
      FakeServing fake;
      FakeExchange& exchange = fake.Ask(std::string(R"({"echo":true,"n":2,"prompt":)") + prompt +
                                        R"(,"stream":)" + (streams ? "true}" : "false}"));
      fake.client.Give(0, "x", kLength);
      fake.client.Give(1, "y", kLength);
      fake.Poll();
      ReadResponse got = Read(exchange);
      EXPECT_EQ(got.choices[0].text, "abcx");
      EXPECT_EQ(got.choices[1].text, "abcy");
      EXPECT_TRUE(got.is_done);
    }
  }
}

// A stop token that nobody named is the model's own end.
TEST(Completions, TellsTheStopThatTheRequestNamed) {
  const auto reason = [](const std::string& fields, std::string_view stop, int32_t token) {
    FakeServing fake;
    FakeExchange& exchange = fake.Ask(R"({"prompt":"a")" + fields + "}");
    fake.client.Give(0, "x", token < 0 ? GenerationEnd::kStopString : GenerationEnd::kStopToken);
    fake.client.NameStop(stop, token);
    fake.Poll();
    return Read(exchange).choices[0].stop_reason;
  };
  EXPECT_EQ(reason(R"(,"stop":["q"])", "q", -1), "\"q\"");
  EXPECT_EQ(reason("", "", kEnd), "null");
  EXPECT_EQ(reason(R"(,"stop_token_ids":[3])", "", 3), "3");
  EXPECT_EQ(reason(R"(,"stop":["<end>"])", "", kEnd), "\"<end>\"");
}

TEST(Completions, RefusesMoreThanMaxRequests) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.max_requests = 2;
  FakeServing fake(settings);
  FakeExchange& first = fake.Ask(R"({"prompt":"a"})");
  fake.Ask(R"({"prompt":"a"})");
  FakeExchange& third = fake.Ask(R"({"prompt":"a"})");
  ASSERT_TRUE(third.response().has_value());
  EXPECT_EQ(third.response()->status, 503);
  EXPECT_NE(third.Retry(), "");
  first.answer.reset();
  fake.Ask(R"({"prompt":"a"})");
  EXPECT_EQ(fake.client.submitted.size(), 3u);
}

TEST(Completions, PreparesLongBodiesOnThePool) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.encode_inline_bytes = 64;
  FakeServing fake(settings);
  const std::string prompt(1000, 'b');
  FakeExchange& good = fake.Ask(R"({"prompt":")" + prompt + R"(","max_tokens":1})");
  FakeExchange& bad =
      fake.Ask(R"({"prompt":")" + prompt + prompt + prompt + prompt + prompt + "\"}");
  EXPECT_TRUE(fake.client.submitted.empty());
  EXPECT_EQ(fake.serving.completions.live(), 2);
  ASSERT_TRUE(fake.serving.Becomes([&] { return !fake.client.submitted.empty(); }));
  EXPECT_EQ(fake.client.submitted[0].prompt, Ids(prompt));
  fake.client.Give(0, "x", kLength);
  ASSERT_TRUE(fake.serving.Completes(good));
  EXPECT_EQ(good.response()->status, 200);
  ASSERT_TRUE(fake.serving.Completes(bad));
  EXPECT_EQ(Read(bad).error->code, "context_length_exceeded");
  EXPECT_EQ(Read(bad).error->message.find("This model's maximum context length is 4096 tokens. "
                                          "However, you requested "),
            0u)
      << Read(bad).error->message;
  EXPECT_EQ(fake.serving.completions.live(), 0);
}

// A letter is a token and a text of more than 4096 letters too long, however long it is: what the
// error says was not counted to the end.
TEST(Completions, ATextThatCannotFitIsNotEncoded) {
  FakeServing fake;
  const std::string text(100'000, 'b');
  FakeExchange& long_one = fake.Ask(R"({"prompt":")" + text + R"(","max_tokens":2})");
  ASSERT_TRUE(fake.serving.Completes(long_one));
  const ReadError error = *Read(long_one).error;
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_TRUE(
      error.message.starts_with("This model's maximum context length is 4096 tokens. "
                                "However, you requested at least "))
      << error.message;
  // The same words for one that is encoded up to there.
  const std::string near(4200, 'b');
  FakeExchange& near_one = fake.Ask(R"({"prompt":")" + near + R"("})");
  EXPECT_NE(Read(near_one).error->message.find("at least 4"), std::string::npos);
  // Ids are counted.
  std::string ids = "[1";
  for (int i = 1; i < 4100; ++i) ids += ",1";
  FakeExchange& of_ids = fake.Ask(R"({"prompt":)" + ids + "]}");
  ASSERT_TRUE(fake.serving.Completes(of_ids));
  EXPECT_NE(Read(of_ids).error->message.find("requested 4101 tokens (4100 in the prompt"),
            std::string::npos)
      << Read(of_ids).error->message;
}

TEST(Completions, TruncatesAPromptToItsLastTokens) {
  FakeServing fake;
  const auto prompt_of = [&](const std::string& fields) {
    const size_t count = fake.client.submitted.size();
    fake.Ask("{" + fields + "}");
    EXPECT_EQ(fake.client.submitted.size(), count + 1) << fields;
    return fake.client.submitted.back().prompt;
  };
  EXPECT_EQ(prompt_of(R"("prompt":"abcdef","truncate_prompt_tokens":2)"), Ids("ef"));
  EXPECT_EQ(prompt_of(R"("prompt":"abc","truncate_prompt_tokens":5)"), Ids("abc"));
  EXPECT_EQ(prompt_of(R"("prompt":[1,2,3],"truncate_prompt_tokens":1)"), std::vector<int32_t>{3});
  EXPECT_EQ(prompt_of(R"("prompt":"abc","truncate_prompt_tokens":null)"), Ids("abc"));
  const std::string text = std::string(4090, 'a') + "bcdefghijk";
  const std::vector<int32_t> fits =
      prompt_of(R"("prompt":")" + text + R"(","truncate_prompt_tokens":-1,"max_tokens":96)");
  EXPECT_EQ(fits.size(), 4000u);
  EXPECT_EQ(fits.back(), Ids("k")[0]);
  // With all of the context a text would be refused for its length, whatever was cut.
  for (const char* const wrong : {"0", "-2", "4096", "4097"}) {
    const FakeExchange& refused =
        fake.Ask(R"({"prompt":"abc","truncate_prompt_tokens":)" + std::string(wrong) + "}");
    EXPECT_EQ(Read(refused).error->param, "truncate_prompt_tokens") << wrong;
  }
  EXPECT_EQ(Read(fake.Ask(R"({"prompt":"abc","truncate_prompt_tokens":-1,"max_tokens":4096})"))
                .error->param,
            "max_tokens");
}

TEST(Completions, PassesThePriorityAndTheGroupOn) {
  FakeServing fake;
  fake.serving.Ask(R"({"prompt":"a","priority":-3})", Api::kCompletions, 99);
  EXPECT_EQ(fake.client.submitted.at(0).priority, -3);
  EXPECT_EQ(fake.client.submitted.at(0).group, 99u);
  EXPECT_EQ(Read(fake.Ask(R"({"prompt":"a","priority":1.5})")).error->param, "priority");
}

TEST(Completions, NamesTheFieldsThatItIgnored) {
  const auto ignored = [](const server::HttpResponse& response) {
    for (const server::HttpField& field : response.fields) {
      if (field.name == "X-Ignored-Fields") return field.value;
    }
    return std::string();
  };
  FakeServing fake;
  FakeExchange& whole = fake.Ask(R"({"prompt":"ab","temprature":0.5,"a\r\nX-Evil: é":1})");
  FakeExchange& stream = fake.Ask(R"({"prompt":"ab","cache_prompt":true,"stream":true})");
  FakeExchange& none = fake.Ask(R"({"prompt":"ab","user":"u"})");
  const std::string name(300, 'x');
  FakeExchange& many =
      fake.Ask("{\"prompt\":\"ab\",\"1" + name + "\":1,\"2" + name + "\":1,\"y\":1}");
  for (size_t i = 0; i < 4; ++i) fake.client.Give(i, "x", kLength);
  fake.Poll();
  EXPECT_EQ(ignored(*whole.response()), "temprature, a??X-Evil????");
  EXPECT_EQ(ignored(*stream.head()), "cache_prompt");
  EXPECT_EQ(ignored(*none.response()), "");
  EXPECT_EQ(ignored(*many.response()), "1" + name + ", ...");
}

TEST(Completions, CountsWhatHappens) {
  FakeServing fake;
  fake.Ask(R"({"prompt":"abc","foo":1,"stream":true})");
  FakeExchange& gone = fake.Ask(R"({"prompt":"ab","n":2})");
  const server::CompletionCounters& counters = fake.serving.completions.counters();
  EXPECT_EQ(counters.requests, 2);
  EXPECT_EQ(counters.running, 2);
  EXPECT_EQ(counters.choices_running, 3);
  EXPECT_EQ(counters.unknown_fields, 1);
  fake.client.Give(0, "x");
  fake.Poll();
  fake.client.Give(0, "y", kLength, 3);
  fake.Poll();
  gone.answer.reset();
  EXPECT_EQ(counters.running, 0);
  EXPECT_EQ(counters.choices_running, 0);
  EXPECT_EQ(counters.choices_ended[static_cast<size_t>(kLength)], 1);
  EXPECT_EQ(counters.choices_ended[static_cast<size_t>(GenerationEnd::kCancelled)], 2);
  EXPECT_EQ(counters.prompt_tokens, 3);
  EXPECT_EQ(counters.generation_tokens, 4);
  EXPECT_EQ(counters.events, 4);  // two contents, the finish, [DONE]
  EXPECT_EQ(counters.first_token.count, 1);
  EXPECT_EQ(counters.between_tokens.count, 1);
  EXPECT_EQ(counters.end_to_end.count, 1);
}

TEST(Completions, CountsTheTokensThatNobodyGot) {
  FakeServing fake;
  const server::CompletionCounters& counters = fake.serving.completions.counters();
  FakeExchange& whole = fake.Ask(R"({"prompt":"a","n":2})");
  FakeExchange& slow = fake.Ask(R"({"prompt":"a","stream":true})");
  FakeExchange& failed = fake.Ask(R"({"prompt":"a"})");
  FakeExchange& stream = fake.Ask(R"({"prompt":"a","stream":true})");
  fake.client.Give(0, "xx", GenerationEnd::kNone, 2);
  fake.client.Give(2, std::string(100'000, 'x'), GenerationEnd::kNone, 10);
  fake.client.Give(3, "xyz", GenerationEnd::kNone, 3);
  fake.client.Give(4, "xyz", GenerationEnd::kNone, 3);
  slow.reads = false;
  fake.Poll();
  fake.client.Give(2, "waits", GenerationEnd::kNone, 5);
  fake.client.Fail(3, GenerationEnd::kEngineLost, ErrorCode::kUnavailable, "it died");
  fake.client.Fail(4, GenerationEnd::kEngineLost, ErrorCode::kUnavailable, "it died");
  fake.Poll();
  EXPECT_TRUE(failed.is_complete());
  EXPECT_EQ(counters.tokens_failed, 3) << "those of the stream were sent in front of the error";
  EXPECT_TRUE(stream.is_complete());
  whole.answer.reset();
  slow.answer.reset();
  EXPECT_EQ(counters.tokens_left, 2 + 5);
  EXPECT_EQ(counters.tokens_failed, 3);
  EXPECT_EQ(counters.generation_tokens, 2 + 15 + 3 + 3);
}

TEST(CompletionCounters, PutsATimeIntoTheFirstBucketThatHoldsIt) {
  server::CompletionCounters::Histogram histogram;
  for (const double seconds : {0.0, 0.001, 0.0011, 120.0, 121.0}) histogram.Add(seconds);
  EXPECT_EQ(histogram.buckets[0], 2);
  EXPECT_EQ(histogram.buckets[1], 1);
  EXPECT_EQ(histogram.buckets[15], 1);
  EXPECT_EQ(histogram.buckets[16], 1);
  EXPECT_EQ(histogram.count, 5);
}

}  // namespace
}  // namespace sluice::test
