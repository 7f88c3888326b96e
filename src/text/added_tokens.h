// Tokens that stand in the text as they are, found before the model sees it: leftmost first, of
// those that begin together the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;
  bool is_normalized = true;    // looked for in the normalised text, and normalised itself
  bool is_literal = false;      // looked for in the normalised text, as it is
  bool is_single_word = false;  // not inside a word
  bool strips_left = false;     // takes the spaces in front of it
  bool strips_right = false;
};

class AddedTokenFinder {
 public:
  // The first token of a content stays; empty ones are left out.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  struct Part {
    std::string_view text;  // of no token
    int32_t id = -1;        // or a token
  };

  // f(Part) for each part of the text, in order; none is empty.
  template <typename F>
  void ForEachPart(std::string_view text, bool parses_special, F f) const {
    size_t done = 0;
    Match match;
    for (size_t at = 0; Find(text, at, done, parses_special, &match); at = match.next) {
      if (match.begin > done) f(Part{text.substr(done, match.begin - done)});
      f(Part{{}, match.id});
      done = match.end;
    }
    if (done < text.size()) f(Part{text.substr(done)});
  }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> edges;
    int32_t token = -1;  // place in tokens_
  };
  struct Match {
    size_t begin;
    size_t end;
    size_t next;  // where to look further
    int32_t id;
  };

  // The next match at or after `at`. What is before `done` belongs to other parts.
  bool Find(std::string_view text, size_t at, size_t done, bool parses_special, Match* match) const;
  int32_t LongestAt(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // a trie
  std::array<bool, 256> begins_ = {};
};

}  // namespace sluice::text
