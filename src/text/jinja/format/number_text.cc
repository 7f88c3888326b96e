#include "text/jinja/format/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace sluice::text::jinja {
namespace {

// Digits without zeros at the end, and how many of them stand before the point.
struct Decimal {
  std::string digits;
  int point;
};

Decimal DecimalOf(double size, char type, int precision) {
  std::string text(static_cast<size_t>(precision) + 400, '\0');
  char* last = text.data() + text.size();
  const char* end =
      type == 'r' ? std::to_chars(text.data(), last, size, std::chars_format::scientific).ptr
      : type == 'f'
          ? std::to_chars(text.data(), last, size, std::chars_format::fixed, precision).ptr
          : std::to_chars(text.data(), last, size, std::chars_format::scientific,
                          type == 'e' ? precision : precision - 1)
                .ptr;
  text.resize(static_cast<size_t>(end - text.data()));
  Decimal made = {"", 1};
  if (const size_t e = text.find('e'); e != std::string::npos) {
    int exponent = 0;
    const char* first = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
    std::from_chars(first, text.data() + text.size(), exponent);
    made.point = exponent + 1;
    text.resize(e);
  } else {
    made.point = static_cast<int>(std::min(text.find('.'), text.size()));
  }
  std::copy_if(text.begin(), text.end(), std::back_inserter(made.digits),
               [](char c) { return c != '.'; });
  const size_t zeros = std::min(made.digits.find_first_not_of('0'), made.digits.size());
  made.digits.erase(0, zeros);
  made.point -= static_cast<int>(zeros);
  made.digits.erase(made.digits.find_last_not_of('0') + 1);
  if (made.digits.empty()) made = {"0", 1};
  return made;
}

}  // namespace

void RaiseLetters(std::string& text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c & ~0x20) : c;
}

std::string RealText(double value, char type, int precision, bool keeps_point, bool adds_zero) {
  const char form = static_cast<char>(type | 0x20);
  if (form == 'g' && precision == 0) precision = 1;
  std::string text = std::isnan(value) ? "nan" : std::signbit(value) ? "-" : "";
  if (std::isinf(value)) text.append("inf");
  if (std::isfinite(value)) {
    Decimal of = DecimalOf(std::abs(value), form, precision);
    int end = static_cast<int>(of.digits.size());  // digits that are written, with zeros
    bool has_exponent = form == 'e';
    if (form == 'e') {
      end = precision + 1;
    } else if (form == 'f') {
      end = of.point + precision;
    } else if (form == 'g') {
      has_exponent = of.point <= -4 || of.point > precision - (adds_zero ? 1 : 0);
      if (keeps_point) end = precision;
    } else {
      has_exponent = of.point <= -4 || of.point > 16;
    }
    const int exponent = of.point - 1;
    const int point = has_exponent ? 1 : of.point;
    end = std::max(end, !has_exponent && adds_zero ? point + 1 : point);
    for (int i = std::min(point - 1, 0); i < end; ++i) {
      if (i == point) text.push_back('.');
      const bool is_digit = i >= 0 && i < static_cast<int>(of.digits.size());
      text.push_back(is_digit ? of.digits[static_cast<size_t>(i)] : '0');
    }
    if (end <= point && keeps_point) text.push_back('.');
    if (has_exponent) {
      const std::string size = std::to_string(std::abs(exponent));
      text.append(exponent < 0 ? "e-" : "e+").append(size.size() < 2 ? "0" : "").append(size);
    }
  }
  if (form != type) RaiseLetters(text);
  return text;
}

}  // namespace sluice::text::jinja
