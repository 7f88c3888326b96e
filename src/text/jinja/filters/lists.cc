// Filters of lists, and of what can be gone through.
#include <algorithm>
#include <utility>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/marked_text.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

Value First(Run& run, const Value& value, const Arguments&) {
  if (List* once = value.AsList();
      once != nullptr && !once->empty() && value.IsView(Value::View::kOnce)) {
    run.ChargeItems(once->size());
    Value first = std::move(once->front());
    once->erase(once->begin());
    return first;
  }
  const List items = run.Items(value);
  return items.empty() ? Value::Missing("first") : items.front();
}

Value Last(Run& run, const Value& value, const Arguments&) {
  if (value.IsView(Value::View::kOnce)) run.Refuse("the last of a filter's items", "a list");
  const List items = run.Items(value);
  if (items.empty()) return Value::Missing("last");
  return value.IsMarkup() ? Value::Text(*items.back().AsString(), true) : items.back();
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
    return run.Made(std::move(made), value.IsMarkup());
  }
  List items = run.Items(value);
  std::reverse(items.begin(), items.end());
  return Value::Of(std::move(items), Value::View::kOnce);
}

Value Sum(Run& run, const Value& value, const Arguments& arguments) {
  const Value* start = arguments.Get(1, "start");
  Value total = start == nullptr ? Value::Of(int64_t{0}) : *start;
  if (total.AsString() != nullptr) run.Refuse("a sum that starts with a string", "join");
  const Value* attribute = GivenArgument(arguments, 0, "attribute");
  for (const Value& item : run.Items(value)) {
    total = run.Binary("+", total, attribute == nullptr ? item : MemberOf(run, item, *attribute));
  }
  return total;
}

Value Joined(Run& run, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.Get(0, "d");
  const Value between = given == nullptr ? Value::Of(std::string()) : TextValue(run, *given);
  const std::string& mark = *between.AsString();
  const Value* attribute = GivenArgument(arguments, 1, "attribute");
  ChatText made;
  bool is_first = true;
  for (const Value& item : run.Items(value)) {
    const Value of = attribute == nullptr ? item : MemberOf(run, item, *attribute);
    const std::string* text = of.AsString();
    run.ChargeElement(made.text.size() + mark.size() + (text == nullptr ? 0 : text->size()));
    if (!std::exchange(is_first, false)) AppendText(made, mark, between.Own());
    AppendValue(run, of, made);
  }
  return run.Made(std::move(made));
}

// Lists of so many items; the last is filled up.
Value Batches(Run& run, const Value& value, const Arguments& arguments) {
  const Value& count = *arguments.Get(0, "linecount");
  List made;
  List batch;
  for (const Value& item : run.Items(value)) {
    if (IsEqual(run, Value::Of(batch.size()), count)) {
      made.push_back(Value::Of(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (batch.empty()) return Value::Of(std::move(made), Value::View::kOnce);
  const Value* fill = GivenArgument(arguments, 1, "fill_with");
  if (fill != nullptr && run.Compare("<", Value::Of(batch.size()), count)) {
    const int64_t missing =
        IntegerArgument(run, arguments, 0, "linecount") - static_cast<int64_t>(batch.size());
    run.ChargeItems(static_cast<size_t>(missing));
    batch.insert(batch.end(), static_cast<size_t>(missing), *fill);
  }
  made.push_back(Value::Of(std::move(batch)));
  return Value::Of(std::move(made), Value::View::kOnce);
}

// So many lists; those that have one item less are filled up.
Value Slices(Run& run, const Value& value, const Arguments& arguments) {
  const int64_t count = IntegerArgument(run, arguments, 0, "slices");
  const Value* fill = GivenArgument(arguments, 1, "fill_with");
  if (count == 0) run.Refuse("no slices", "a number that is not 0");
  const List items = run.Items(value);
  const auto size = static_cast<int64_t>(items.size());
  List made;
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    run.Charge();
    const bool has_more = i < size % count;
    const int64_t end = begin + size / count + (has_more ? 1 : 0);
    List slice(items.begin() + begin, items.begin() + end);
    if (fill != nullptr && !has_more) slice.push_back(*fill);
    made.push_back(Value::Of(std::move(slice)));
    begin = end;
  }
  return Value::Of(std::move(made), Value::View::kOnce);
}

Value Random(Run& run, const Value&, const Arguments&) {
  run.Refuse("the filter random", "another filter");
}

}  // namespace

std::span<const FilterRow> ListFilters() {
  static constexpr FilterRow kRows[] = {
      {"batch", "linecount fill_with?", Batches},
      {"count", "", Length},
      {"first", "", First},
      {"items", "", Pairs},
      {"join", "d? attribute?", Joined},
      {"last", "", Last},
      {"length", "", Length},
      {"list", "", ToList},
      {"random", "", Random},
      {"reverse", "", Reversed},
      {"slice", "slices fill_with?", Slices},
      {"sum", "attribute? start?", Sum},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
