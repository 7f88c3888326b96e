// Drives a StepRunner as no engine would on purpose: requests in any order, prompts in chunks of
// any size, preemptions anywhere, none or one step in flight.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "sluice/step_runner.hpp"
#include "tests/support/random.h"

namespace sluice::test {

struct Job {
  SamplingParams params = {};
  std::vector<int32_t> prompt = {};
  uint32_t choice = 0;
  int64_t max_tokens = 0;
  int32_t prompt_logprob_width = 0;
  bool stops_unseen = false;  // goes on until the step that gave the last token has been read

  // What came of it.
  std::vector<TokenResult> tokens = {};
  std::vector<int32_t> logprob_ids = {};
  std::vector<float> logprob_values = {};
  int32_t logprob_width = 0;
  std::vector<float> prompt_logprobs = {};
  std::vector<int32_t> prompt_ranks = {};
  std::vector<int32_t> prompt_ids = {};
  std::vector<float> prompt_values = {};
  std::string failure = {};

  std::vector<int32_t> Ids() const {
    std::vector<int32_t> ids;
    for (const TokenResult& token : tokens) ids.push_back(token.id);
    return ids;
  }
};

class RandomSchedule {
 public:
  RandomSchedule(StepRunner& runner, std::vector<Job>& jobs, int steps_in_flight, uint64_t seed)
      : runner_(runner), jobs_(jobs), steps_in_flight_(steps_in_flight), random_(seed) {
    for (size_t i = 0; i < jobs.size(); ++i) states_.push_back({.job = i});
    for (int32_t slot = runner.info().max_requests; slot-- > 0;) free_slots_.push_back(slot);
  }

  int64_t preemptions() const { return preemptions_; }
  int64_t preempted_scoring() const { return preempted_scoring_; }  // in the middle of a prompt
  int64_t chunks() const { return chunks_; }
  int64_t rows_without_tokens() const { return rows_without_tokens_; }
  int64_t discarded() const { return discarded_; }

  void Run() {
    while (std::ranges::any_of(states_, [](const State& s) { return !s.is_over; })) {
      Plan();
      if (flights_.size() > static_cast<size_t>(steps_in_flight_)) Read();
    }
    while (!flights_.empty()) Read();
  }

 private:
  struct State {
    size_t job;
    int32_t slot = -1;
    bool is_over = false;     // all of its tokens were read
    bool is_dropped = false;  // told to the runner
    bool may_go_on = false;   // from what the last step gave it
    int64_t cached = 0;
    int64_t next_scored = 1;        // place in the prompt
    int64_t drawn = 0;              // read or in flight
    std::vector<int32_t> all = {};  // prompt and what was read
  };

  // What a plan points to.
  struct Flight {
    std::vector<int32_t> ended;
    std::vector<int32_t> preempted;
    std::vector<RunnerRequest> begun;
    std::vector<StepRow> rows;
    std::deque<std::vector<int32_t>> tokens;
    std::vector<size_t> states;  // of the rows
  };

  bool Chance(int percent) { return random_.Below(100) < percent; }
  int64_t Pages(int64_t tokens) const {
    return (tokens + runner_.info().page_tokens - 1) / runner_.info().page_tokens;
  }
  int64_t UsedPages() const {
    int64_t pages = 0;
    for (const State& state : states_) pages += state.slot < 0 ? 0 : Pages(state.cached);
    return pages;
  }

