#include <algorithm>
#include <string_view>
#include <utility>

#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {
namespace {

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kValueEnd = "\n</parameter>";  // also without the line feed
constexpr size_t kLongestKey = 64;
constexpr size_t kLongestScalar = 256;  // that is held until it ends

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

ArgumentsProgress ElementArguments::Add(char byte, std::string& out) {
  if (!std::exchange(has_begun_, true)) out.push_back('{');
  switch (place_) {
    case Place::kBetween:
      return AddBetween(byte, out);
    case Place::kInKey:
      if (!IsNameByte(byte) && byte != '>') return ArgumentsProgress::kBroken;
      if (held_.size() == kParameter.size() + kLongestKey) return ArgumentsProgress::kBroken;
      AddToKey(byte, out);
      return ArgumentsProgress::kMore;
    case Place::kBegin:
      place_ = is_json_ ? Place::kScalar : Place::kText;
      if (!is_json_) out.push_back('"');
      return byte == '\n' ? ArgumentsProgress::kMore : Add(byte, out);
    case Place::kScalar:
      AddToScalar(byte, out);
      return ArgumentsProgress::kMore;
    case Place::kInBrackets:
      return AddToBrackets(byte, out);
    case Place::kAfterBrackets:
      return AddAfterBrackets(byte);
    case Place::kText:
      AddToText(byte, out);
      return ArgumentsProgress::kMore;
  }
  return ArgumentsProgress::kBroken;
}

ArgumentsProgress ElementArguments::AddBetween(char byte, std::string& out) {
  if (held_.empty() && IsSpace(byte)) return ArgumentsProgress::kMore;
  held_.push_back(byte);
  if (!kParameter.starts_with(held_) && !kFunctionEnd.starts_with(held_)) {
    held_.pop_back();
    return ArgumentsProgress::kBroken;
  }
  if (held_ == kParameter) place_ = Place::kInKey;
  if (held_ != kFunctionEnd) return ArgumentsProgress::kMore;
  out.push_back('}');
  return ArgumentsProgress::kEnd;
}

void ElementArguments::AddToKey(char byte, std::string& out) {
  if (byte != '>') {
    held_.push_back(byte);
    return;
  }
  const std::string_view key = std::string_view(held_).substr(kParameter.size());
  is_json_ = std::ranges::find(json_keys_, key) != json_keys_.end();
  out.append(std::exchange(needs_comma_, true) ? ", \"" : "\"").append(key).append("\": ");
  held_.clear();
  place_ = Place::kBegin;
}

// Held, as its end decides what it is; but not a list or an object, which come out as they come.
void ElementArguments::AddToScalar(char byte, std::string& out) {
  const bool is_first = Trimmed(held_).empty();
  if (is_first && (byte == '[' || byte == '{')) {
    held_.clear();
    brackets_ = PythonArguments::OfValue();
    brackets_.Add(byte, out);
    place_ = Place::kInBrackets;
    return;
  }
  held_.push_back(byte);
  if (held_.ends_with(kValueEnd.substr(1))) {
    const std::string_view value =
        std::string_view(held_).substr(0, held_.size() + 1 - kValueEnd.size());
    if (!AppendScalar(Trimmed(value), out)) {
      out.push_back('"');
      for (const char held : Trimmed(value)) AppendTextByte(held, out);
      out.push_back('"');
    }
    held_.clear();
    place_ = Place::kBetween;
  } else if (held_.size() == kLongestScalar) {
    out.push_back('"');
    place_ = Place::kText;
    for (const char held : std::exchange(held_, {})) AddToText(held, out);
  }
}

ArgumentsProgress ElementArguments::AddToBrackets(char byte, std::string& out) {
  const ArgumentsProgress progress = brackets_.Add(byte, out);
  if (progress != ArgumentsProgress::kEnd) return progress;
  place_ = Place::kAfterBrackets;
  return ArgumentsProgress::kMore;
}

ArgumentsProgress ElementArguments::AddAfterBrackets(char byte) {
  constexpr std::string_view kEnd = kValueEnd.substr(1);
  if (held_.empty() && IsSpace(byte)) return ArgumentsProgress::kMore;
  if (byte != kEnd[held_.size()]) return ArgumentsProgress::kBroken;
  held_.push_back(byte);
  if (held_ != kEnd) return ArgumentsProgress::kMore;
  held_.clear();
  place_ = Place::kBetween;
  return ArgumentsProgress::kMore;
}

void ElementArguments::AddToText(char byte, std::string& out) {
  held_.push_back(byte);
  while (!held_.empty() && !kValueEnd.starts_with(held_) &&
         !kValueEnd.substr(1).starts_with(held_)) {
    AppendTextByte(held_.front(), out);
    held_.erase(0, 1);
  }
  if (held_ != kValueEnd && held_ != kValueEnd.substr(1)) return;
  out.push_back('"');
  held_.clear();
  place_ = Place::kBetween;
}

}  // namespace sluice::text
