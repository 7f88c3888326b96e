#include <algorithm>
#include <array>
#include <utility>

#include "text/markup/arguments.h"
#include "text/markup/markup.h"

namespace sluice::text {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords = {
    {{"True", "true"},
     {"False", "false"},
     {"None", "null"},
     {"true", "true"},
     {"false", "false"},
     {"null", "null"}}};

// The digits that `text` begins with, without Python's underscores between them.
std::string TakeDigits(std::string_view& text) {
  std::string digits;
  while (!text.empty() && (IsDigit(text.front()) || (text.front() == '_' && !digits.empty()))) {
    if (text.front() != '_') digits.push_back(text.front());
    text.remove_prefix(1);
  }
  return digits;
}

bool TakeSign(std::string_view& text, std::string& sign) {
  if (text.empty() || (text.front() != '-' && text.front() != '+')) return false;
  if (text.front() == '-') sign.push_back('-');
  text.remove_prefix(1);
  return true;
}

bool AppendNumber(std::string_view text, std::string& out) {
  std::string number;
  TakeSign(text, number);
  std::string whole = TakeDigits(text);
  std::string fraction;
  const bool has_point = text.starts_with('.');
  if (has_point) {
    text.remove_prefix(1);
    fraction = TakeDigits(text);
  }
  if (whole.empty() && fraction.empty()) return false;
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  number.append(whole.empty() ? "0" : whole);
  if (has_point) number.append(".").append(fraction.empty() ? "0" : fraction);
  if (!text.empty() && (text.front() == 'e' || text.front() == 'E')) {
    number.push_back('e');
    text.remove_prefix(1);
    TakeSign(text, number);
    const std::string power = TakeDigits(text);
    if (power.empty()) return false;
    number.append(power);
  }
  if (!text.empty()) return false;
  out.append(number);
  return true;
}

}  // namespace

bool AppendScalar(std::string_view text, std::string& out) {
  const auto* const word =
      std::ranges::find(kWords, text, [](const auto& pair) { return pair.first; });
  if (word == kWords.end()) return AppendNumber(text, out);
  out.append(word->second);
  return true;
}

}  // namespace sluice::text
