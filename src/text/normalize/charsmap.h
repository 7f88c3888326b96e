// SentencePiece's precompiled map of characters: a double array of texts, and what each becomes.
//
// Aoe: "An efficient digital search algorithm by using a double-array structure", 1989; the layout
// is that of Darts-clone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/longest_match.h"

namespace sluice::text {

class Charsmap {
 public:
  // kept: texts that AppendLongest leaves as they are; their values are their sizes. Throws Error
  // naming `parameter` for what is malformed.
  Charsmap(std::string_view parameter, std::string_view blob,
           LongestMatcher kept = LongestMatcher());

  // As SentencePiece: from each place the longest text of the map, else a character as it is.
  void AppendLongest(std::string_view text, size_t most, std::string& out) const;
  // As Hugging Face: a cluster of characters of less than 6 bytes, else each of its characters, by
  // the shortest text of the map that it begins with.
  void AppendByClusters(std::string_view text, size_t most, std::string& out) const;

 private:
  struct Found {
    std::string_view becomes;
    size_t size;
  };
  std::optional<Found> Find(std::string_view text, bool is_longest) const;

  std::vector<uint32_t> units_;
  LongestMatcher kept_;
  std::string texts_;  // each ends with a 0
};

}  // namespace sluice::text
