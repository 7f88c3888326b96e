#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    size_t node = 0;
    for (const char c : content) {
      const auto byte = static_cast<uint8_t>(c);
      auto& edges = nodes_[node].edges;
      const auto edge =
          std::find_if(edges.begin(), edges.end(), [&](const auto& e) { return e.first == byte; });
      if (edge != edges.end()) {
        node = edge->second;
        continue;
      }
      edges.emplace_back(byte, static_cast<uint32_t>(nodes_.size()));
      node = nodes_.size();
      nodes_.emplace_back();
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(i);
    begins_[static_cast<uint8_t>(content[0])] = true;
  }
}

int32_t AddedTokenFinder::LongestAt(std::string_view text, size_t at) const {
  int32_t longest = -1;
  const Node* node = &nodes_[0];
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    const auto edge = std::find_if(node->edges.begin(), node->edges.end(),
                                   [&](const auto& e) { return e.first == byte; });
    if (edge == node->edges.end()) break;
    node = &nodes_[edge->second];
    if (node->token >= 0) longest = node->token;
  }
  return longest;
}

bool AddedTokenFinder::Find(std::string_view text, size_t at, size_t done, bool parses_special,
                            Match* match) const {
  if (tokens_.empty()) return false;
  for (; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    const int32_t found = LongestAt(text, at);
    if (found < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at;
    size_t end = at + token.content.size();
    // A match that does not count is passed over as a whole.
    at = end - 1;
    if (token.is_special && !parses_special) continue;
    if (token.is_single_word) {
      const bool continues = begin > 0 && IsWordPart(LastOf(text.substr(0, begin)).value);
      const bool goes_on = end < text.size() && IsWordPart(FirstOf(text.substr(end)).value);
      if (continues || goes_on) continue;
    }
    match->next = end;
    while (token.strips_left && begin > done) {
      const CodePoint last = LastOf(text.substr(0, begin));
      if (!IsSpace(last.value)) break;
      begin -= last.size;
    }
    while (token.strips_right && end < text.size()) {
      const CodePoint first = FirstOf(text.substr(end));
      if (!IsSpace(first.value)) break;
      end += first.size;
    }
    *match = {std::max(begin, done), end, match->next, token.id};
    return true;
  }
  return false;
}

}  // namespace sluice::text
