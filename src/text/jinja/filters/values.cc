// Filters of any value.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"

namespace sluice::text::jinja {
namespace {

Value Default(Run&, const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default_value");
  const bool is_off = FlagArgument(arguments, 1, "boolean") && !value.IsTrue();
  if (!value.IsUndefined() && !is_off) return value;
  return otherwise == nullptr ? Value::Of(std::string()) : *otherwise;
}

// A member that is no item.
Value Attr(Run& run, const Value& value, const Arguments& arguments) {
  const std::string& name = StringArgument(run, arguments, 0, "name");
  if (const auto* missing = value.As<Undefined>()) {
    run.Refuse("a member of \"" + missing->name + "\", which is not defined", "a value");
  }
  return value.AsDict() == nullptr ? run.Attribute(value, name) : run.Method(value, name);
}

Value Json(Run& run, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  // As transformers defines it: ensure_ascii, indent, separators, sort_keys.
  style.ascii_only = FlagArgument(arguments, 0, "ensure_ascii");
  if (const Value* indent = GivenArgument(arguments, 1, "indent")) {
    style.indent = SpaceOf(run, *indent, "indent");
  }
  if (const Value* pair = GivenArgument(arguments, 2, "separators")) {
    const List parts = run.Items(*pair);
    const bool are_texts =
        parts.size() == 2 && parts[0].AsString() != nullptr && parts[1].AsString() != nullptr;
    if (!are_texts) run.Refuse("separators", "two strings");
    style.item_separator = ToText(run, parts[0]);
    style.key_separator = ToText(run, parts[1]);
    style.has_separators = true;
  }
  style.sort_keys = FlagArgument(arguments, 3, "sort_keys");
  std::string made;
  AppendJson(run, value, style, 0, made);
  return run.Made(std::move(made));
}

}  // namespace

std::span<const FilterRow> ValueFilters() {
  static constexpr FilterRow kRows[] = {
      {"attr", "name", Attr},
      {"d", "default_value? boolean?", Default},
      {"default", "default_value? boolean?", Default},
      {"pprint", "", PrettyPrint},
      {"tojson", "ensure_ascii? indent? separators? sort_keys?", Json},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
