// Filters of numbers.
#include "text/jinja/numbers.h"

#include <charconv>
#include <cmath>

#include "text/jinja/filters/filters.h"

namespace sluice::text::jinja {
namespace {

Value Absolute(Run& run, const Value& value, const Arguments&) {
  if (!value.IsNumber()) run.Refuse("abs of a " + std::string(value.TypeName()), "a number");
  if (!value.IsInteger()) return Value::Of(std::abs(value.Real()));
  return value.Integer() < 0 ? run.Binary("-", Value::Of(int64_t{0}), value)
                             : Value::Of(value.Integer());
}

Value Rounded(Run& run, const Value& value, const Arguments& arguments) {
  if (!value.IsNumber()) run.Refuse("round of a " + std::string(value.TypeName()), "a number");
  const int64_t digits = IntegerOf(run, arguments.Get(0, "precision"), "precision", 0);
  if (digits < 0 || digits > 15) run.Refuse("a precision", "[0, 15]");
  const Value* given = arguments.Get(1, "method");
  const std::string_view method = given == nullptr ? "common" : TextArgument(run, given, "method");
  if (method != "common" && method != "ceil" && method != "floor") {
    run.Refuse("the argument method", "common, ceil or floor");
  }
  if (method == "common" && value.IsInteger()) return Value::Of(value.Integer());
  const double scale = std::pow(10.0, static_cast<double>(digits));
  // The whole number is an integer in Python, which has no -0.
  if (method == "ceil") return Value::Of((std::ceil(value.Real() * scale) + 0.0) / scale);
  if (method == "floor") return Value::Of((std::floor(value.Real() * scale) + 0.0) / scale);
  // To the nearest, a tie to the even digit: of the exact value, as printing it does.
  std::string text(400, '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value.Real(),
                                 std::chars_format::fixed, static_cast<int>(digits))
                       .ptr;
  double rounded = 0;
  std::from_chars(text.data(), end, rounded);
  return Value::Of(rounded);
}

}  // namespace

std::span<const FilterRow> NumberFilters() {
  static constexpr FilterRow kRows[] = {
      {"abs", "", Absolute},
      {"float", "default", ToReal},
      {"int", "default base", ToInteger},
      {"round", "precision method", Rounded},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
