// Filters that compare items: sort, min, max, unique.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

Value WithoutCase(Run& run, const Value& key) {
  if (key.AsString() == nullptr) return key;
  run.Charge(key.AsString()->size());
  return run.Made(Lower(*key.AsString()));
}

// What sort, min, max and unique compare: strings without their case.
// Whether case counts is the argument at case_place, the member that is compared is the next one.
Value KeyOf(Run& run, const Value& item, const Arguments& arguments, size_t case_place) {
  const Value* attribute = arguments.Get(case_place + 1, "attribute");
  const Value key = attribute == nullptr ? item : MemberOf(run, item, *attribute);
  return FlagArgument(arguments, case_place, "case_sensitive") ? key : WithoutCase(run, key);
}

// Members named in a list with commas; what is equal needs no order.
Value SortKeyOf(Run& run, const Value& item, const Arguments& arguments) {
  const Value* attribute = arguments.Get(2, "attribute");
  const std::string* names = attribute == nullptr ? nullptr : attribute->AsString();
  List keys;
  std::string_view rest;
  if (names != nullptr) rest = *names;
  for (;;) {
    const size_t comma = rest.find(',');
    Arguments one = arguments;
    if (names != nullptr) {
      one.positional.resize(std::min<size_t>(one.positional.size(), 2));
      std::erase_if(one.named, [](const auto& named) { return named.first == "attribute"; });
      one.named.emplace_back("attribute", run.Made(std::string(rest.substr(0, comma))));
    }
    keys.push_back(KeyOf(run, item, one, 1));
    if (comma == std::string_view::npos) return Value::Of(std::move(keys));
    rest.remove_prefix(comma + 1);
  }
}

Value Sorted(Run& run, const Value& value, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : run.Items(value)) {
    keyed.emplace_back(SortKeyOf(run, item, arguments), item);
  }
  const bool descends = FlagArgument(arguments, 0, "reverse");
  // Python's reverse keeps the order of equals, as this does.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    run.Charge();
    return descends ? IsLess(run, b.first, a.first) : IsLess(run, a.first, b.first);
  });
  List made;
  for (auto& [key, item] : keyed) made.push_back(std::move(item));
  return Value::Of(std::move(made));
}

Value SortedMembers(Run& run, const Value& value, const Arguments& arguments) {
  if (value.AsDict() == nullptr) run.Refuse("dictsort of what is no dict", "a dict");
  List pairs;
  run.ChargeItems(2 * value.AsDict()->members.size());
  for (const auto& [key, item] : value.AsDict()->members) {
    pairs.push_back(Value::Of(List{key, item}, true));
  }
  Arguments by;
  const Value* what = arguments.Get(1, "by");
  const std::string name = what == nullptr ? "key" : ToText(run, *what);
  if (name != "key" && name != "value") run.Refuse("the argument by", "key or value");
  const bool by_value = name == "value";
  by.named.emplace_back("attribute", Value::Of(int64_t{by_value ? 1 : 0}));
  if (const Value* reverse = arguments.Get(2, "reverse"))
    by.named.emplace_back("reverse", *reverse);
  if (const Value* keeps_case = arguments.Get(0, "case_sensitive")) {
    by.named.emplace_back("case_sensitive", *keeps_case);
  }
  return Sorted(run, Value::Of(std::move(pairs)), by);
}

Value Extreme(Run& run, const Value& value, const Arguments& arguments, bool is_least) {
  const List items = run.Items(value);
  if (items.empty()) return Value::Missing("an item of an empty list");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value a = KeyOf(run, items[i], arguments, 0);
    const Value b = KeyOf(run, items[best], arguments, 0);
    if (is_least ? IsLess(run, a, b) : IsLess(run, b, a)) best = i;
  }
  return items[best];
}

Value Least(Run& run, const Value& value, const Arguments& arguments) {
  return Extreme(run, value, arguments, true);
}

Value Greatest(Run& run, const Value& value, const Arguments& arguments) {
  return Extreme(run, value, arguments, false);
}

Value Distinct(Run& run, const Value& value, const Arguments& arguments) {
  List keys;
  List made;
  for (const Value& item : run.Items(value)) {
    Value key = KeyOf(run, item, arguments, 0);
    run.CheckKey(key);
    run.Charge(16 * keys.size());
    if (FindIn(run, keys, key) < keys.size()) continue;
    keys.push_back(std::move(key));
    made.push_back(item);
  }
  return Value::Of(std::move(made), Value::View::kOnce);
}

// Tuples of a key and the items that have it, in the order of the keys.
Value Grouped(Run& run, const Value& value, const Arguments& arguments) {
  const Value& attribute = *arguments.Get(0, "attribute");
  const Value* otherwise = GivenArgument(arguments, 1, "default");
  const bool keeps_case = FlagArgument(arguments, 2, "case_sensitive");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : run.Items(value)) {
    const Value key = MemberOf(run, item, attribute, otherwise);
    keyed.emplace_back(keeps_case ? key : WithoutCase(run, key), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    run.Charge();
    return IsLess(run, a.first, b.first);
  });
  List groups;
  for (size_t begin = 0; begin < keyed.size();) {
    List items;
    size_t end = begin;
    for (; end < keyed.size() && IsEqual(run, keyed[begin].first, keyed[end].first); ++end) {
      run.Charge();
      items.push_back(keyed[end].second);
    }
    if (end == begin) ++end, items.push_back(keyed[begin].second);  // what equals not even itself
    Value name = MemberOf(run, items[0], attribute, otherwise);
    groups.push_back(Value::OfGroup(std::move(name), Value::Of(std::move(items))));
    begin = end;
  }
  return Value::Of(std::move(groups));
}

}  // namespace

std::span<const FilterRow> OrderFilters() {
  static constexpr FilterRow kRows[] = {
      {"dictsort", "case_sensitive? by? reverse?", SortedMembers},
      {"groupby", "attribute default? case_sensitive?", Grouped},
      {"max", "case_sensitive? attribute?", Greatest},
      {"min", "case_sensitive? attribute?", Least},
      {"sort", "reverse? case_sensitive? attribute?", Sorted},
      {"unique", "case_sensitive? attribute?", Distinct},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
