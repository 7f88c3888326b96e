// For every place of a text the longest of many patterns that begins there, in time linear in the
// text however the patterns overlap: an automaton over the reversed patterns that reads the text
// from its end. (Read forwards, "a" and 10,000 of "a" followed by "b" take 10,000 steps a byte.)
//
// Aho, Corasick: "Efficient string matching: an aid to bibliographic search", 1975.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice::text {

class LongestMatcher {
 public:
  struct Pattern {
    std::string_view bytes;  // not kept
    int32_t value;           // not negative
  };
  // The first of equal patterns stays; empty ones are left out. Throws Error naming `parameter`
  // when they have more than kMaxBytes together.
  explicit LongestMatcher(std::string_view parameter = {}, std::vector<Pattern> patterns = {});

  static constexpr size_t kMaxBytes = size_t{16} << 20;

  bool IsEmpty() const { return nodes_.size() == 1; }

  // f(size_t begin, int32_t value) for each place where a pattern begins, the last place first.
  template <typename F>
  void ForEachFromTheEnd(std::string_view text, F f) const {
    uint32_t node = 0;
    for (size_t at = text.size(); at-- > 0;) {
      node = Next(node, static_cast<uint8_t>(text[at]));
      // Most of a text is at the root.
      if (node != 0 && nodes_[node].longest >= 0) f(at, nodes_[node].longest);
    }
  }

 private:
  // Its children are neighbours, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint32_t fail = 0;     // the longest proper suffix of its path that is a path
    int32_t longest = -1;  // of the patterns that end its path: the longest one's value
    uint16_t children = 0;
    uint8_t byte = 0;
  };

  uint32_t Child(uint32_t node, uint8_t byte) const {  // 0: none
    const Node& of = nodes_[node];
    if (of.children == 1) return nodes_[of.first_child].byte == byte ? of.first_child : 0;
    return of.children == 0 ? 0 : ChildOfMany(of, byte);
  }
  uint32_t ChildOfMany(const Node& of, uint8_t byte) const;
  uint32_t Next(uint32_t node, uint8_t byte) const {
    for (; node != 0; node = nodes_[node].fail) {
      if (const uint32_t child = Child(node, byte)) return child;
    }
    return from_root_[byte];
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> from_root_ = {};
};

}  // namespace sluice::text
