// Rows that wait for credits: one a request, which takes up the tokens of those that follow. So it
// is never more than the request's tokens, and goes out as if it had come in one step.
#pragma once

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
    if (!row.ids.empty()) held.row.logprob_width = row.logprob_width;
    held.row.end = row.end;
    held.row.status = row.status;
    held.row.code = row.code;
    held.message += row.message;
    held.parameter += row.parameter;
    tokens_ += std::ssize(row.ids);
  }

  // Valid until the next call.
  std::span<const OutputRow> Rows() {
    rows_.clear();
    for (const Held& held : held_) {
      OutputRow& row = rows_.emplace_back(held.row);
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

  // Gives the memory back: this may have been minutes of tokens.
  void Clear() {
    for (const Held& held : held_) place_of_[static_cast<size_t>(held.row.address.slot)] = kNone;
    held_ = {};
    rows_ = {};
    tokens_ = 0;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Held {
    OutputRow row;  // without its lists
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::vector<int32_t> ranks;
    std::vector<int32_t> logprob_ids;
    std::vector<float> logprob_values;
    std::string message;
    std::string parameter;
  };

  template <typename T>
  static void Append(std::span<const T> list, std::vector<T>& to) {
    to.insert(to.end(), list.begin(), list.end());
  }

  std::vector<uint32_t> place_of_;  // by slot, in held_
  std::vector<Held> held_;
  std::vector<OutputRow> rows_;
  int64_t tokens_ = 0;
};

}  // namespace sluice::link
