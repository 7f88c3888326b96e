// Filters of lists, and of what can be gone through.
#include <algorithm>

#include "text/jinja/filters/filters.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

Value FirstOrLast(Run& run, const Value& value, bool is_first) {
  if (List* once = value.AsList();
      is_first && once != nullptr && !once->empty() && value.IsView(Value::View::kOnce)) {
    run.ChargeItems(once->size());
    Value first = std::move(once->front());
    once->erase(once->begin());
    return first;
  }
  const List items = run.Items(value);
  if (items.empty()) return Value::Missing(is_first ? "first" : "last");
  return is_first ? items.front() : items.back();
}

Value First(Run& run, const Value& value, const Arguments&) {
  return FirstOrLast(run, value, true);
}

Value Last(Run& run, const Value& value, const Arguments&) {
  return FirstOrLast(run, value, false);
}

Value Length(Run& run, const Value& value, const Arguments&) {
  if (const std::string* text = value.AsString()) {
    run.Charge(text->size());
    return Value::Of(CountCharacters(*text));
  }
  if (const List* list = value.AsList(); list != nullptr && !value.IsView(Value::View::kOnce)) {
    return Value::Of(list->size());
  }
  if (const Dict* dict = value.AsDict()) return Value::Of(dict->members.size());
  if (value.IsUndefined()) return Value::Of(int64_t{0});
  run.Refuse("the length of a " + std::string(value.TypeName()), "a list, a dict or a string");
}

Value ToList(Run& run, const Value& value, const Arguments&) { return Value::Of(run.Items(value)); }

Value Pairs(Run& run, const Value& value, const Arguments&) {
  if (value.IsUndefined()) return Value::Of(List());
  if (value.AsDict() == nullptr) {
    run.Refuse("items of a " + std::string(value.TypeName()), "a dict");
  }
  List items;
  run.ChargeItems(2 * value.AsDict()->members.size());
  for (const auto& [key, item] : value.AsDict()->members) {
    items.push_back(Value::Of(List{key, item}, true));
  }
  return Value::Of(std::move(items), Value::View::kOnce);
}

Value Reversed(Run& run, const Value& value, const Arguments&) {
  if (value.AsString() != nullptr) {
    std::string_view rest = *value.AsString();
    run.Charge(rest.size());
    std::string made;
    while (!rest.empty()) {
      const size_t size = LastOf(rest).size;
      made.append(rest.substr(rest.size() - size));
      rest.remove_suffix(size);
    }
    return run.Made(std::move(made));
  }
  List items = run.Items(value);
  std::reverse(items.begin(), items.end());
  return Value::Of(std::move(items), Value::View::kOnce);
}

Value Sum(Run& run, const Value& value, const Arguments& arguments) {
  const Value* start = arguments.Get(1, "start");
  Value total = start == nullptr ? Value::Of(int64_t{0}) : *start;
  const Value* attribute = arguments.Get(0, "attribute");
  for (const Value& item : run.Items(value)) {
    const bool is_member = attribute != nullptr && !attribute->IsNone();
    total = run.Binary("+", total, is_member ? MemberOf(run, item, ToText(run, *attribute)) : item);
  }
  return total;
}

Value Joined(Run& run, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.Get(0, "d");
  const std::string between = given == nullptr ? "" : ToText(run, *given);
  const Value* attribute = arguments.Get(1, "attribute");
  if (attribute != nullptr && attribute->IsNone()) attribute = nullptr;
  std::string made;
  bool is_first = true;
  for (const Value& item : run.Items(value)) {
    const Value of = attribute == nullptr ? item : MemberOf(run, item, ToText(run, *attribute));
    const std::string* text = of.AsString();
    run.ChargeElement(made.size() + between.size() + (text == nullptr ? 0 : text->size()));
    if (!std::exchange(is_first, false)) made.append(between);
    made.append(text == nullptr ? ToText(run, of) : *text);
  }
  return run.Made(std::move(made));
}

}  // namespace

std::span<const FilterRow> ListFilters() {
  static constexpr FilterRow kRows[] = {
      {"count", "", Length},
      {"first", "", First},
      {"items", "", Pairs},
      {"join", "d attribute", Joined},
      {"last", "", Last},
      {"length", "", Length},
      {"list", "", ToList},
      {"reverse", "", Reversed},
      {"sum", "attribute start", Sum},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
