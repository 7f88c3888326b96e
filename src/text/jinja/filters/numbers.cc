// Filters of numbers.
#include "text/jinja/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/format/number_text.h"

namespace sluice::text::jinja {
namespace {

Value Absolute(Run& run, const Value& value, const Arguments&) {
  if (!value.IsNumber()) run.Refuse("abs of a " + std::string(value.TypeName()), "a number");
  if (!value.IsInteger()) return Value::Of(std::abs(value.Real()));
  return value.Integer() < 0 ? run.Binary("-", Value::Of(int64_t{0}), value)
                             : Value::Of(value.Integer());
}

// To the nearest multiple of a power of ten, a tie to the even one.
Value RoundedWhole(Run& run, int64_t value, int64_t digits) {
  int64_t unit = 1;
  for (int64_t i = digits; i < 0 && unit > 0; ++i) {
    if (__builtin_mul_overflow(unit, int64_t{10}, &unit)) unit = 0;  // more than any number
  }
  if (unit == 0) return Value::Of(int64_t{0});
  const int64_t rest = value % unit;
  const int64_t size = rest < 0 ? -rest : rest;
  const bool is_odd = (value / unit) % 2 != 0;
  const bool goes_up = unit > 1 && (size > unit - size || (size == unit - size && is_odd));
  const Value base = Value::Of(value - rest);
  return goes_up ? run.Binary(value < 0 ? "-" : "+", base, Value::Of(unit)) : base;
}

double RoundedReal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  // Of the exact value, as printing it does: its digits up to the one of that place.
  std::string text =
      RealText(value, 'f', static_cast<int>(std::max<int64_t>(digits, 0)), false, false);
  if (digits < 0) {
    const std::string exact = RealText(std::abs(value), 'f', 1100, false, false);
    const auto point =
        static_cast<int64_t>(exact.find('.') == std::string::npos ? exact.size() : exact.find('.'));
    const int64_t kept = point + digits;  // digits before the place
    if (kept < 0) return std::copysign(0.0, value);
    std::string head = kept == 0 ? "0" : exact.substr(0, static_cast<size_t>(kept));
    std::string tail = exact.substr(static_cast<size_t>(kept));
    std::erase(tail, '.');
    tail.erase(tail.find_last_not_of('0') + 1);
    const bool is_odd = (head.back() - '0') % 2 != 0;
    const bool goes_up = tail > "5" || (tail == "5" && is_odd);
    for (size_t i = head.size(); goes_up && i-- > 0;) {
      if (head[i] != '9') {
        ++head[i];
        break;
      }
      head[i] = '0';
      if (i == 0) head.insert(0, 1, '1');
    }
    text = (std::signbit(value) ? "-" : "") + head + "e" + std::to_string(-digits);
  }
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Value Rounded(Run& run, const Value& value, const Arguments& arguments) {
  if (!value.IsNumber()) run.Refuse("round of a " + std::string(value.TypeName()), "a number");
  const int64_t digits = IntegerArgument(run, arguments, 0, "precision");
  const Value* given = arguments.Get(1, "method");
  const std::string method = given == nullptr ? "common" : ToText(run, *given);
  if (method != "common" && method != "ceil" && method != "floor") {
    run.Refuse("the argument method", "common, ceil or floor");
  }
  if (method == "common") {
    return value.IsInteger() ? RoundedWhole(run, value.Integer(), digits)
                             : Value::Of(RoundedReal(value.Real(), digits));
  }
  if (digits < 0 || digits > 15) run.Refuse("a precision of ceil and floor", "[0, 15]");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  // The whole number is an integer in Python, which has no -0.
  const double scaled = value.Real() * scale;
  if (!std::isfinite(scaled)) run.Refuse("ceil or floor of such a number", "a finite one");
  return Value::Of(((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / scale);
}

// "1.2 MB": of a number, or of the text of one.
Value FileSize(Run& run, const Value& value, const Arguments& arguments) {
  const bool is_binary = FlagArgument(arguments, 0, "binary");
  Arguments otherwise;
  otherwise.positional.emplace_back();
  const Value real = ToReal(run, value, otherwise);
  if (real.IsNone()) run.Refuse("the size of a " + std::string(value.TypeName()), "a number");
  const double bytes = real.Real();
  const double base = is_binary ? 1024 : 1000;
  if (bytes == 1) return run.Made("1 Byte");
  if (bytes < base) {
    return run.Made(RealText(std::trunc(bytes) + 0.0, 'f', 0, false, false) + " Bytes");
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  long double unit = base;  // exact, up to the largest
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (!(static_cast<long double>(bytes) < unit) && i + 1 < kPrefixes.size()) continue;
    std::string made = RealText(base * bytes / static_cast<double>(unit), 'f', 1, false, false);
    const char prefix = is_binary && i == 0 ? 'K' : kPrefixes[i];
    return run.Made(made.append(" ").append(1, prefix).append(is_binary ? "iB" : "B"));
  }
  return {};
}

}  // namespace

std::span<const FilterRow> NumberFilters() {
  static constexpr FilterRow kRows[] = {
      {"abs", "", Absolute},
      {"filesizeformat", "binary?", FileSize},
      {"float", "default?", ToReal},
      {"int", "default? base?", ToInteger},
      {"round", "precision? method?", Rounded},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
