// Readers that fall behind lose nothing, and cost no more than what they have not read; silence is
// broken by comments.
#include "server/completions.h"
#include "server/completions/choice.h"
#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

constexpr auto kLength = GenerationEnd::kLength;

TEST(SlowReader, GetsWhatItMissedAsOneDelta) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","n":2,"stream":true,)"
                                    R"("stream_options":{"include_usage":true}})");
  const size_t coalesce_bytes = SettingsOfTests().coalesce_bytes;
  exchange.reads = false;
  std::string first;
  std::string second;
  for (int i = 0; i < 20'000; ++i) {
    first += "f" + std::to_string(i) + " ";
    second += "s" + std::to_string(i) + " ";
    const bool is_last = i == 19'999;
    fake.client.Give(0, "f" + std::to_string(i) + " ", is_last ? kLength : GenerationEnd::kNone);
    fake.client.Give(1, "s" + std::to_string(i) + " ");
    fake.Poll();
    // What one Poll wrote may lie beyond: two events.
    ASSERT_LE(exchange.unsent(), coalesce_bytes + 1000);
  }
  EXPECT_GT(fake.serving.completions.counters().coalesced, 1000);
  exchange.Read();
  EXPECT_EQ(Read(exchange).choices[0].text, first);
  EXPECT_EQ(Read(exchange).choices[0].finish, "length");
  EXPECT_EQ(Read(exchange).choices[1].text, second);
  fake.client.Give(1, "more", kLength);
  fake.Poll();
  ASSERT_TRUE(exchange.is_complete());
  ReadResponse got = Read(exchange);
  EXPECT_EQ(got.choices[1].text, second + "more");
  EXPECT_EQ(got.usage, (ReadUsage{1, 40'001}));
  EXPECT_LT(got.choices[0].deltas.size(), 2000u);
}

// Room is only told of behind a first write.
TEST(SlowReader, OfTheResponseInFrontGetsTheBeginningOfTheNextOne) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","stream":true})");
  exchange.reads = false;
  exchange.LeaveUnread(SettingsOfTests().coalesce_bytes + 1);
  fake.client.Give(0, "x");
  fake.Poll();
  EXPECT_TRUE(exchange.head().has_value());
  EXPECT_EQ(exchange.flushes(), 1);
  fake.client.Give(0, "y");
  fake.Poll();
  EXPECT_EQ(exchange.flushes(), 1);
  EXPECT_EQ(fake.serving.completions.counters().coalesced, 1);
}

TEST(SlowReader, GetsItsEndWhenThereIsRoom) {
  for (const bool fails : {false, true}) {
    FakeServing fake;
    FakeExchange& exchange = fake.Ask(R"({"prompt":"a","stream":true})");
    exchange.reads = false;
    const std::string flood(100'000, 'x');
    fake.client.Give(0, flood);
    fake.Poll();
    fake.client.Give(0, "kept");
    fake.Poll();
    if (fails) {
      fake.client.Fail(0, GenerationEnd::kEngineLost, ErrorCode::kUnavailable, "it died");
    } else {
      fake.client.Give(0, "last", kLength);
    }
    fake.Poll();
    EXPECT_FALSE(exchange.is_complete());
    EXPECT_EQ(fake.serving.completions.live(), 1);
    exchange.Read();
    ASSERT_TRUE(exchange.is_complete());
    ReadResponse got = Read(exchange);
    EXPECT_TRUE(got.is_done);
    EXPECT_EQ(got.error.has_value(), fails);
    EXPECT_EQ(got.choices[0].text, flood + (fails ? "kept" : "keptlast"));
    EXPECT_EQ(fake.serving.completions.live(), 0);
  }
}

TEST(SlowReader, IsToldWhenMoreWaitsThanMayAndGetsAllThatWaited) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.unsent_bytes = 100'000;
  FakeServing fake(settings);
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","n":2,"stream":true})");
  FakeExchange& other = fake.Ask(R"({"prompt":"a","stream":true})");
  exchange.reads = false;
  std::string given[2];
  const std::string piece(1000, 'x');
  for (int i = 0; i < 1000 && fake.client.aborted.empty(); ++i) {
    for (const size_t choice : {0, 1}) {
      fake.client.Give(choice, piece);
      given[choice] += piece;
    }
    fake.client.Give(2, "o");
    fake.Poll();
  }
  EXPECT_EQ(fake.client.aborted, (std::vector<RequestId>{{1}, {2}}));
  // To be sent, and waiting for that; the last outputs, and what JSON adds to each.
  EXPECT_LE(given[0].size() + given[1].size(), settings.coalesce_bytes + 100'000 + 20'000);
  exchange.Read();
  ASSERT_TRUE(exchange.is_complete());
  ReadResponse got = Read(exchange);
  EXPECT_TRUE(got.is_done);
  ASSERT_TRUE(got.error.has_value());
  EXPECT_EQ(got.error->code, "slow_reader");
  EXPECT_NE(got.error->message.find("100000 bytes"), std::string::npos);
  for (const size_t choice : {0, 1}) {
    EXPECT_EQ(got.choices[static_cast<int64_t>(choice)].text, given[choice]);
    EXPECT_EQ(got.choices[static_cast<int64_t>(choice)].finish, "");
  }
  EXPECT_EQ(fake.serving.completions.counters().slow_readers, 1);
  EXPECT_EQ(fake.serving.completions.live(), 1) << "nobody else's";
  EXPECT_FALSE(other.is_complete());
}

