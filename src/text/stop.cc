#include "sluice/stop.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "support/check.h"
#include "text/byte_kinds.h"
#include "text/padded_append.h"
#include "text/stop_filter.h"
#include "text/utf8.h"

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

// For bytes with as many behind them as an arena has.
void Append(std::string_view padded, std::string& text) {
  if (text::CanAppendPadded(padded.size(), text)) {
    text::AppendPadded(padded.data(), padded.size(), text);
  } else {
    text.append(padded);
  }
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

// Whether a byte of the text begins a stop.
bool StopList::BeginsIn(std::string_view text) const {
  if (IsEmpty()) return false;
  return std::any_of(text.begin(), text.end(),
                     [&](char c) { return root_[static_cast<uint8_t>(c)] != 0; });
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

std::string_view StopScanner::HeldText() const {
  const size_t held = held_bytes();
  if (held == 0) return {};
  const StopList::Node& node = stops_->nodes_[node_];
  return std::string_view(stops_->text_).substr(node.text_begin + node.depth - held, held);
}

void StopScanner::CheckEnds(std::span<const TokenEnd> ends, size_t size) const {
  size_t last = 0;
  size_t open = open_tokens_;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i].text < last || ends[i].text > size) {
      CheckInRange("ends[" + std::to_string(i) + "].text", static_cast<int64_t>(ends[i].text),
                   static_cast<int64_t>(last), static_cast<int64_t>(size));
    }
    if (ends[i].open_tokens > open + 1) {
      CheckInRange("ends[" + std::to_string(i) + "].open_tokens",
                   static_cast<int64_t>(ends[i].open_tokens), 0, static_cast<int64_t>(open + 1));
    }
    last = ends[i].text;
    open = ends[i].open_tokens;
  }
  if (last != size) {
    ThrowInvalid("ends", "the last one " + std::to_string(last),
                 "the size of the text, " + std::to_string(size));
  }
}

const StopResult& StopScanner::Step(std::string_view text, std::span<const TokenEnd> ends,
                                    std::string& released) {
  CheckEnds(ends, text.size());
  if (is_idle_ && ends.size() == 1 && ends[0].open_tokens == 0 && !stops_->BeginsIn(text)) {
    released.append(text);
    result_.released_tokens = ++result_.tokens;
    return result_;
  }
  const size_t begin = released.size();
  released.append(text);
  return Scan(released, begin, ends, begin);
}

// ends[i].text counts from `offset`.
const StopResult& StopScanner::Scan(std::string& text, size_t begin, std::span<const TokenEnd> ends,
                                    size_t offset) {
  if (result_.stop >= 0) {
    text.resize(begin);
    return result_;
  }
  const StopList& list = *stops_;
  const auto added = static_cast<int64_t>(text.size() - begin);
  if (node_ == 0 && !list.BeginsIn(std::string_view(text).substr(begin))) {
    result_.tokens += static_cast<int64_t>(ends.size());
    AccountFor(ends, static_cast<int64_t>(begin) - static_cast<int64_t>(offset), added);
    return result_;
  }

  const std::string_view held = HeldText();
  text.insert(begin, held);
  offset += held.size();
  const auto* const nodes = list.nodes_.data();
  const auto* const root = list.root_.data();
  uint16_t node = node_;
  size_t at = begin + held.size();
  for (const TokenEnd& token : ends) {
    ++result_.tokens;
    const bool counts = result_.tokens > options_.min_tokens;
    for (const size_t end = token.text + offset; at < end;) {
      const auto byte = static_cast<uint8_t>(text[at++]);
      node = node == 0 ? root[byte] : list.Next(node, byte);
      if (node == 0 || nodes[node].match < 0 || !counts) continue;
      return Stop(text, at, nodes[node].match);
    }
  }
  node_ = node;
  const size_t holds = held_bytes();
  text.resize(text.size() - holds);
  AccountFor(ends, static_cast<int64_t>(begin + held.size()) - static_cast<int64_t>(offset),
             added - static_cast<int64_t>(holds));
  return result_;
}

