#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

LongestMatcher MatcherOf(const std::vector<AddedToken>& tokens) {
  std::vector<LongestMatcher::Pattern> patterns;
  for (size_t i = 0; i < tokens.size(); ++i) {
    patterns.push_back({tokens[i].content, static_cast<int32_t>(i)});
  }
  return LongestMatcher("added_tokens", std::move(patterns));
}

bool IsInsideAWord(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && IsWordPart(LastOf(text.substr(0, begin)).value)) ||
         (end < text.size() && IsWordPart(FirstOf(text.substr(end)).value));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), matcher_(MatcherOf(tokens_)) {}

int32_t AddedTokenFinder::LongestOf(std::string_view text) const {
  int32_t longest = -1;
  matcher_.ForEachFromTheEnd(text, [&](size_t begin, int32_t token) {
    if (begin == 0) longest = token;
  });
  return longest;
}

std::vector<AddedTokenFinder::Match> AddedTokenFinder::Find(std::string_view text,
                                                            const OwnText& own) const {
  std::vector<Match> matches;
  if (matcher_.IsEmpty()) return matches;
  struct Place {
    size_t begin;
    int32_t token;
  };
  std::vector<Place> places;
  matcher_.ForEachFromTheEnd(
      text, [&](size_t begin, int32_t token) { places.push_back({begin, token}); });
  size_t next = 0;        // where the next token may begin
  size_t done = 0;        // what is before belongs to other parts
  size_t spaces_end = 0;  // of the last run of spaces that a token took
  for (size_t i = places.size(); i-- > 0;) {
    size_t begin = places[i].begin;
    if (begin < next) continue;
    int32_t place = places[i].token;
    const AddedToken& found = tokens_[static_cast<size_t>(place)];
    if (own.is_chat ? found.IsMarker() : found.is_special) {
      const OwnText rest = own.From(begin);
      const size_t match_end = begin + tokens_[static_cast<size_t>(place)].content.size();
      const bool begins_own = rest.HasAll(1);
      if (begins_own && !rest.HasAll(match_end - begin)) {
        // What follows a span must not hide the token that it ends with.
        place = LongestOf(text.substr(begin, rest.spans[0].end - rest.offset));
        if (place < 0) continue;
      } else if (!begins_own) {
        // A match that does not count is passed over as a whole, up to the next span.
        next = match_end;
        if (!rest.spans.empty()) next = std::min(next, begin + rest.spans[0].begin - rest.offset);
        continue;
      }
    }
    const AddedToken& token = tokens_[static_cast<size_t>(place)];
    size_t end = begin + token.content.size();
    next = end;
    if (token.is_single_word && IsInsideAWord(text, begin, end)) continue;
    while (token.strips_left && begin > done) {
      const CodePoint last = LastOf(text.substr(0, begin));
      if (!IsSpace(last.value)) break;
      begin -= last.size;
    }
    if (token.strips_right) {
      // Tokens inside one run of spaces all end with it.
      if (end < spaces_end) end = spaces_end;
      while (end < text.size()) {
        const CodePoint first = FirstOf(text.substr(end));
        if (!IsSpace(first.value)) break;
        end += first.size;
      }
      spaces_end = end;
    }
    // One that takes the spaces before it takes none twice, and does not match when its own were
    // taken.
    if (token.strips_left) begin = std::max(begin, done);
    if (begin >= end) continue;
    matches.push_back({std::max(begin, done), end, token.id});
    done = end;
  }
  return matches;
}

}  // namespace sluice::text
