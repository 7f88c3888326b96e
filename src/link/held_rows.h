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

  // The next ones, of so many bytes of a frame at most, but at least a token. A request whose
  // tokens are too many for that has the others, and its end, in the next call's. Valid until the
  // next call of anything.
  std::span<const OutputRow> Next(size_t most_bytes) {
    rows_.clear();
    size_t left = most_bytes;
    for (const Held& held : held_) {
      const size_t rest = held.ids.size() - held.taken;
      const size_t fixed = kRowBytes + held.message.size() + held.parameter.size();
      const size_t each = held.TokenBytes();
      const size_t fits = left > fixed ? std::min(rest, (left - fixed) / each) : 0;
      if (!rows_.empty() && (left < fixed || fits < rest)) break;  // the next frame has it whole
      const size_t count = rest == 0 ? 0 : std::max<size_t>(fits, 1);
      rows_.push_back(held.Part(count));
      left -= std::min(left, fixed + count * each);
      if (count < rest) break;
    }
    return rows_;
  }
  // Forgets what Next gave, and gives its memory back: it may have been minutes of tokens.
  void DropNext() {
    for (const OutputRow& row : rows_) {
      Held& held = held_.front();
      tokens_ -= std::ssize(row.ids);
      held.taken += row.ids.size();
      if (held.taken < held.ids.size()) break;
      place_of_[static_cast<size_t>(held.row.address.slot)] = kNone;
      held_.pop_front();
      ++gone_;
    }
    rows_.clear();
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr size_t kRowBytes = 64;    // in a frame, at most, but for its lists
  static constexpr size_t kNumberBytes = 5;  // of an element of a list, at most

  struct Held {
    size_t TokenBytes() const {
      const auto lists = static_cast<size_t>(row.logprob_width);
      return kNumberBytes * (logprobs.empty() ? 1 : 3 + 2 * lists);
    }
    // So many tokens behind those that were taken; with the last of them the end.
    OutputRow Part(size_t count) const {
      const auto part = [&]<typename T>(const std::vector<T>& list, size_t width) {
        return list.empty() ? std::span<const T>()
                            : std::span<const T>(list).subspan(taken * width, count * width);
      };
      const auto width = static_cast<size_t>(row.logprob_width);
      OutputRow some = {.address = row.address,
                        .first_token = row.first_token + static_cast<int64_t>(taken),
                        .ids = part(ids, 1),
                        .logprobs = part(logprobs, 1),
                        .ranks = part(ranks, 1),
                        .logprob_width = row.logprob_width,
                        .logprob_ids = part(logprob_ids, width),
                        .logprob_values = part(logprob_values, width)};
      if (taken + count < ids.size()) return some;
      some.end = row.end;
      some.status = row.status;
      some.code = row.code;
      some.message = message;
      some.parameter = parameter;
      return some;
    }

    OutputRow row;  // without its lists
    size_t taken = 0;
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

  std::vector<uint64_t> place_of_;  // by slot, among all that there ever were
  uint64_t gone_ = 0;               // of these
  std::deque<Held> held_;
  std::vector<OutputRow> rows_;
  int64_t tokens_ = 0;
};

}  // namespace sluice::link
