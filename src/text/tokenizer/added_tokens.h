// Tokens that stand in the text as they are, found before the model sees it: leftmost first, of
// those that begin together the longest. Takes time linear in the text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/chat_text.hpp"
#include "text/tokenizer/longest_match.h"

namespace sluice::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_special = false;
  bool is_normalized = true;    // looked for in the normalised text, and normalised itself
  bool is_literal = false;      // looked for in the normalised text, as it is
  bool is_single_word = false;  // not inside a word
  bool strips_left = false;     // takes the spaces before it
  bool strips_right = false;

  bool IsMarker() const {
    return is_special ||
           std::ranges::any_of(content, [](char c) { return c != ' ' && (c < '\t' || c > '\r'); });
  }
};

// Where special tokens count: these spans, of a text of which `offset` bytes are left out. In a
// chat so do all added tokens that are more than spaces: models have markers of turns that are not
// special.
struct OwnText {
  std::span<const TextSpan> spans = {};
  size_t offset = 0;
  bool is_chat = false;

  OwnText From(size_t begin) const {
    const size_t at = offset + begin;
    const auto first = std::ranges::upper_bound(spans, at, {}, &TextSpan::end);
    return {spans.subspan(static_cast<size_t>(first - spans.begin())), at, is_chat};
  }
  bool HasAll(size_t size) const {
    return !spans.empty() && spans[0].begin <= offset && spans[0].end >= offset + size;
  }
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
  void ForEachPart(std::string_view text, const OwnText& own, F f) const {
    size_t done = 0;
    for (const Match& match : Find(text, own)) {
      if (match.begin > done) f(Part{text.substr(done, match.begin - done)});
      f(Part{{}, match.id});
      done = match.end;
    }
    if (done < text.size()) f(Part{text.substr(done)});
  }

 private:
  struct Match {
    size_t begin;  // with the spaces that the token takes; may exceed the end of the last one
    size_t end;
    int32_t id;
  };
  std::vector<Match> Find(std::string_view text, const OwnText& own) const;
  // The place in tokens_ of the longest token that the text begins with; -1: none.
  int32_t LongestOf(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  LongestMatcher matcher_;  // its values are places in tokens_
};

}  // namespace sluice::text
