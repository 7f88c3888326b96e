// Rows that wait for credits: one a request, which takes up the tokens of those that follow. So it
// is never more than the request's tokens, and goes out as if it had come in one step: in as many
// messages as its bytes need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "engine/token_columns.h"
#include "sluice/engine_messages.hpp"

namespace sluice::link {

class HeldRows {
 public:
  explicit HeldRows(int32_t slots) : place_of_(static_cast<size_t>(slots), kNone) {}

  bool IsEmpty() const { return held_.empty(); }
  int64_t tokens() const { return tokens_; }

  // Rows of one request follow each other.
  void Add(const OutputRow& row) {
    uint64_t& place = place_of_[static_cast<size_t>(row.address.slot)];
    if (place == kNone) {
      Held& first = held_.emplace_back();
      first.row.address = row.address;
      first.row.first_token = row.first_token;
      place = gone_ + held_.size() - 1;
    }
    Held& held = held_[place - gone_];
    held.columns.Append(row);
    if (held.prompt.logprobs.empty()) held.row.prompt.first_token = row.prompt.first_token;
    if (!row.prompt.IsEmpty()) held.prompt.Append(engine::LogprobsOf(row.prompt));
    held.row.end = row.end;
    held.row.status = row.status;
    held.row.code = row.code;
    held.row.cached_tokens = row.cached_tokens;
    held.message += row.message;
    held.parameter += row.parameter;
    tokens_ += std::ssize(row.ids);
  }

  // Returns the next rows: at most most_bytes of a frame, but at least one token. A request that
  // does not fit is split: log-probabilities of its prompt come first, then tokens, and its end
  // comes with the last part. The rows are valid until the next call of any method.
  std::span<const OutputRow> Next(size_t most_bytes) {
    rows_.clear();
    size_t left = most_bytes;
    for (const Held& held : held_) {
      const size_t fixed = kRowBytes + held.message.size() + held.parameter.size();
      const Count rest = held.Rest();
      size_t room = left > fixed ? left - fixed : 0;
      Count count;
      count.prompt = std::min(rest.prompt, room / held.PromptBytes());
      room -= count.prompt * held.PromptBytes();
      if (count.prompt == rest.prompt)
        count.tokens = std::min(rest.tokens, room / held.TokenBytes());
      room -= count.tokens * held.TokenBytes();
      const bool fits = left >= fixed && count == rest;
      if (!rows_.empty() && !fits) break;  // the next frame has it whole, or begins with it
      if (count == Count()) (rest.prompt > 0 ? count.prompt : count.tokens) = rest == count ? 0 : 1;
      rows_.push_back(held.Part(count));
      if (!(count == rest)) break;
      left = room;
    }
    return rows_;
  }
  // Forgets what Next gave, and gives its memory back: it may have been minutes of tokens.
  void DropNext() {
    for (const OutputRow& row : rows_) {
      Held& held = held_.front();
      tokens_ -= std::ssize(row.ids);
      held.taken.tokens += row.ids.size();
      held.taken.prompt += row.prompt.logprobs.size();
      if (!(held.Rest() == Count())) break;
      place_of_[static_cast<size_t>(held.row.address.slot)] = kNone;
      held_.pop_front();
      ++gone_;
    }
    rows_.clear();
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr size_t kRowBytes = 128;   // in a frame, at most, but for its lists
  static constexpr size_t kNumberBytes = 5;  // of an element of a list, at most

  // Tokens of the output, and of the prompt those with a log-probability.
  struct Count {
    size_t tokens = 0;
    size_t prompt = 0;

    friend bool operator==(const Count&, const Count&) = default;
  };

  struct Held {
    Count Rest() const {
      return {columns.ids.size() - taken.tokens, prompt.logprobs.size() - taken.prompt};
    }
    size_t TokenBytes() const {
      const auto width = static_cast<size_t>(columns.scores.width);
      return kNumberBytes * (columns.scores.logprobs.empty() ? 1 : 3 + 2 * width);
    }
    size_t PromptBytes() const {
      return kNumberBytes * (2 + 2 * static_cast<size_t>(prompt.width));
    }
    // So many tokens after those that were taken; with the last of them the end.
    OutputRow Part(const Count& count) const {
      OutputRow some = {.address = row.address,
                        .first_token = row.first_token + static_cast<int64_t>(taken.tokens)};
      columns.SetPart(some, taken.tokens, count.tokens);
      if (count.prompt > 0) {
        some.prompt.first_token = row.prompt.first_token + static_cast<int64_t>(taken.prompt);
        engine::SetLogprobs(some.prompt, prompt.Part(taken.prompt, count.prompt));
      }
      if (!(count == Rest())) return some;
      some.end = row.end;
      some.status = row.status;
      some.code = row.code;
      some.cached_tokens = row.cached_tokens;
      some.message = message;
      some.parameter = parameter;
      return some;
    }

    OutputRow row;  // without its lists
    Count taken;
    engine::TokenColumns columns;
    engine::LogprobColumns prompt;
    std::string message;
    std::string parameter;
  };

  std::vector<uint64_t> place_of_;  // by slot, among all that there ever were
  uint64_t gone_ = 0;               // of these
  std::deque<Held> held_;
  std::vector<OutputRow> rows_;
  int64_t tokens_ = 0;
};

}  // namespace sluice::link
