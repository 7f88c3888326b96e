// What a test sees of an Engine: the outputs of each request, put together.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/engine.hpp"
#include "tests/engine/runner/checking_runner.h"

namespace sluice::test {

struct Received {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  std::vector<int32_t> logprob_ids;
  std::vector<float> logprob_values;
  std::vector<float> prompt_logprobs;
  std::vector<int32_t> prompt_ranks;
  std::vector<int32_t> prompt_ids;
  std::vector<float> prompt_values;
  int32_t prompt_width = 0;
  int64_t prompt_pieces = 0;
  GenerationEnd end = GenerationEnd::kNone;
  RowStatus status = RowStatus::kOk;
  std::string message;
  ErrorCode code = ErrorCode::kInvalidValue;
  std::string parameter;
  int64_t rows = 0;
};

inline EngineRequest MakeRequest(std::vector<int32_t> prompt, int64_t max_tokens = 8) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.params.seed = 1;
  request.max_tokens = max_tokens;
  return request;
}

// One client. A place is used again with the next generation, as soon as its request has ended.
class EngineClient {
 public:
  EngineClient(Engine& engine, int32_t places) : engine_(engine), id(engine.AddClient()) {
    for (int32_t slot = places - 1; slot >= 0; --slot) free_.push_back({slot, 0});
  }

  RequestAddress Submit(EngineRequest request) {
    EXPECT_FALSE(free_.empty());
    RequestAddress address = free_.back();
    free_.pop_back();
    ++address.generation;
    request.address = address;
    engine_.Submit(id, std::move(request));
    live_[address.slot] = {address.generation, {}};
    return address;
  }
  void Abort(RequestAddress address) { engine_.Abort(id, address); }

  // Each row belongs to a request that lives and follows the one before.
  void Take(std::span<const EngineOutput> outputs) {
    for (const EngineOutput& output : outputs) {
      if (output.client == id) TakeRow(output.row);
    }
  }

  bool HasEnded(RequestAddress address) const { return ended_.contains(Key(address)); }
  const Received& Of(RequestAddress address) const {
    const auto ended = ended_.find(Key(address));
    return ended != ended_.end() ? ended->second : live_.at(address.slot).second;
  }
  size_t live() const { return live_.size(); }
  size_t ended() const { return ended_.size(); }
  bool HasPlace() const { return !free_.empty(); }

 private:
  static std::pair<int32_t, uint32_t> Key(RequestAddress a) { return {a.slot, a.generation}; }

  void TakeRow(const OutputRow& row) {
    const auto found = live_.find(row.address.slot);
    ASSERT_NE(found, live_.end()) << "a row of nobody, slot " << row.address.slot;
    ASSERT_EQ(found->second.first, row.address.generation);
    Received& received = found->second.second;
    EXPECT_EQ(row.first_token, std::ssize(received.ids));
    EXPECT_TRUE(!row.ids.empty() || row.end != GenerationEnd::kNone || !row.prompt.IsEmpty())
        << "an empty row";
    TakePrompt(row.prompt, received);
    const auto append = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
    append(received.ids, row.ids);
    append(received.logprobs, row.logprobs);
    append(received.ranks, row.ranks);
    append(received.logprob_ids, row.logprob_ids);
    append(received.logprob_values, row.logprob_values);
    ++received.rows;
    if (row.end == GenerationEnd::kNone) return;
    received.end = row.end;
    received.status = row.status;
    received.message = row.message;
    received.code = row.code;
    received.parameter = row.parameter;
    ended_[Key(row.address)] = std::move(received);
    live_.erase(found);
    free_.push_back(row.address);
  }

  static void TakePrompt(const PromptLogprobs& piece, Received& received) {
    if (piece.IsEmpty()) return;
    EXPECT_TRUE(received.ids.empty()) << "the prompt's behind a token";
    EXPECT_EQ(piece.first_token, 1 + std::ssize(received.prompt_logprobs));
    const auto append = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
    append(received.prompt_logprobs, piece.logprobs);
    append(received.prompt_ranks, piece.ranks);
    append(received.prompt_ids, piece.ids);
    append(received.prompt_values, piece.values);
    received.prompt_width = piece.width;
    ++received.prompt_pieces;
  }

  Engine& engine_;
  std::vector<RequestAddress> free_;
  std::map<int32_t, std::pair<uint32_t, Received>> live_;
  std::map<std::pair<int32_t, uint32_t>, Received> ended_;

 public:
  ClientId id;
};

// Steps until nothing is left to do; how many that were.
inline int64_t Drain(Engine& engine, std::initializer_list<EngineClient*> clients,
                     int64_t at_most = 100'000) {
  int64_t steps = 0;
  for (; engine.HasWork() && steps < at_most; ++steps) {
    const std::span<const EngineOutput> outputs = engine.Step();
    for (EngineClient* const client : clients) client->Take(outputs);
  }
  EXPECT_FALSE(engine.HasWork()) << "no end after " << steps << " steps";
  return steps;
}

// Nothing is left behind, and the counters add up.
inline void ExpectIdle(const Engine& engine, const CheckingRunner& runner) {
  const EngineCounters& counters = engine.counters();
  EXPECT_EQ(counters.running, 0);
  EXPECT_EQ(counters.waiting, 0);
  EXPECT_EQ(counters.requests, counters.ended);
  EXPECT_EQ(counters.free_pages, runner.info().pages);
  EXPECT_EQ(counters.tokens, counters.tokens_given + counters.tokens_discarded_stop +
                                 counters.tokens_discarded_abort);
  EXPECT_EQ(runner.taken_slots(), 0);
  EXPECT_EQ(runner.preempted_in_vain, 0);
}

// What a request must give if nobody aborts it: its tokens one by one, until something ends it.
// Without stop strings.
inline Received ExpectedOf(const EngineRequest& request, const CheckingOptions& options) {
  const TokenSource source{request.prompt, *request.params.seed, request.choice};
  Received expected;
  const int64_t room =
      std::min(request.max_tokens, options.info.context - std::ssize(request.prompt));
  const auto& stops = request.params.stop_token_ids;
  if (request.prompt_logprobs.has_value()) {
    for (size_t place = 1; place < request.prompt.size(); ++place) {
      const int32_t id = request.prompt[place];
      const float logprob = PromptLogprob(static_cast<int64_t>(place));
      expected.prompt_logprobs.push_back(logprob);
      expected.prompt_ranks.push_back(PromptRank(id));
      for (int32_t entry = 0; entry <= *request.prompt_logprobs; ++entry) {
        expected.prompt_ids.push_back(PromptEntry(id, entry, options.info.vocab));
        expected.prompt_values.push_back(logprob - static_cast<float>(entry));
      }
    }
  }
  if (room == 0) expected.end = GenerationEnd::kLength;
  while (expected.end == GenerationEnd::kNone) {
    const int64_t index = std::ssize(expected.ids);
    TokenResult token;
    if (options.token) {
      token = options.token(source, index);
    } else {
      const auto vocab = static_cast<uint64_t>(options.info.vocab);
      token.id = static_cast<int32_t>(TokenBits(source, index) % vocab);
    }
    if (token.id < 0) {
      expected.end = GenerationEnd::kStatus;
      expected.status = token.status;
      break;
    }
    expected.ids.push_back(token.id);
    if (index >= request.params.min_tokens && std::ranges::count(stops, token.id) > 0) {
      expected.end = GenerationEnd::kStopToken;
    } else if (index + 1 == room) {
      expected.end = room == request.max_tokens ? GenerationEnd::kLength : GenerationEnd::kContext;
    }
  }
  return expected;
}

}  // namespace sluice::test
