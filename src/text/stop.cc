#include "sluice/stop.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "support/check.h"
#include "text/utf8.h"

namespace sluice {
namespace {

void CheckStops(std::span<const std::string> stops, const StopLimits& limits) {
  // A node has a number of 16 bits.
  CheckInRange("limits.max_total_bytes", static_cast<int64_t>(limits.max_total_bytes), 0, 65534);
  CheckInRange("stop.size()", static_cast<int64_t>(stops.size()), 0,
               std::min<int64_t>(static_cast<int64_t>(limits.max_stops), INT16_MAX));
  size_t total = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string name = "stop[" + std::to_string(i) + "]";
    CheckInRange(name + ".size()", static_cast<int64_t>(stops[i].size()), 1,
                 static_cast<int64_t>(limits.max_bytes));
    if (!text::IsUtf8(stops[i])) ThrowInvalid(name, "text that is not UTF-8", "UTF-8");
    total += stops[i].size();
  }
  CheckInRange("stop, in bytes together", static_cast<int64_t>(total), 0,
               static_cast<int64_t>(limits.max_total_bytes));
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
  for (size_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].first_edge = static_cast<uint16_t>(edges_.size());
    nodes_[node].edges = static_cast<uint16_t>(children[node].size());
    edges_.insert(edges_.end(), children[node].begin(), children[node].end());
  }
  root_.assign(256, 0);
  for (const Edge& edge : children[0]) root_[edge.byte] = edge.target;

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

// Amortised constant time: a link leads at least one byte up, an edge exactly one down.
inline uint16_t StopList::Next(uint16_t node, uint8_t byte) const {
  while (node != 0) {
    const Node& at = nodes_[node];
    const Edge* edge = edges_.data() + at.first_edge;
    for (const Edge* end = edge + at.edges; edge != end; ++edge) {
      if (edge->byte == byte) return edge->target;
    }
    node = at.fail;
  }
  return root_[byte];
}

std::shared_ptr<const StopList> StopListCache::Get(std::span<const std::string> stops,
                                                   const StopLimits& limits) {
  std::string key;
  for (const std::string& stop : stops) {
    key.append(std::to_string(stop.size())).append(":").append(stop);
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    CheckStops(stops, limits);  // it may have been made under wider limits
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

StopScanner::StopScanner(std::shared_ptr<const StopList> stops, const StopOptions& options)
    : stops_(std::move(stops)), options_(options) {
  if (stops_ == nullptr) ThrowInvalid("stops", "null", "a list, which may be empty");
  CheckInRange("min_tokens", options.min_tokens, 0, INT64_MAX);
  held_tokens_.reserve(stops_->longest() + 1);
}

size_t StopScanner::held_bytes() const {
  if (stops_->IsEmpty() || options_.include_stop || result_.stop >= 0) return 0;
  return stops_->nodes_[node_].hold;
}

void StopScanner::HoldToken(int64_t end) {
  if (!held_tokens_.empty() && held_tokens_.back().end == end) {
    ++held_tokens_.back().count;
  } else {
    held_tokens_.push_back({end, 1});
  }
}

// Those whose text is among the first so many bytes. A token without text goes with what is in
// front of it.
void StopScanner::ReleaseTokens(int64_t bytes) {
  size_t released = 0;
  while (released < held_tokens_.size() && held_tokens_[released].end <= bytes) {
    result_.released_tokens += held_tokens_[released++].count;
  }
  held_tokens_.erase(held_tokens_.begin(),
                     held_tokens_.begin() + static_cast<std::ptrdiff_t>(released));
}

StopResult StopScanner::Step(std::string_view text, std::span<const size_t> ends,
                             std::string& released) {
  size_t last = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < last || ends[i] > text.size()) {
      CheckInRange("ends[" + std::to_string(i) + "]", static_cast<int64_t>(ends[i]),
                   static_cast<int64_t>(last), static_cast<int64_t>(text.size()));
    }
    last = ends[i];
  }
  if (last != text.size()) {
    ThrowInvalid("ends", "the last one " + std::to_string(last),
                 "the size of the text, " + std::to_string(text.size()));
  }
  if (result_.stop >= 0) return result_;
  if (stops_->IsEmpty()) {
    released.append(text);
    result_.tokens += static_cast<int64_t>(ends.size());
    result_.released_tokens = result_.tokens;
    return result_;
  }

  const StopList& list = *stops_;
  const auto* const nodes = list.nodes_.data();
  const auto* const root = list.root_.data();
  if (node_ == 0 && held_tokens_.empty()) {  // most text has no byte that begins a stop
    const bool begins_none = std::all_of(
        text.begin(), text.end(), [&](char c) { return root[static_cast<uint8_t>(c)] == 0; });
    if (begins_none) {
      released.append(text);
      scanned_ += static_cast<int64_t>(text.size());
      result_.tokens += static_cast<int64_t>(ends.size());
      result_.released_tokens = result_.tokens;
      return result_;
    }
  }
  const size_t held = held_bytes();
  const std::string_view held_text =
      std::string_view(list.text_)
          .substr(nodes[node_].text_begin + nodes[node_].depth - held, held);
  // Bytes of held_text and text together, from the beginning.
  const auto release = [&](size_t bytes) {
    released.append(held_text.substr(0, bytes));
    if (bytes > held) released.append(text.substr(0, bytes - held));
  };

  uint16_t node = node_;
  size_t at = 0;
  for (const size_t end : ends) {
    ++result_.tokens;
    const bool counts = result_.tokens > options_.min_tokens;
    while (at < end) {
      const auto byte = static_cast<uint8_t>(text[at++]);
      node = node == 0 ? root[byte] : list.Next(node, byte);
      if (node == 0 || nodes[node].match < 0 || !counts) continue;
      result_.stop = nodes[node].match;
      const size_t stop = list.stops_[static_cast<size_t>(result_.stop)].size();
      // Without include_stop, all of the stop that came before this text has been held back.
      release(options_.include_stop ? held + at : held + at - stop);
      result_.released_tokens = result_.tokens;
      held_tokens_.clear();
      return result_;
    }
  }
  node_ = node;
  const size_t holds = held_bytes();
  const int64_t before = scanned_ - static_cast<int64_t>(held);
  const size_t goes = held + text.size() - holds;
  release(goes);
  scanned_ += static_cast<int64_t>(text.size());
  const int64_t out = before + static_cast<int64_t>(goes);
  ReleaseTokens(out);
  for (const size_t end : ends) {
    const int64_t token_end = scanned_ - static_cast<int64_t>(text.size() - end);
    if (token_end <= out) {
      ++result_.released_tokens;
    } else {
      HoldToken(token_end);
    }
  }
  return result_;
}

StopResult StopScanner::Finish(std::string_view rest, std::string& released) {
  if (result_.stop >= 0) return result_;
  // The rest belongs to the last token, which has been counted if there was one.
  const std::array<size_t, 1> ends = {rest.size()};
  if (!rest.empty()) {
    const int64_t tokens = result_.tokens;
    result_.tokens = std::max<int64_t>(tokens - 1, 0);
    Step(rest, ends, released);
    result_.tokens = tokens;
    result_.released_tokens = std::min(result_.released_tokens, tokens);
    if (result_.stop >= 0) return result_;
  }
  if (!stops_->IsEmpty()) {
    const auto& node = stops_->nodes_[node_];
    const size_t held = held_bytes();
    released.append(stops_->text_, node.text_begin + node.depth - held, held);
  }
  node_ = 0;
  result_.released_tokens = result_.tokens;
  held_tokens_.clear();
  return result_;
}

}  // namespace sluice
