// The method of a name.
#include <algorithm>
#include <array>

#include "text/jinja/marked_text.h"
#include "text/jinja/methods/methods.h"

namespace sluice::text::jinja {
namespace {

// What numbers and macros have in Python besides their value.
constexpr std::array<std::string_view, 13> kNumberMembers = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate",
    "denominator",      "fromhex",   "hex",        "imag",
    "is_integer",       "numerator", "real",       "to_bytes",
    "from_bytes"};
constexpr std::array<std::string_view, 6> kMacroMembers = {
    "arguments", "caller", "catch_kwargs", "catch_varargs", "explicit_caller", "name"};

bool Has(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Value BoundMethod(const MethodRow& row, const Value& self) {
  Function function{std::string(row.name),
                    [&row, self](Run& run, const Arguments& arguments) {
                      const bool is_own =
                          self.AsString() != nullptr && IsOwn(self) && AreOwn(arguments);
                      return OwnIf(is_own, row.call(run, self, arguments));
                    },
                    row.parameters};
  return Value::Of(std::move(function), self);
}

Value StringMethod(const Value& self, std::string_view name) {
  for (const auto rows : {ClassMethods(), SearchMethods(), ShapeMethods(), SplitMethods()}) {
    for (const MethodRow& row : rows) {
      if (row.name == name) return BoundMethod(row, self);
    }
  }
  return Value::Missing(name);
}

Value Run::Method(const Value& value, std::string_view name) {
  if (value.AsString() != nullptr) return StringMethod(value, name);
  const auto* function = value.As<std::shared_ptr<const Function>>();
  const bool is_macro = function != nullptr && (*function)->is_macro;
  if ((value.IsNumber() && Has(kNumberMembers, name)) || (is_macro && Has(kMacroMembers, name))) {
    Refuse("the member " + std::string(name) + " of a " + std::string(value.TypeName()),
           "its value");
  }
  return ContainerMethod(value, name);
}

}  // namespace sluice::text::jinja
