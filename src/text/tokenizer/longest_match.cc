#include "text/tokenizer/longest_match.h"

#include <algorithm>
#include <string>

#include "support/check.h"

namespace sluice::text {
namespace {

using Pattern = LongestMatcher::Pattern;

uint8_t FromTheEnd(const Pattern& pattern, size_t depth) {
  return static_cast<uint8_t>(pattern.bytes[pattern.bytes.size() - 1 - depth]);
}

bool IsBeforeFromTheEnd(const Pattern& a, const Pattern& b) {
  return std::lexicographical_compare(
      a.bytes.rbegin(), a.bytes.rend(), b.bytes.rbegin(), b.bytes.rend(),
      [](char x, char y) { return static_cast<uint8_t>(x) < static_cast<uint8_t>(y); });
}

}  // namespace

LongestMatcher::LongestMatcher(std::string_view parameter, std::vector<Pattern> patterns)
    : nodes_(1) {
  size_t total = 0;
  for (const Pattern& pattern : patterns) total += pattern.bytes.size();
  if (total > kMaxBytes) {
    ThrowInvalid(parameter, "tokens of " + std::to_string(total) + " bytes together",
                 "at most " + std::to_string(kMaxBytes));
  }
  std::erase_if(patterns, [](const Pattern& pattern) { return pattern.bytes.empty(); });
  std::stable_sort(patterns.begin(), patterns.end(), IsBeforeFromTheEnd);

  // Level by level. A node has a range of the sorted patterns: those with a path through it.
  struct Range {
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges = {{0, patterns.size(), 0}};
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && patterns[begin].bytes.size() == depth) {
      nodes_[node].longest = patterns[begin].value;
      while (begin < end && patterns[begin].bytes.size() == depth) ++begin;
    } else if (node != 0) {
      nodes_[node].longest = nodes_[nodes_[node].fail].longest;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const uint8_t byte = FromTheEnd(patterns[begin], depth);
      size_t next = begin + 1;
      while (next < end && FromTheEnd(patterns[next], depth) == byte) ++next;
      const auto child = static_cast<uint32_t>(nodes_.size());
      const uint32_t fail = node == 0 ? 0 : Next(nodes_[node].fail, byte);
      if (node == 0) from_root_[byte] = child;
      nodes_.push_back({.fail = fail, .byte = byte});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].children;
      begin = next;
    }
  }
}

uint32_t LongestMatcher::ChildOfMany(const Node& of, uint8_t byte) const {
  const auto first = nodes_.begin() + of.first_child;
  const auto last = first + of.children;
  const auto found = std::lower_bound(first, last, byte,
                                      [](const Node& child, uint8_t b) { return child.byte < b; });
  return found != last && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
}

}  // namespace sluice::text
