#include "sluice/stop.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "support/check.h"
#include "text/padded_append.h"
#include "text/stop_filter.h"

namespace sluice {
namespace {

// For bytes with as much padding after them as an arena has.
void Append(std::string_view padded, std::string& text) {
  if (text::CanAppendPadded(padded.size(), text)) {
    text::AppendPadded(padded.data(), padded.size(), text);
  } else {
    text.append(padded);
  }
}

}  // namespace

StopScanner::StopScanner(std::shared_ptr<const StopList> stops, const StopOptions& options)
    : stops_(std::move(stops)), options_(options) {
  if (stops_ == nullptr) ThrowInvalid("stops", "null", "a list, which may be empty");
  CheckInRange("min_tokens", options.min_tokens, 0, INT64_MAX);
  first_kinds_ = stops_->first_kinds_;
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

// Counts the next tokens, which end their text at `end`.
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

// Releases the tokens with text among the first `bytes`. A token without text goes with the one
// that precedes it.
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
