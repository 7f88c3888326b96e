// What a name that is not known was meant to be: for fields of requests, and for commands, flags
// and their values.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

inline constexpr size_t kLongestName = 64;  // of known ones; a longer name is like none of them

// Levenshtein's distance, where two neighbours that changed places count as one.
inline size_t NameDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// The known name that is one or two letters away, of several the nearest; empty: none is.
inline std::string_view NearestName(std::string_view name,
                                    std::span<const std::string_view> known) {
  if (name.size() > kLongestName) return {};
  std::string_view nearest;
  size_t least = std::min<size_t>(2, name.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t distance = NameDistance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace sluice
