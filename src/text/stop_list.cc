#include <algorithm>
#include <utility>

#include "sluice/stop.hpp"
#include "support/check.h"
#include "text/byte_kinds.h"
#include "text/normalize/utf8.h"
#include "text/stop_filter.h"
#include "text/tokenizer/vocabulary.h"

namespace sluice {
namespace {

void CheckStops(std::span<const std::string> stops, const StopLimits& limits) {
  // The number of a node has 16 bits, that of a stop 15.
  const auto most = [](size_t limit, int64_t possible) {
    return std::cmp_less(limit, possible) ? static_cast<int64_t>(limit) : possible;
  };
  constexpr int64_t kMostBytes = 65534;
  CheckInRange("stops.size()", static_cast<int64_t>(stops.size()), 0,
               most(limits.max_stops, INT16_MAX));
  size_t total = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string name = "stops[" + std::to_string(i) + "]";
    CheckInRange(name + ".size()", static_cast<int64_t>(stops[i].size()), 1,
                 most(limits.max_bytes, kMostBytes));
    if (!text::IsUtf8(stops[i])) ThrowInvalid(name, "text that is not UTF-8", "UTF-8");
    total += stops[i].size();
  }
  CheckInRange("stops, in bytes together", static_cast<int64_t>(total), 0,
               most(limits.max_total_bytes, kMostBytes));
}

}  // namespace

// A trie of the stops, then the links of Aho and Corasick in the order of depth.
StopList::StopList(std::span<const std::string> stops, const StopLimits& limits) {
  CheckStops(stops, limits);
  stops_.assign(stops.begin(), stops.end());
  if (stops_.empty()) return;

  std::vector<std::vector<Edge>> children(1);
  nodes_.resize(1);
  for (size_t s = 0; s < stops_.size(); ++s) {
    const std::string& stop = stops_[s];
    const auto text_begin = static_cast<uint32_t>(text_.size());
    text_.append(stop);
    longest_ = std::max(longest_, stop.size());
    size_t node = 0;
    for (const char c : stop) {
      const auto byte = static_cast<uint8_t>(c);
      const auto edge = std::find_if(children[node].begin(), children[node].end(),
                                     [&](const Edge& e) { return e.byte == byte; });
      if (edge != children[node].end()) {
        node = edge->target;
        continue;
      }
      const auto depth = static_cast<uint16_t>(nodes_[node].depth + 1);
      children[node].push_back({byte, static_cast<uint16_t>(nodes_.size())});
      node = nodes_.size();
      nodes_.push_back({.depth = depth, .text_begin = text_begin});
      children.emplace_back();
    }
    if (nodes_[node].match < 0) nodes_[node].match = static_cast<int16_t>(s);
  }
  text_.append(text::kArenaPadding, '\0');
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].first_edge = static_cast<uint16_t>(edges_.size());
    nodes_[node].edges = static_cast<uint16_t>(children[node].size());
    edges_.insert(edges_.end(), children[node].begin(), children[node].end());
  }
  root_.assign(256, 0);
  for (const Edge& edge : children[0]) {
    root_[edge.byte] = edge.target;
    firsts_.emplace_back().fill(edge.byte);
    first_kinds_ |= text::KindOf(edge.byte);
  }
  if (firsts_.size() > 16) firsts_.clear();

  std::vector<uint16_t> queue;
  for (const Edge& edge : children[0]) queue.push_back(edge.target);
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint16_t at = queue[i];
    Node& node = nodes_[at];
    // Its own stop is longer than any that is its suffix.
    if (node.match < 0) node.match = nodes_[node.fail].match;
    node.hold = node.edges > 0 ? node.depth : nodes_[node.fail].hold;
    for (const Edge& edge : children[at]) {
      nodes_[edge.target].fail = Next(node.fail, edge.byte);
      queue.push_back(edge.target);
    }
  }
}

// Whether a byte of the text begins a stop.
bool StopList::BeginsIn(std::string_view text) const {
  if (IsEmpty()) return false;
  return std::any_of(text.begin(), text.end(),
                     [&](char c) { return root_[static_cast<uint8_t>(c)] != 0; });
}

std::shared_ptr<const StopList> StopListCache::Get(std::span<const std::string> stops,
                                                   const StopLimits& limits) {
  // Before anything is made of them; and one that is there may have been made under wider limits.
  CheckStops(stops, limits);
  std::string key;
  for (const std::string& stop : stops) {
    key.append(std::to_string(stop.size())).append(":").append(stop);
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->second;
  }
  auto made = std::make_shared<const StopList>(stops, limits);
  entries_.emplace_front(std::move(key), made);
  by_key_.emplace(entries_.front().first, entries_.begin());
  if (entries_.size() > capacity_) {
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return made;
}

}  // namespace sluice
