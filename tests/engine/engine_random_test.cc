// Random schedules of clients, requests and aborts, against a model that knows of none of them: the
// tokens of a request are those that it gets alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/engine.hpp"
#include "tests/engine/engine_client.h"
#include "tests/engine/runner/checking_runner.h"
#include "tests/support/random.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

// What one schedule is made of.
class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed)
      : random_(seed),
        options_(RandomOptions()),
        runner_(options_),
        engine_(runner_, std::nullopt, RandomEngineOptions()) {
    AddClient();
  }

  void Run(int64_t events) {
    for (int64_t i = 0; i < events; ++i) Event();
    while (engine_.HasWork()) Step();
    for (Client& client : clients_) EXPECT_EQ(client.seen.live(), 0u);
    for (const Client& client : clients_) Check(client);
    ExpectIdle(engine_, runner_);
  }

  const EngineCounters& counters() const { return engine_.counters(); }
  const CheckingRunner& runner() const { return runner_; }

 private:
  struct Sent {
    EngineRequest request;
    bool was_aborted = false;
  };
  struct Client {
    explicit Client(Engine& engine) : seen(engine, 40) {}
    EngineClient seen;
    std::vector<std::pair<RequestAddress, Sent>> sent;
  };

  CheckingOptions RandomOptions() {
    CheckingOptions options;
    options.info.context = random_.Between(8, 80);
    options.info.max_requests = static_cast<int32_t>(random_.Between(1, 12));
    options.info.max_step_tokens = random_.Between(1, 60);
    options.info.page_tokens = random_.Between(1, 9);
    options.info.max_prefixes = random_.Coin() ? 0 : static_cast<int32_t>(random_.Between(1, 8));
    options.info.max_given_tokens = random_.Coin() ? 1 : random_.Between(2, 6);
    const int64_t of_one = (options.info.context + 6) / options.info.page_tokens + 1;
    options.info.pages = random_.Between(of_one, 3 * of_one);
    const auto vocab = static_cast<uint64_t>(options.info.vocab);
    options.token = [vocab](const TokenSource& source, int64_t index) {
      const uint64_t bits = TokenBits(source, index);
      if (bits % 251 == 0) return TokenResult{.status = RowStatus::kNanInput};
      return TokenResult{.id = static_cast<int32_t>(bits % vocab)};
    };
    options.failure = [](const TokenSource& source, int64_t) {
      return std::string(Fails(source) ? "broken" : "");
    };
    options.fails_to_begin = random_.Coin();
    return options;
  }
  EngineOptions RandomEngineOptions() {
    return {.steps_in_flight = static_cast<int32_t>(random_.Below(2)),
            .max_clients = 4,
            .max_client_requests = 40,
            .max_waiting = random_.Between(10, 100),
            .max_waiting_tokens = random_.Between(50, 2000)};
  }
  static bool Fails(const TokenSource& source) { return source.seed % 13 == 0; }

  void AddClient() { clients_.emplace_back(engine_); }

  void Event() {
    const int64_t kind = random_.Below(100);
    if (kind < 45) return Step();
    if (kind < 48 && clients_.size() < 4) return AddClient();
    Client& client = *std::next(clients_.begin(), random_.Below(std::ssize(clients_)));
    if (kind < 50) return Remove(client);
    if (kind < 85 && client.seen.HasPlace()) return Submit(client);
    if (!client.sent.empty()) Abort(client);
  }

  void Step() {
    const auto outputs = engine_.Step();
    for (const EngineOutput& output : outputs) {
      EXPECT_TRUE(std::ranges::any_of(clients_, [&](const Client& client) {
        return client.seen.id == output.client;
      })) << "an output for a client that is gone";
    }
    for (Client& client : clients_) client.seen.Take(outputs);
  }

  void Remove(Client& client) {
    Check(client);
    engine_.RemoveClient(client.seen.id);
    clients_.remove_if([&](const Client& other) { return &other == &client; });
    if (clients_.empty()) AddClient();
  }

  void Submit(Client& client) {
    const RunnerInfo& info = options_.info;
    std::vector<int32_t> prompt(static_cast<size_t>(random_.Between(1, info.context)));
    for (int32_t& id : prompt) id = static_cast<int32_t>(random_.Below(info.vocab));
    if (random_.Coin()) Continue(client, prompt);
    EngineRequest request = MakeRequest(prompt, random_.Between(-1, 50));
    if (random_.Coin()) {
      request.prompt_logprobs = static_cast<int32_t>(random_.Between(0, 6));  // 6 is too many
    }
    request.params.seed = random_.Bits();
    request.choice = static_cast<uint32_t>(random_.Below(3));
    if (random_.Coin()) {
      request.params.stop_token_ids = {static_cast<int32_t>(random_.Below(info.vocab)), 3, 5};
      request.params.min_tokens = static_cast<int32_t>(random_.Below(10));
    }
    client.sent.push_back({client.seen.Submit(request), {request}});
  }

  // As the next turn of a chat does: with the beginning of a prompt and its output.
  void Continue(const Client& client, std::vector<int32_t>& prompt) {
    if (client.sent.empty()) return;
    const auto& [address, sent] =
        client.sent[static_cast<size_t>(random_.Below(std::ssize(client.sent)))];
    std::vector<int32_t> all = sent.request.prompt;
    if (client.seen.HasEnded(address)) {
      const std::vector<int32_t>& ids = client.seen.Of(address).ids;
      all.insert(all.end(), ids.begin(), ids.end());
    }
    all.resize(static_cast<size_t>(random_.Between(0, std::ssize(all))));
    prompt.insert(prompt.begin(), all.begin(), all.end());
    const auto most = static_cast<size_t>(options_.info.context);
    if (prompt.size() > most) prompt.resize(most);
  }

  // Of one that lives, mostly.
  void Abort(Client& client) {
    const size_t recent = std::min<size_t>(client.sent.size(), 30);
    auto& [address, sent] =
        client.sent[client.sent.size() - 1 -
                    static_cast<size_t>(random_.Below(static_cast<int64_t>(recent)))];
    if (!client.seen.HasEnded(address)) sent.was_aborted = true;
    client.seen.Abort(address);
  }

  void Check(const Client& client) const {
    for (const auto& [address, sent] : client.sent) CheckOne(client.seen, address, sent);
  }

  void CheckOne(const EngineClient& client, RequestAddress address, const Sent& sent) const {
    if (!client.HasEnded(address)) return;
    const Received& received = client.Of(address);
    const EngineRequest& request = sent.request;
    const bool is_good = request.max_tokens >= 0 &&
                         std::ssize(request.prompt) < options_.info.context &&
                         request.prompt_logprobs.value_or(0) <= options_.info.max_logprobs;
    if (received.end == GenerationEnd::kRejected) {
      EXPECT_TRUE(received.ids.empty());
      const bool is_full = received.message.find("waiting") != std::string::npos;
      const bool fails = Fails({request.prompt, *request.params.seed, request.choice});
      EXPECT_TRUE(!is_good || is_full || fails) << received.message;
      return;
    }
    ASSERT_TRUE(is_good);
    const Received expected = ExpectedOf(request, options_);
    if (received.end == GenerationEnd::kCancelled) {
      EXPECT_TRUE(sent.was_aborted);
      ASSERT_LE(received.ids.size(), expected.ids.size());
      EXPECT_TRUE(std::equal(received.ids.begin(), received.ids.end(), expected.ids.begin()));
      ASSERT_LE(received.prompt_ids.size(), expected.prompt_ids.size());
      EXPECT_TRUE(std::equal(received.prompt_ids.begin(), received.prompt_ids.end(),
                             expected.prompt_ids.begin()));
      return;
    }
    EXPECT_EQ(received.end, expected.end);
    EXPECT_EQ(received.ids, expected.ids);
    EXPECT_EQ(received.prompt_logprobs, expected.prompt_logprobs);
    EXPECT_EQ(received.prompt_ranks, expected.prompt_ranks);
    EXPECT_EQ(received.prompt_ids, expected.prompt_ids);
    EXPECT_EQ(received.prompt_values, expected.prompt_values);
  }

  Random random_;
  CheckingOptions options_;
  CheckingRunner runner_;
  Engine engine_;
  std::list<Client> clients_;
};

