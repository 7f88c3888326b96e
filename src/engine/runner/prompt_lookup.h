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

// How many drafts a request gets: more while all of them are taken, and none for a while after none
// was: 1, 3, 7 and at most 63 steps.
class DraftPace {
 public:
  // Of a step that could have `most`.
  int64_t Next(int64_t most) {
    if (wait_ > 0) {
      --wait_;
      return 0;
    }
    return std::min(length_, most);
  }

  void Take(int64_t drafted, int64_t accepted) {
    if (accepted == 0) {
      misses_ = std::min(misses_ + 1, kMostMisses);
      wait_ = (int64_t{1} << misses_) - 1;
      length_ = kFirst;
      return;
    }
    misses_ = 0;
    length_ = accepted == drafted ? std::min(2 * drafted, kMostMatch) : accepted;
  }

 private:
  static constexpr int64_t kFirst = 2;
  static constexpr int64_t kMostMisses = 6;

  int64_t length_ = kFirst;
  int64_t misses_ = 0;
  int64_t wait_ = 0;  // steps without drafts
};

}  // namespace sluice::engine
