#include "text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/strings.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";

// Without the sign, and without the underscores, which stand between digits only; none for what is
// no number. `digits` says which these are.
struct Unsigned {
  bool is_negative = false;
  std::string text;
};
std::optional<Unsigned> WithoutSign(Run& run, std::string_view text, std::string_view digits) {
  text = Trimmed(text, true, true);
  ForEachCharacter(text, [&](uint32_t c, std::string_view) {
    if (c >= 0x80 && IsDecimalDigit(c)) run.Refuse("a number in other digits", "those of ASCII");
  });
  Unsigned made;
  if (text.starts_with('-') || text.starts_with('+')) {
    made.is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto is_digit = [&](size_t at) {
    return at < text.size() &&
           digits.find(static_cast<char>(text[at] | 0x20)) != std::string_view::npos;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      made.text.push_back(text[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  if (made.text.empty() || made.text[0] == '-' || made.text[0] == '+') return std::nullopt;
  return made;
}

std::optional<double> RealOf(Run& run, std::string_view text) {
  const std::optional<Unsigned> number = WithoutSign(run, text, kDigits.substr(0, 10));
  if (!number || number->text.find('(') != std::string::npos) return std::nullopt;
  double real = 0;
  const char* last = number->text.data() + number->text.size();
  const auto [end, error] = std::from_chars(number->text.data(), last, real);
  if (end != last || error == std::errc::invalid_argument) return std::nullopt;
  if (error != std::errc()) run.Refuse("a larger or smaller number", "64 bits");
  return number->is_negative ? -real : real;
}

std::optional<int64_t> IntegerOf(Run& run, std::string_view text, int64_t base) {
  std::optional<Unsigned> number =
      WithoutSign(run, text, kDigits.substr(0, static_cast<size_t>(std::max<int64_t>(base, 10))));
  if (!number) return std::nullopt;
  std::string& digits = number->text;
  const char mark =
      digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == 0 || base == marked)) {
    digits.erase(0, 2);
    base = marked;
  } else if (base == 0) {
    base = 10;
    if (digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return std::nullopt;
  }
  uint64_t size = 0;
  const char* last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, size, static_cast<int>(base));
  if (end != last || error == std::errc::invalid_argument) return std::nullopt;
  const uint64_t most = static_cast<uint64_t>(INT64_MAX) + (number->is_negative ? 1 : 0);
  if (error != std::errc() || size > most) run.Refuse("a larger number", "64 bits");
  return static_cast<int64_t>(number->is_negative ? 0 - size : size);
}

}  // namespace

Value ToInteger(Run& run, const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default");
  const Value* given = arguments.Get(1, "base");
  const Value fallback = otherwise == nullptr ? Value::Of(int64_t{0}) : *otherwise;
  if (value.IsInteger()) return Value::Of(value.Integer());
  double real = 0;
  if (value.IsNumber()) {
    real = value.Real();
  } else if (const std::string* text = value.AsString()) {
    int64_t base = 10;
    if (given != nullptr && given->IsInteger()) base = given->Integer();
    if (base != 0 && (base < 2 || base > 36)) run.Refuse("the argument base", "0 or [2, 36]");
    run.Charge(text->size());
    if (const std::optional<int64_t> whole = IntegerOf(run, *text, base)) return Value::Of(*whole);
    const std::optional<double> parsed = RealOf(run, *text);
    if (!parsed || !std::isfinite(*parsed)) return fallback;
    real = *parsed;
  } else if (const auto* missing = value.As<Undefined>()) {
    run.Refuse("\"" + missing->name + "\", which is not defined", "a value");
  } else {
    return fallback;
  }
  if (!(std::abs(real) < 0x1p63)) run.Refuse("a larger number", "64 bits");
  return Value::Of(static_cast<int64_t>(real));
}

Value ToReal(Run& run, const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default");
  if (value.IsNumber()) return Value::Of(value.Real());
  if (const std::string* text = value.AsString()) {
    run.Charge(text->size());
    if (const std::optional<double> real = RealOf(run, *text)) return Value::Of(*real);
  } else if (const auto* missing = value.As<Undefined>()) {
    run.Refuse("\"" + missing->name + "\", which is not defined", "a value");
  }
  return otherwise == nullptr ? Value::Of(0.0) : *otherwise;
}

}  // namespace sluice::text::jinja
