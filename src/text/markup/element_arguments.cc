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
      place_ = Place::kValue;
      if (byte != '\n') AddToValue(byte, out);
      return ArgumentsProgress::kMore;
    case Place::kValue:
      AddToValue(byte, out);
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
  is_value_json_ = is_json_ && is_json_(key);
  out.append(std::exchange(needs_comma_, true) ? ", \"" : "\"").append(key);
  out.append(is_value_json_ ? "\": " : "\": \"");
  held_.clear();
  place_ = Place::kBegin;
}

void ElementArguments::AddToValue(char byte, std::string& out) {
  held_.push_back(byte);
  while (!held_.empty() && !kValueEnd.starts_with(held_) &&
         !kValueEnd.substr(1).starts_with(held_)) {
    if (is_value_json_) {
      out.push_back(held_.front());
    } else {
      AppendTextByte(held_.front(), out);
    }
    held_.erase(0, 1);
  }
  if (held_ != kValueEnd && held_ != kValueEnd.substr(1)) return;
  if (!is_value_json_) out.push_back('"');
  held_.clear();
  place_ = Place::kBetween;
}

}  // namespace sluice::text
