#include "text/markup/markup_machine.h"

#include <algorithm>
#include <utility>

#include "sluice/tool_calls.hpp"

namespace sluice::text {
namespace {

constexpr size_t kLongestName = 64;
constexpr std::string_view kSpaces = " \n\r\t";

bool IsWordByte(char byte) { return IsNameByte(byte) || byte == ':'; }

// The bytes that may be the first of a text with this pattern.
std::bitset<256> FirstsOf(std::string_view pattern) {
  std::bitset<256> firsts;
  const auto add = [&](char byte) { firsts.set(static_cast<uint8_t>(byte)); };
  if (pattern.front() == kSpace) {
    for (const char byte : kSpaces) add(byte);
    pattern.remove_prefix(1);
  }
  if (pattern.front() == kName) {
    for (int byte = 0; byte < 128; ++byte) {
      if (IsNameByte(static_cast<char>(byte))) add(static_cast<char>(byte));
    }
  } else {
    add(pattern.front() == kObject ? '{' : pattern.front());
  }
  return firsts;
}

}  // namespace

MarkupMachine::MarkupMachine(const Markup& markup, StateNumber first, JsonKeys json_keys)
    : markup_(&markup), json_keys_(std::move(json_keys)), state_(first) {
  held_.reserve(kMostHeldBytes + 1);
  cursors_.reserve(markup.rules.size());
  firsts_.resize(markup.states.size());
  for (const MarkupRule& rule : markup.rules) firsts_[rule.from] |= FirstsOf(rule.pattern);
}

bool MarkupMachine::MayBegin(char byte) const {
  return (state().skips_space && IsSpace(byte)) || firsts_[state_][static_cast<uint8_t>(byte)];
}

void MarkupMachine::Step(std::string_view text, OutputParts& parts) {
  while (!text.empty()) {
    if (held_.empty() && !is_in_call_ && state().otherwise == state_) {
      // Text without markup goes out at once.
      const auto* const end = std::ranges::find_if(text, [&](char b) { return MayBegin(b); });
      const auto size = static_cast<size_t>(end - text.begin());
      parts.Append(state().text, -1, text.substr(0, size));
      text.remove_prefix(size);
      if (text.empty()) return;
    }
    held_.push_back(text.front());
    text.remove_prefix(1);
    Work(parts);
  }
}

void MarkupMachine::Finish(OutputParts& parts) {
  while (!held_.empty()) {
    const bool is_space = std::ranges::all_of(held_, IsSpace);
    if (is_space && state().drops_space) {
      held_.clear();
      break;
    }
    GiveUpFirst(parts);
    Work(parts);
  }
  if (!is_in_call_) return;
  EndCall(PartKind::kCallBroken, parts);
  parts.Append(PartKind::kContent, -1, Unread());
}

// What the arguments hold back.
std::string_view MarkupMachine::Unread() const {
  return std::visit(
      [](const auto& arguments) -> std::string_view {
        if constexpr (requires { arguments.unread(); }) return arguments.unread();
        return {};
      },
      arguments_);
}

// Until what is held may be the beginning of markup.
void MarkupMachine::Work(OutputParts& parts) {
  while (scanned_ < held_.size()) {
    if (is_in_call_) {
      AddToCall(parts);
      continue;
    }
    if (scanned_ == 0) {
      if (state().skips_space && IsSpace(held_.front())) {
        held_.erase(0, 1);
        continue;
      }
      BeginCursors();
    }
    const Cursor* const matched = MoveCursors(held_[scanned_++]);
    if (matched != nullptr) {
      Apply(*matched, parts);
    } else if (cursors_.empty() || held_.size() > kMostHeldBytes) {
      GiveUpFirst(parts);
    }
  }
}

void MarkupMachine::BeginCursors() {
  cursors_.clear();
  for (size_t i = 0; i < markup_->rules.size(); ++i) {
    if (markup_->rules[i].from == state_) cursors_.push_back({.rule = static_cast<uint16_t>(i)});
  }
}

const MarkupMachine::Cursor* MarkupMachine::MoveCursors(char byte) {
  std::erase_if(cursors_, [&](Cursor& cursor) { return !Move(cursor, byte); });
  const auto found = std::ranges::find_if(cursors_, [&](const Cursor& c) { return IsAtEnd(c); });
  return found == cursors_.end() ? nullptr : &*found;
}

bool MarkupMachine::IsAtEnd(const Cursor& cursor) const {
  return cursor.place == markup_->rules[cursor.rule].pattern.size();
}

// Whether the pattern goes on with this byte.
bool MarkupMachine::Move(Cursor& cursor, char byte) const {
  const std::string& pattern = markup_->rules[cursor.rule].pattern;
  while (cursor.place < pattern.size()) {
    const char part = pattern[cursor.place];
    bool takes = false;
    bool may_end = true;
    switch (part) {
      case kSpace:
        takes = IsSpace(byte);
        break;
      case kName:
        takes = IsNameByte(byte) && cursor.count < kLongestName;
        may_end = cursor.count > 0;
        if (takes && cursor.count == 0) cursor.begin = static_cast<uint16_t>(scanned_ - 1);
        if (takes) cursor.end = static_cast<uint16_t>(scanned_);
        break;
      case kWord:
        takes = IsWordByte(byte);
        may_end = cursor.count > 0;
        break;
      case kDigits:
        takes = IsDigit(byte);
        may_end = cursor.count > 0;
        break;
      default:
        if (byte != (part == kObject ? '{' : part)) return false;
        ++cursor.place;
        cursor.count = 0;
        return true;
    }
    if (takes) {
      ++cursor.count;
      return true;
    }
    if (!may_end) return false;
    ++cursor.place;
    cursor.count = 0;
  }
  return false;
}

// What is held is no markup: its first byte goes out, the others are looked at again.
void MarkupMachine::GiveUpFirst(OutputParts& parts) {
  parts.Append(state().text, -1, std::string_view(held_).substr(0, 1));
  held_.erase(0, 1);
  state_ = state().otherwise;
  scanned_ = 0;
}

void MarkupMachine::Apply(const Cursor& cursor, OutputParts& parts) {
  const MarkupRule& rule = markup_->rules[cursor.rule];
  const std::string name = held_.substr(cursor.begin, cursor.end - cursor.begin);
  // The bracket that the arguments begin with is looked at again, as theirs.
  held_.erase(0, scanned_ - (rule.arguments == Arguments::kJson ? 1 : 0));
  scanned_ = 0;
  state_ = rule.to;
  if (rule.arguments == Arguments::kNoCall) return;
  parts.Append(PartKind::kCallBegin, calls_++, name);
  is_in_call_ = true;
  after_call_ = rule.to;
  switch (rule.arguments) {
    case Arguments::kPython:
      arguments_ = PythonArguments();
      break;
    case Arguments::kElements:
      arguments_ = json_keys_ ? ElementArguments(json_keys_(name)) : ElementArguments();
      break;
    case Arguments::kEmpty:
      parts.Append(PartKind::kArguments, calls_ - 1, "{}");
      EndCall(PartKind::kCallEnd, parts);
      break;
    default:
      arguments_ = JsonArguments();
  }
}

void MarkupMachine::AddToCall(OutputParts& parts) {
  arguments_text_.clear();
  const char byte = held_.front();
  const ArgumentsProgress progress =
      std::visit([&](auto& arguments) { return arguments.Add(byte, arguments_text_); }, arguments_);
  parts.Append(PartKind::kArguments, calls_ - 1, arguments_text_);
  if (progress != ArgumentsProgress::kBroken) held_.erase(0, 1);
  if (progress == ArgumentsProgress::kMore) return;
  if (progress == ArgumentsProgress::kEnd) return EndCall(PartKind::kCallEnd, parts);
  EndCall(PartKind::kCallBroken, parts);
  state_ = markup_->broken;
  held_.insert(0, Unread());
}

void MarkupMachine::EndCall(PartKind kind, OutputParts& parts) {
  parts.Append(kind, calls_ - 1, {});
  is_in_call_ = false;
  state_ = after_call_;
}

}  // namespace sluice::text
