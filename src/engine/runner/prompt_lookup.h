// Drafts of a request's next tokens from its own text: what followed the same tokens before. A
// draft costs a row of the step, so how many a request gets depends on how its last ones did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace sluice::engine {

inline constexpr int64_t kLeastMatch = 3;        // tokens; fewer are alike by chance too often
inline constexpr int64_t kMostMatch = 16;        // a longer one is no better sign
inline constexpr int64_t kLookedThrough = 8192;  // the last tokens: some 4 us where nothing matches

// The last tokens occur before: at most `most` of those that followed them there. Of several places
// the one with the longest match, and then the latest. Empty: there is none.
inline std::span<const int32_t> LookUp(std::span<const int32_t> tokens, int64_t most) {
  const std::span<const int32_t> text =
      tokens.last(std::min(tokens.size(), static_cast<size_t>(kLookedThrough)));
  const int64_t size = std::ssize(text);
  if (most <= 0 || size <= kLeastMatch) return {};
  const int32_t last = text.back();
  int64_t best = kLeastMatch - 1;
  int64_t after = 0;
  for (int64_t end = size - 1; end >= kLeastMatch && best < kMostMatch; --end) {
    if (text[static_cast<size_t>(end - 1)] != last) continue;
    int64_t match = 1;
    while (match < kMostMatch && match < end &&
           text[static_cast<size_t>(end - 1 - match)] ==
               text[static_cast<size_t>(size - 1 - match)]) {
      ++match;
    }
    if (match <= best) continue;
    best = match;
    after = end;
  }
  if (after == 0) return {};
  return text.subspan(static_cast<size_t>(after),
                      static_cast<size_t>(std::min(most, size - after)));
}

// How many drafts a request gets: as many as are likely to pay, by how often its last ones were
// right. Where they are wrong too often it has none for a while, then tries one. A wrong guess of
// this costs time alone.
class DraftPace {
 public:
  // What a draft costs of a step with one row: 0.24 to 0.28 in steps of 4 and 8 rows of the
  // built-in model, which bench/generate_rate.py shows.
  static constexpr double kCost = 0.3;

  // Of a step that could have `most`.
  int64_t Next(int64_t most) {
    if (pause_ > 0) {
      --pause_;
      return 0;
    }
    int64_t length = 1;
    for (double chance = rate_ * rate_; length < most && chance >= kCost; chance *= rate_) ++length;
    return std::min(length, most);
  }

  void Take(int64_t drafted, int64_t accepted) {
    for (int64_t i = 0; i < accepted; ++i) rate_ += (1 - rate_) * kWeight;
    if (accepted == drafted) next_pause_ = kFirstPause;
    if (accepted < drafted) rate_ -= rate_ * kWeight;
    if (rate_ >= kCost) return;
    rate_ = kCost;
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kMostPause);
  }

 private:
  static constexpr double kWeight = 0.15;  // of one draft in the rate: the last ten or so count
  static constexpr int64_t kFirstPause = 8;
  static constexpr int64_t kMostPause = 256;

  double rate_ = 0.6;  // of drafts that were right
  int64_t pause_ = 0;  // steps without drafts
  int64_t next_pause_ = kFirstPause;
};

}  // namespace sluice::engine