  void Plan() {
    flights_.emplace_back();
    Flight& flight = flights_.back();
    std::vector<size_t> order;
    for (size_t i = 0; i < states_.size(); ++i) order.push_back(i);
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(random_.Below(static_cast<int64_t>(i)))]);
    }
    for (State& state : states_) {
      if (!state.is_over || state.is_dropped || state.slot < 0) continue;
      flight.ended.push_back(state.slot);
      free_slots_.push_back(state.slot);
      state.slot = -1;
      state.is_dropped = true;
    }
    for (State& state : states_) {
      if (state.slot < 0 || state.is_over || !Chance(5)) continue;
      Preempt(state, flight);
    }
    budget_ = runner_.info().max_step_tokens;
    for (const size_t i : order) AddRow(states_[i], flight);
    // Nobody has room: one of them makes it.
    if (flight.rows.empty() && flights_.size() == 1) {
      for (const size_t i : order) {
        State& state = states_[i];
        if (state.slot < 0 || state.is_over || state.cached == 0) continue;
        Preempt(state, flight);
        break;
      }
    }
    runner_.Launch({.ended = flight.ended,
                    .preempted = flight.preempted,
                    .begun = flight.begun,
                    .rows = flight.rows});
  }

  void Preempt(State& state, Flight& flight) {
    const auto prompt = std::ssize(jobs_[state.job].prompt);
    const bool is_scored = jobs_[state.job].prompt_logprob_width > 0;
    if (is_scored && state.next_scored > 1 && state.next_scored < prompt) ++preempted_scoring_;
    flight.preempted.push_back(state.slot);
    state.cached = 0;
    state.may_go_on = false;
    ++preemptions_;
  }

  void AddRow(State& state, Flight& flight) {
    const Job& job = jobs_[state.job];
    if (state.is_over || budget_ == 0 || Chance(20)) return;
    if (state.slot < 0) {
      if (free_slots_.empty()) return;
      state.slot = free_slots_.back();
      free_slots_.pop_back();
      state.all = job.prompt;
      flight.begun.push_back({.slot = state.slot,
                              .params = &job.params,
                              .prompt = job.prompt,
                              .choice = job.choice,
                              .max_tokens = job.max_tokens,
                              .prompt_logprob_width = job.prompt_logprob_width});
      if (Chance(10)) return;  // its first row comes later
    }
    const auto seen = std::ssize(state.all);
    const int64_t length = std::ssize(job.prompt) + state.drawn;
    const bool may_draw = job.stops_unseen || state.drawn < job.max_tokens;
    if (!may_draw) return;
    StepRow row{.slot = state.slot};
    int64_t count = length - state.cached;
    if (!state.may_go_on) {
      if (seen < length) return;  // in flight
      count = std::min(count, budget_);
      if (Chance(60)) count = random_.Between(1, count);
      row.samples = state.cached + count == length;
    }
    if (count > budget_) return;
    if (UsedPages() - Pages(state.cached) + Pages(state.cached + count) > runner_.info().pages) {
      return;
    }
    if (state.may_go_on && (seen < length || Chance(50))) {
      ++rows_without_tokens_;
    } else {
      const auto begin = state.all.begin() + state.cached;
      row.tokens = flight.tokens.emplace_back(begin, begin + count);
    }
    chunks_ += row.samples ? 0 : 1;
    state.cached += count;
    const int64_t scorable = std::min(state.cached + 1, std::ssize(job.prompt)) - state.next_scored;
    if (job.prompt_logprob_width > 0 && scorable > 0) {
      row.first_scored = state.next_scored;
      row.scored = scorable;
      state.next_scored += scorable;
    }
    state.drawn += row.samples ? runner_.info().max_given_tokens : 0;
    state.may_go_on = row.samples;
    budget_ -= count;
    flight.rows.push_back(row);
    flight.states.push_back(state.job);
  }

  void Read() {
    const StepResults& results = runner_.Await();
    const Flight& flight = flights_.front();
    ASSERT_EQ(results.rows.size(), flight.rows.size());
    for (size_t i = 0; i < flight.rows.size(); ++i) {
      State& state = states_[flight.states[i]];
      const StepRowResult& row = results.rows[i];
      if (state.is_over) {
        ++discarded_;
        continue;
      }
      Take(row, flight.rows[i].samples, state);
    }
    flights_.pop_front();
  }

  void Take(const StepRowResult& row, bool samples, State& state) {
    Job& job = jobs_[state.job];
    if (!row.failure.empty()) {
      job.failure = row.failure;
      state.is_over = true;
      return;
    }
    EXPECT_EQ(row.tokens.empty(), !samples);
    if (!row.prompt.IsEmpty()) {
      EXPECT_EQ(row.prompt.first_token, 1 + std::ssize(job.prompt_logprobs));
      const auto append = [](auto& to, auto from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(job.prompt_logprobs, row.prompt.logprobs);
      append(job.prompt_ranks, row.prompt.ranks);
      append(job.prompt_ids, row.prompt.ids);
      append(job.prompt_values, row.prompt.values);
    }
    job.logprob_width = row.logprob_width;
    for (size_t t = 0; t < row.tokens.size() && !state.is_over; ++t) {
      const auto width = static_cast<size_t>(row.logprob_width);
      job.tokens.push_back(row.tokens[t]);
      for (size_t k = t * width; k < (t + 1) * width; ++k) {
        job.logprob_ids.push_back(row.logprob_ids[k]);
        job.logprob_values.push_back(row.logprob_values[k]);
      }
      state.all.push_back(row.tokens[t].id);
      state.is_over = row.tokens[t].id < 0 || std::ssize(job.tokens) == job.max_tokens;
    }
  }

  StepRunner& runner_;
  std::vector<Job>& jobs_;
  const int steps_in_flight_;
  Random random_;
  std::vector<State> states_;
  std::vector<int32_t> free_slots_;
  std::deque<Flight> flights_;
  int64_t budget_ = 0;
  int64_t preemptions_ = 0;
  int64_t preempted_scoring_ = 0;
  int64_t chunks_ = 0;
  int64_t rows_without_tokens_ = 0;
  int64_t discarded_ = 0;
};

}  // namespace sluice::test
