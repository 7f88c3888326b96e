// What a token costs in the steady state, and many exchanges at once.
#include <future>

#include "server/completions.h"
#include "tests/server/completions/serving.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

constexpr auto kLength = GenerationEnd::kLength;

// Outputs that are there already: a Poll of it takes no memory.
class EndlessClient final : public Client {
 public:
  EndlessClient(EngineInfo info, Tokenizer tokenizer)
      : info_(std::move(info)), tokenizer_(std::move(tokenizer)) {}

  static constexpr std::string_view kText = "more than a string has room for in itself";

  bool ends = false;

  const EngineInfo& info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return tokenizer_; }
  RequestId Submit(ClientRequest request) override {
    const int32_t listed = request.params.logprobs.value_or(-1);
    live_.push_back({.request = {++last_}, .logprob_width = listed + 1});
    return live_.back().request;
  }
  void Abort(RequestId) override {}
  uint64_t Seed(RequestId) const override { return 0; }
  int64_t live_requests() const override { return std::ssize(live_); }
  std::span<const ClientOutput> Poll(std::chrono::nanoseconds) override {
    for (ClientOutput& output : live_) {
      output.text = kText;
      output.ids = kIds;
      if (output.logprob_width > 0) {
        output.logprobs = kLogprobs;
        output.logprob_ids = kTopIds;
        output.logprob_values = kTopLogprobs;
      }
      ++output.output_tokens;
      if (ends) output.end = kLength;
    }
    return live_;
  }
  int event_fd() const override { return -1; }
  EngineHealth health() const override { return EngineHealth::kReady; }
  const ClientCounters& counters() const override { return counters_; }

 private:
  static constexpr int32_t kIds[] = {1};
  static constexpr float kLogprobs[] = {-1.5f};
  static constexpr int32_t kTopIds[] = {1, 2, 1};
  static constexpr float kTopLogprobs[] = {-1.5f, -0.5f, -1.5f};

  EngineInfo info_;
  Tokenizer tokenizer_;
  uint64_t last_ = 0;
  std::vector<ClientOutput> live_;
  ClientCounters counters_;
};

class Cost : public ::testing::Test {
 protected:
  ModelText text = LettersText();
  EndlessClient client{InfoOf(text.tokenizer()), text.tokenizer()};
  Serving serving{client, text};
};

TEST_F(Cost, ATokenTakesNoMemory) {
  for (const char* const body :
       {R"({"prompt":"a","stream":true})", R"({"prompt":"a","n":4,"stream":true})",
        R"({"prompt":"a","stream":true,"logprobs":2,"return_token_ids":true})",
        R"({"prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true}})"}) {
    serving.Ask(body);
  }
  FakeExchange& chat =
      serving.Ask(R"({"messages":[{"role":"user","content":"a"}],"stream":true,"logprobs":true,)"
                  R"("top_logprobs":2})",
                  Api::kChat);
  const auto poll = [&](int times) {
    for (int i = 0; i < times; ++i) {
      serving.completions.Poll();
      for (FakeExchange& exchange : serving.exchanges()) exchange.Forget();
    }
  };
  poll(100);
  ASSERT_TRUE(chat.head().has_value());
  const int64_t before = AllocationCount();
  poll(1000);
  EXPECT_EQ(AllocationCount() - before, 0);
  client.ends = true;
  poll(1);
  EXPECT_EQ(serving.completions.live(), 0);
}

// Of a request whose client went away while it waited for the pool, nothing but its body is held,
// and nothing is done.
TEST_F(Cost, AnExpiredRequestIsNotEncoded) {
  constexpr size_t kPrompt = size_t{4} << 20;
  std::promise<void> gate;
  serving.pool.Run([&] { gate.get_future().wait(); }, serving.loop.get_executor(), [] {});
  FakeExchange& exchange = serving.Ask(R"({"prompt":")" + std::string(kPrompt, 'a') + "\"}");
  exchange.answer.reset();
  EXPECT_EQ(serving.completions.live(), 0);
  const int64_t before = AllocatedBytes();
  bool is_behind = false;
  serving.pool.Run([] {}, serving.loop.get_executor(), [&] { is_behind = true; });
  gate.set_value();
  ASSERT_TRUE(serving.Becomes([&] { return is_behind; }));
  EXPECT_LT(AllocatedBytes() - before, static_cast<int64_t>(kPrompt / 4)) << "ids are 4 bytes each";
  EXPECT_EQ(client.live_requests(), 0);
}

TEST_F(Cost, FourThousandExchangesAtOnce) {
  for (int i = 0; i < 4096; ++i) serving.Ask(R"({"prompt":"a","stream":true})");
  EXPECT_EQ(serving.completions.live(), 4096);
  FakeExchange& refused = serving.Ask(R"({"prompt":"a","stream":true})");
  ASSERT_TRUE(refused.response().has_value());
  EXPECT_EQ(refused.response()->status, 503);
  for (int i = 0; i < 20; ++i) serving.completions.Poll();
  client.ends = true;
  serving.completions.Poll();
  std::string expected;
  for (int i = 0; i < 21; ++i) expected += EndlessClient::kText;
  for (size_t i = 0; i < 4096; ++i) {
    ReadResponse got = Read(serving.exchanges()[i]);
    ASSERT_TRUE(got.is_done);
    ASSERT_EQ(got.choices[0].text, expected);
  }
  EXPECT_EQ(serving.completions.live(), 0);
  EXPECT_EQ(serving.completions.counters().choices_running, 0);
}

}  // namespace
}  // namespace sluice::test