// Without include_stop, all of the stop that came before this text had been held back.
const StopResult& StopScanner::Stop(std::string& text, size_t end, int16_t stop) {
  result_.stop = stop;
  result_.released_tokens = result_.tokens;
  text.resize(options_.include_stop ? end : end - stops_->stops_[static_cast<size_t>(stop)].size());
  held_tokens_.clear();
  open_tokens_ = 0;
  is_idle_ = false;
  return result_;
}

// Where no stop begins matters only to one that has begun before.
bool StopScanner::StepWithin(const char* padded, size_t size, uint32_t begins, std::string& text) {
  const StopList& list = *stops_;
  const StopList::Node* const nodes = list.nodes_.data();
  uint16_t node = node_;
  size_t at = 0;
  for (;;) {
    if (node == 0) {
      const uint32_t ahead = begins >> at;
      if (ahead == 0) break;
      at += static_cast<size_t>(std::countr_zero(ahead));
    } else if (at == size) {
      break;
    }
    node = list.Next(node, static_cast<uint8_t>(padded[at++]));
    if (node != 0 && nodes[node].match >= 0) return false;
  }
  if (const std::string_view held = HeldText(); !held.empty()) Append(held, text);
  node_ = node;
  ++result_.tokens;
  Append({padded, size}, text);
  const size_t holds = held_bytes();
  if (holds > 0) text.erase(text.size() - holds);
  scanned_ += static_cast<int64_t>(size);
  is_idle_ = node == 0;
  if (holds == 0) {
    held_tokens_.clear();
    result_.released_tokens = result_.tokens;
  } else {
    const int64_t out = scanned_ - static_cast<int64_t>(holds);
    ReleaseTokens(out);
    CountClosed(1, scanned_, out);
  }
  return true;
}

// Says which tokens are out. The text of these began at text_begin of `ends`, and so many bytes of
// it are out; fewer than none when older text is held.
void StopScanner::AccountFor(std::span<const TokenEnd> ends, int64_t text_begin, int64_t out) {
  out += scanned_;
  ReleaseTokens(out);
  int64_t end = scanned_;
  for (const TokenEnd& token : ends) {
    end = scanned_ + static_cast<int64_t>(token.text) - text_begin;
    const size_t closed = open_tokens_ + 1 - token.open_tokens;
    open_tokens_ = token.open_tokens;
    if (closed > 0) CountClosed(closed, end, out);
  }
  scanned_ = end;
  is_idle_ = node_ == 0 && open_tokens_ == 0;
}

// The next so many tokens, whose text ends there.
inline void StopScanner::CountClosed(size_t tokens, int64_t end, int64_t out) {
  const auto count = static_cast<int64_t>(tokens);
  if (end <= out) {
    result_.released_tokens += count;
  } else if (!held_tokens_.empty() && held_tokens_.back().end == end) {
    held_tokens_.back().count += count;
  } else {
    held_tokens_.push_back({end, count});
  }
}

// Those whose text is among the first so many bytes. A token without text goes with what is in
// front of it.
void StopScanner::ReleaseTokens(int64_t bytes) {
  if (held_tokens_.empty()) return;
  size_t released = 0;
  while (released < held_tokens_.size() && held_tokens_[released].end <= bytes) {
    result_.released_tokens += held_tokens_[released++].count;
  }
  held_tokens_.erase(held_tokens_.begin(),
                     held_tokens_.begin() + static_cast<std::ptrdiff_t>(released));
}

const StopResult& StopScanner::Finish(std::string_view rest, std::string& released) {
  if (result_.stop >= 0) return result_;
  // The rest belongs to the last token, which has been counted if there was one.
  const int64_t tokens = result_.tokens;
  if (!rest.empty()) {
    const std::array<TokenEnd, 1> ends = {{{.text = rest.size()}}};
    result_.tokens = std::max<int64_t>(tokens - 1, 0);
    Step(rest, ends, released);
  }
  if (result_.stop < 0) {
    released.append(HeldText());
    node_ = 0;
    held_tokens_.clear();
    open_tokens_ = 0;
    scanned_ = 0;
    is_idle_ = true;
  }
  result_.tokens = tokens;
  result_.released_tokens = tokens;
  return result_;
}

}  // namespace sluice
