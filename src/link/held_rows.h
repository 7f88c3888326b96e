// Rows that wait for credits: one a request, which takes up the tokens of those that follow. So it
// is never more than the request's tokens, and goes out as if it had come in one step; but for the
// log-probabilities of prompts, of which a frame has no more than a frontend will read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/engine_messages.hpp"

namespace sluice::link {

class HeldRows {
 public:
  explicit HeldRows(int32_t slots) : place_of_(static_cast<size_t>(slots), kNone) {}

  bool IsEmpty() const { return held_.empty(); }
  int64_t tokens() const { return tokens_; }

  // Rows of one request follow each other.
  void Add(const OutputRow& row) {
    uint32_t& place = place_of_[static_cast<size_t>(row.address.slot)];
    if (place == kNone) {
      place = static_cast<uint32_t>(held_.size());
      Held& first = held_.emplace_back();
      first.row.address = row.address;
      first.row.first_token = row.first_token;
    }
    Held& held = held_[place];
    Append(row.ids, held.ids);
    Append(row.logprobs, held.logprobs);
    Append(row.ranks, held.ranks);
    Append(row.logprob_ids, held.logprob_ids);
    Append(row.logprob_values, held.logprob_values);
    if (held.prompt_logprobs.empty()) {
      held.row.prompt.first_token = row.prompt.first_token;
      held.row.prompt.width = row.prompt.width;
    }
    Append(row.prompt.logprobs, held.prompt_logprobs);
    Append(row.prompt.ranks, held.prompt_ranks);
    Append(row.prompt.ids, held.prompt_ids);
    Append(row.prompt.values, held.prompt_values);
    if (!row.ids.empty()) held.row.logprob_width = row.logprob_width;
    held.row.end = row.end;
    held.row.status = row.status;
    held.row.code = row.code;
    held.message += row.message;
    held.parameter += row.parameter;
    tokens_ += std::ssize(row.ids);
  }

  // For one frame. Valid until the next call.
  std::span<const OutputRow> Next() {
    rows_.clear();
    int64_t entries = kMostPromptEntries;
    while (given_ < held_.size() && entries > 0) {
      Held& held = held_[given_];
      const PromptLogprobs prompt = NextOfPrompt(held, entries);
      if (held.prompt_given < held.prompt_logprobs.size()) {
        rows_.push_back(
            {.address = held.row.address, .first_token = held.row.first_token, .prompt = prompt});
        break;
      }
      ++given_;
      OutputRow& row = rows_.emplace_back(held.row);
      row.prompt = prompt;
      row.ids = held.ids;
      row.logprobs = held.logprobs;
      row.ranks = held.ranks;
      row.logprob_ids = held.logprob_ids;
      row.logprob_values = held.logprob_values;
      row.message = held.message;
      row.parameter = held.parameter;
    }
    return rows_;
  }

  // Forgets the rows of Next. How many tokens they had.
  int64_t DropGiven() {
    int64_t tokens = 0;
    for (; dropped_ < given_; ++dropped_) {
      const Held& held = held_[dropped_];
      place_of_[static_cast<size_t>(held.row.address.slot)] = kNone;
      tokens += std::ssize(held.ids);
    }
    tokens_ -= tokens;
    if (given_ < held_.size()) return tokens;
    // The memory goes back: this may have been minutes of tokens.
    held_ = {};
    rows_ = {};
    given_ = dropped_ = 0;
    return tokens;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int64_t kMostPromptEntries = 1 << 20;  // of a frame: some 10 MB
  struct Held {
    OutputRow row;  // without its lists
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::vector<int32_t> ranks;
    std::vector<int32_t> logprob_ids;
    std::vector<float> logprob_values;
    std::vector<float> prompt_logprobs;
    std::vector<int32_t> prompt_ranks;
    std::vector<int32_t> prompt_ids;
    std::vector<float> prompt_values;
    size_t prompt_given = 0;  // tokens of these
    std::string message;
    std::string parameter;
  };

  template <typename T>
  static void Append(std::span<const T> list, std::vector<T>& to) {
    to.insert(to.end(), list.begin(), list.end());
  }

  // As many tokens as there are entries for, and one at least.
  static PromptLogprobs NextOfPrompt(Held& held, int64_t& entries) {
    const size_t left = held.prompt_logprobs.size() - held.prompt_given;
    if (left == 0) return {};
    const auto width = static_cast<size_t>(held.row.prompt.width);
    const size_t count = std::min(left, std::max<size_t>(1, static_cast<size_t>(entries) / width));
    const size_t begin = held.prompt_given;
    held.prompt_given += count;
    entries -= static_cast<int64_t>(count * width);
    return {.first_token = held.row.prompt.first_token + static_cast<int64_t>(begin),
            .logprobs = std::span(held.prompt_logprobs).subspan(begin, count),
            .ranks = std::span(held.prompt_ranks).subspan(begin, count),
            .width = held.row.prompt.width,
            .ids = std::span(held.prompt_ids).subspan(begin * width, count * width),
            .values = std::span(held.prompt_values).subspan(begin * width, count * width)};
  }

  std::vector<uint32_t> place_of_;  // by slot, in held_
  std::vector<Held> held_;
  size_t given_ = 0;    // of held_, all that they have
  size_t dropped_ = 0;  // of these
  std::vector<OutputRow> rows_;
  int64_t tokens_ = 0;
};

}  // namespace sluice::link