TEST(EngineRandom, EveryRequestOfEveryScheduleEndsOnceWithItsOwnTokens) {
  EngineCounters sum;
  int64_t trimmed = 0;
  for (uint64_t seed = 1; seed <= 300 / kSlowdown; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSchedule schedule(seed);
    schedule.Run(1500);
    const EngineCounters& counters = schedule.counters();
    sum.ended += counters.ended;
    sum.aborted += counters.aborted;
    sum.rejected += counters.rejected;
    sum.stale_aborts += counters.stale_aborts;
    sum.preemptions += counters.preemptions;
    sum.cached_tokens += counters.cached_tokens;
    trimmed += schedule.runner().trimmed;
    EXPECT_EQ(counters.cached_tokens, schedule.runner().shared_tokens);
    sum.tokens_discarded_stop += counters.tokens_discarded_stop;
    sum.tokens_discarded_abort += counters.tokens_discarded_abort;
    if (HasFailure()) return;
  }
  // The schedules reach what they are for.
  for (const int64_t count :
       {sum.ended, sum.aborted, sum.rejected, sum.stale_aborts, sum.preemptions,
        sum.tokens_discarded_stop, sum.tokens_discarded_abort, sum.cached_tokens, trimmed}) {
    EXPECT_GT(count, 100);
  }
}

}  // namespace
}  // namespace sluice::test
