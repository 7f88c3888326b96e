// Filters that take members of items, and those that choose items by a test.
#include <charconv>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"

namespace sluice::text::jinja {

Value MemberOf(Run& run, const Value& value, const Value& attribute, const Value* otherwise) {
  if (attribute.IsNone()) return value;
  const auto member = [&](const Value& of, const Value& name) {
    Value found = run.Item(of, name);
    return found.IsUndefined() && otherwise != nullptr ? *otherwise : found;
  };
  if (attribute.AsString() == nullptr) return member(value, attribute);
  Value found = value;
  run.Charge(attribute.AsString()->size());
  for (std::string_view path = *attribute.AsString();;) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    int64_t place = 0;
    const bool is_digits =
        !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    const bool is_place =
        is_digits &&
        std::from_chars(name.data(), name.data() + name.size(), place).ec == std::errc();
    found = member(found, is_place ? Value::Of(place) : Value::Of(std::string(name)));
    if (dot == std::string_view::npos) return found;
    path.remove_prefix(dot + 1);
  }
}

namespace {

Value Selected(Run& run, std::string_view name, const Value& value, const Arguments& arguments) {
  if (!value.IsTrue()) return Value::Of(List(), Value::View::kOnce);  // None, 0 and what is empty
  const bool by_member = name.ends_with("attr");
  const bool rejects = name.starts_with("reject");
  Arguments rest = arguments;
  Value member;
  if (by_member) {
    const Value* given = arguments.Get(0, "attribute");
    if (given == nullptr) run.Refuse(std::string(name) + " without a member", "its name");
    member = *given;
    if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    test = ToText(run, rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  List kept;
  for (const Value& item : run.Items(value)) {
    const Value of = by_member ? MemberOf(run, item, member) : item;
    const bool holds = test.empty() ? of.IsTrue() : run.Test(test, of, rest);
    if (holds != rejects) kept.push_back(item);
  }
  return Value::Of(std::move(kept), Value::View::kOnce);
}

Value Select(Run& run, const Value& value, const Arguments& arguments) {
  return Selected(run, "select", value, arguments);
}

Value Reject(Run& run, const Value& value, const Arguments& arguments) {
  return Selected(run, "reject", value, arguments);
}

Value SelectByMember(Run& run, const Value& value, const Arguments& arguments) {
  return Selected(run, "selectattr", value, arguments);
}

Value RejectByMember(Run& run, const Value& value, const Arguments& arguments) {
  return Selected(run, "rejectattr", value, arguments);
}

Value Mapped(Run& run, const Value& value, const Arguments& arguments) {
  List made;
  if (!value.IsTrue()) return Value::Of(std::move(made), Value::View::kOnce);
  const Value* member = arguments.Get(SIZE_MAX, "attribute");
  if (member != nullptr && arguments.positional.empty()) {
    run.CheckArguments("map", "attribute default?", arguments);
    const Value* otherwise = GivenArgument(arguments, SIZE_MAX, "default");
    for (const Value& item : run.Items(value)) {
      made.push_back(MemberOf(run, item, *member, otherwise));
    }
    return Value::Of(std::move(made), Value::View::kOnce);
  }
  if (arguments.positional.empty()) run.Refuse("map without a filter", "its name");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  const std::string name = ToText(run, arguments.positional[0]);
  for (const Value& item : run.Items(value)) made.push_back(run.Filter(name, item, rest));
  return Value::Of(std::move(made), Value::View::kOnce);
}

}  // namespace

std::span<const FilterRow> SelectionFilters() {
  static constexpr FilterRow kRows[] = {
      {"map", "*", Mapped},
      {"reject", "*", Reject},
      {"rejectattr", "*", RejectByMember},
      {"select", "*", Select},
      {"selectattr", "*", SelectByMember},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
