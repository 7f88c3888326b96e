// All of many patterns that a text begins with, the shortest first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::text {

class PrefixTrie {
 public:
  // The last of equal patterns gives the place; empty ones are left out.
  explicit PrefixTrie(const std::vector<std::string_view>& patterns = {}) : nodes_(1) {
    struct Range {
      size_t begin;
      size_t end;
      size_t depth;
    };
    std::vector<std::pair<std::string_view, int32_t>> sorted;
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (!patterns[i].empty()) sorted.emplace_back(patterns[i], static_cast<int32_t>(i));
    }
    std::sort(sorted.begin(), sorted.end());
    std::vector<Range> ranges = {{0, sorted.size(), 0}};
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      auto [begin, end, depth] = ranges[node];
      for (; begin < end && sorted[begin].first.size() == depth; ++begin) {
        nodes_[node].value = sorted[begin].second;
      }
      nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = sorted[begin].first[depth];
        size_t next = begin + 1;
        while (next < end && sorted[next].first[depth] == byte) ++next;
        nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
        ranges.push_back({begin, next, depth + 1});
        ++nodes_[node].children;
        begin = next;
      }
    }
    for (uint32_t child = 0; child < nodes_[0].children; ++child) {
      from_root_[nodes_[1 + child].byte] = 1 + child;
    }
  }

  // f(size_t size, int32_t place) for each pattern that the text begins with.
  template <typename F>
  void ForEachPrefix(std::string_view text, F f) const {
    uint32_t node = text.empty() ? 0 : from_root_[static_cast<uint8_t>(text[0])];
    for (size_t size = 1; node != 0; ++size) {
      if (nodes_[node].value >= 0) f(size, nodes_[node].value);
      node = size < text.size() ? Child(node, static_cast<uint8_t>(text[size])) : 0;
    }
  }

 private:
  // Its children are neighbours, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    int32_t value = -1;
    uint16_t children = 0;
    uint8_t byte = 0;
  };

  uint32_t Child(uint32_t node, uint8_t byte) const {  // 0: none
    const auto first = nodes_.begin() + nodes_[node].first_child;
    const auto last = first + nodes_[node].children;
    const auto found = std::lower_bound(
        first, last, byte, [](const Node& child, uint8_t b) { return child.byte < b; });
    return found != last && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> from_root_ = {};
};

}  // namespace sluice::text
