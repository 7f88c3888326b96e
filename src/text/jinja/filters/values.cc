// Filters of any value.
#include <algorithm>

#include "text/jinja/filters/filters.h"

namespace sluice::text::jinja {
namespace {

Value Default(Run&, const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default_value");
  const Value* takes_false = arguments.Get(1, "boolean");
  const bool is_off = takes_false != nullptr && takes_false->IsTrue() && !value.IsTrue();
  if (!value.IsUndefined() && !is_off) return value;
  return otherwise == nullptr ? Value::Of(std::string()) : *otherwise;
}

Value Json(Run& run, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  // As transformers defines it: ensure_ascii, indent, separators, sort_keys.
  const Value* ascii = arguments.Get(0, "ensure_ascii");
  style.ascii_only = ascii != nullptr && ascii->IsTrue();
  if (const Value* indent = arguments.Get(1, "indent"); indent != nullptr && !indent->IsNone()) {
    style.indent = SpaceOf(run, *indent, "indent", 64);
  }
  if (const Value* pair = arguments.Get(2, "separators"); pair != nullptr && !pair->IsNone()) {
    const List parts = run.Items(*pair);
    if (parts.size() != 2) run.Refuse("separators", "two strings");
    style.item_separator = ToText(run, parts[0]);
    style.key_separator = ToText(run, parts[1]);
    style.has_separators = true;
  }
  const Value* sort = arguments.Get(3, "sort_keys");
  style.sort_keys = sort != nullptr && sort->IsTrue();
  std::string made;
  AppendJson(run, value, style, 0, made);
  return run.Made(std::move(made));
}

}  // namespace

std::span<const FilterRow> ValueFilters() {
  static constexpr FilterRow kRows[] = {
      {"d", "default_value boolean", Default},
      {"default", "default_value boolean", Default},
      {"tojson", "ensure_ascii indent separators sort_keys", Json},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