// What ends by itself is given whole, however much of it waits.
TEST(SlowReader, IsSparedWhereNothingMoreComes) {
  server::CompletionSettings settings = SettingsOfTests();
  settings.unsent_bytes = 1000;
  FakeServing fake(settings);
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","stream":true})");
  exchange.reads = false;
  const std::string flood(100'000, 'x');
  fake.client.Give(0, flood);
  fake.Poll();
  fake.client.Give(0, flood, kLength);
  fake.Poll();
  exchange.Read();
  ASSERT_TRUE(exchange.is_complete());
  EXPECT_FALSE(Read(exchange).error.has_value());
  EXPECT_EQ(Read(exchange).choices[0].text, flood + flood);
}

TEST(PendingDelta, CountsWhatIsToldOfItsTokensToo) {
  const std::vector<int32_t> ids = {1, 2};
  const std::vector<float> logprobs = {-1, -2};
  const std::vector<int32_t> listed = {1, 5, 6, 2, 7, 8};
  const std::vector<float> values = {-1, -2, -3, -4, -5, -6};
  server::PendingDelta pending;
  pending.Append({.text = "abc",
                  .ids = ids,
                  .logprobs = logprobs,
                  .ranks = ids,
                  .logprob_width = 3,
                  .logprob_ids = listed,
                  .logprob_values = values},
                 {.ids = true, .logprobs = true});
  EXPECT_EQ(pending.bytes(), 3 + 4 * (2 + 2 + 2 + 4 + 4u));  // of the lists the token's own is out
  pending.Clear();
  EXPECT_EQ(pending.bytes(), 0u);
}

TEST(KeepAlive, BreaksSilenceWithAComment) {
  FakeServing fake;
  FakeExchange& stream = fake.Ask(R"({"prompt":"a","stream":true})");
  FakeExchange& whole = fake.Ask(R"({"prompt":"a"})");
  fake.serving.Tick(milliseconds(14'000));
  EXPECT_FALSE(stream.head().has_value());
  fake.serving.Tick(milliseconds(15'500));
  ASSERT_TRUE(stream.head().has_value()) << "from keep_alive on the status is out";
  EXPECT_EQ(Read(stream).comments, 1);
  fake.serving.Tick(milliseconds(16'000));
  EXPECT_EQ(Read(stream).comments, 1);
  fake.serving.Tick(milliseconds(31'000));
  EXPECT_EQ(Read(stream).comments, 2);
  EXPECT_FALSE(whole.head().has_value());

  fake.client.Fail(0, GenerationEnd::kRejected, ErrorCode::kExhausted, "full");
  fake.Poll();
  ASSERT_TRUE(stream.is_complete());
  EXPECT_EQ(Read(stream).error->message, "full");
  EXPECT_TRUE(Read(stream).is_done);
}

TEST(KeepAlive, SparesAReaderThatHasEnoughToRead) {
  FakeServing fake;
  FakeExchange& exchange = fake.Ask(R"({"prompt":"a","stream":true})");
  exchange.reads = false;
  fake.client.Give(0, "x");
  fake.Poll();
  fake.serving.Tick(milliseconds(60'000));
  exchange.Read();
  EXPECT_EQ(Read(exchange).comments, 0);
}

}  // namespace
}  // namespace sluice::test
