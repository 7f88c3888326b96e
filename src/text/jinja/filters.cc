// Filters.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "support/check.h"
#include "text/jinja/format.h"
#include "text/jinja/level.h"
#include "text/jinja/numbers.h"
#include "text/jinja/run.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

int64_t IntegerOf(const Run& run, const Value* value, std::string_view name, int64_t otherwise) {
  if (value == nullptr || value->IsNone()) return otherwise;
  if (!value->IsInteger()) run.Refuse("the argument " + std::string(name), "an integer");
  return value->Integer();
}

std::string_view TextArgument(const Run& run, const Value* value, std::string_view name) {
  if (value == nullptr || value->AsString() == nullptr) {
    run.Refuse("the argument " + std::string(name), "a string");
  }
  return *value->AsString();
}

// "a.b" of a value, as map, selectattr and others name members.
Value MemberOf(Run& run, const Value& value, std::string_view path) {
  Value member = value;
  run.Charge(path.size());
  for (;;) {
    const size_t dot = path.find('.');
    const std::string_view name = path.substr(0, dot);
    int64_t place = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place);
    const bool is_place = error == std::errc() && end == name.data() + name.size();
    member = run.Item(member, is_place ? Value::Of(place) : Value::Of(std::string(name)));
    if (dot == std::string_view::npos) return member;
    path.remove_prefix(dot + 1);
  }
}

Value Selected(Run& run, std::string_view name, const Value& value, const Arguments& arguments) {
  if (!value.IsTrue()) return Value::Of(List(), Value::View::kOnce);  // None, 0 and what is empty
  const bool by_member = name.ends_with("attr");
  const bool rejects = name.starts_with("reject");
  Arguments rest = arguments;
  std::string member;
  if (by_member) {
    const Value* given = arguments.Get(0, "attribute");
    if (given == nullptr) run.Refuse(std::string(name) + " without a member", "its name");
    member = ToText(run, *given);
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

Value Mapped(Run& run, const Value& value, const Arguments& arguments) {
  List made;
  if (!value.IsTrue()) return Value::Of(std::move(made), Value::View::kOnce);
  if (const Value* member = arguments.Get(SIZE_MAX, "attribute")) {
    const Value* otherwise = arguments.Get(SIZE_MAX, "default");
    for (const Value& item : run.Items(value)) {
      Value found = MemberOf(run, item, ToText(run, *member));
      made.push_back(found.IsUndefined() && otherwise != nullptr ? *otherwise : found);
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

// What sort, min, max and unique compare: strings without their case.
// Whether case counts is the argument at case_place, the member that is compared the one behind it.
Value KeyOf(Run& run, const Value& item, const Arguments& arguments, size_t case_place) {
  const Value* attribute = arguments.Get(case_place + 1, "attribute");
  Value key = attribute == nullptr || attribute->IsNone()
                  ? item
                  : MemberOf(run, item, ToText(run, *attribute));
  const Value* keeps_case = arguments.Get(case_place, "case_sensitive");
  if (key.AsString() != nullptr && (keeps_case == nullptr || !keeps_case->IsTrue())) {
    run.Charge(key.AsString()->size());
    return run.Made(Lower(*key.AsString()));
  }
  return key;
}

// Members whose names have commas between them; what is equal needs no order.
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
  const Value* reverse = arguments.Get(0, "reverse");
  const bool descends = reverse != nullptr && reverse->IsTrue();
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
  const std::string_view name = what == nullptr ? "key" : TextArgument(run, what, "by");
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

// So many spaces, or a text.
std::string SpaceOf(const Run& run, const Value& value, std::string_view name, size_t most) {
  const bool is_text = value.AsString() != nullptr;
  const auto count = is_text ? static_cast<int64_t>(value.AsString()->size())
                             : std::max<int64_t>(IntegerOf(run, &value, name, 0), 0);
  if (count > static_cast<int64_t>(most)) {
    run.Refuse("a larger " + std::string(name), "at most " + std::to_string(most));
  }
  return is_text ? *value.AsString() : std::string(static_cast<size_t>(count), ' ');
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

Value Indented(Run& run, const Value& value, const Arguments& arguments) {
  const Value* width = arguments.Get(0, "width");
  const Value* first = arguments.Get(1, "first");
  const Value* blank = arguments.Get(2, "blank");
  const std::string space =
      width == nullptr ? "    " : SpaceOf(run, *width, "width", size_t{1} << 16);
  std::string text = ToText(run, value);
  run.Charge(text.size());
  text.push_back('\n');
  std::string made;
  bool is_first = true;
  for (std::string_view rest = text; !rest.empty();) {
    const Line line = FirstLine(rest);
    const bool wants = is_first ? first != nullptr && first->IsTrue()
                                : !line.text.empty() || (blank != nullptr && blank->IsTrue());
    if (!std::exchange(is_first, false)) made.push_back('\n');
    if (wants) made.append(space);
    made.append(line.text);
    run.Charge(space.size());
    rest.remove_prefix(line.size);
  }
  return run.Made(std::move(made));
}

Value Centered(Run& run, const std::string& text, const Arguments& arguments) {
  const int64_t width = IntegerOf(run, arguments.Get(0, "width"), "width", 80);
  if (width > 65536) run.Refuse("a larger width", "at most 65536");
  const int64_t room = std::max<int64_t>(width - static_cast<int64_t>(CountCharacters(text)), 0);
  const int64_t left = room / 2 + (room & width & 1);  // as Python has it
  std::string made(static_cast<size_t>(left), ' ');
  return run.Made(made.append(text).append(static_cast<size_t>(room - left), ' '));
}

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

Value Distinct(Run& run, const Value& value, const Arguments& arguments) {
  List keys;
  List made;
  for (const Value& item : run.Items(value)) {
    Value key = KeyOf(run, item, arguments, 0);
    run.Charge(16 * keys.size());
    if (FindIn(run, keys, key) < keys.size()) continue;
    keys.push_back(std::move(key));
    made.push_back(item);
  }
  return Value::Of(std::move(made), Value::View::kOnce);
}

Value Rounded(const Run& run, const Value& value, const Arguments& arguments) {
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

size_t LengthOf(Run& run, const Value& value) {
  if (const std::string* text = value.AsString()) {
    run.Charge(text->size());
    return CountCharacters(*text);
  }
  if (const List* list = value.AsList(); list != nullptr && !value.IsView(Value::View::kOnce)) {
    return list->size();
  }
  if (const Dict* dict = value.AsDict()) return dict->members.size();
  if (value.IsUndefined()) return 0;
  run.Refuse("the length of a " + std::string(value.TypeName()), "a list, a dict or a string");
}

// Filters and the names of their arguments; *: they look at them themselves.
constexpr std::array<std::array<std::string_view, 2>, 39> kFilters = {{
    {"abs", ""},
    {"capitalize", ""},
    {"center", "width"},
    {"count", ""},
    {"d", "default_value boolean"},
    {"default", "default_value boolean"},
    {"dictsort", "case_sensitive by reverse"},
    {"e", ""},
    {"escape", ""},
    {"first", ""},
    {"float", "default"},
    {"format", "*"},
    {"indent", "width first blank"},
    {"int", "default base"},
    {"items", ""},
    {"join", "d attribute"},
    {"last", ""},
    {"length", ""},
    {"list", ""},
    {"lower", ""},
    {"map", "*"},
    {"max", "case_sensitive attribute"},
    {"min", "case_sensitive attribute"},
    {"reject", "*"},
    {"rejectattr", "*"},
    {"replace", "old new count"},
    {"reverse", ""},
    {"round", "precision method"},
    {"safe", ""},
    {"select", "*"},
    {"selectattr", "*"},
    {"sort", "reverse case_sensitive attribute"},
    {"string", ""},
    {"sum", "attribute start"},
    {"title", ""},
    {"tojson", "ensure_ascii indent separators sort_keys"},
    {"trim", "chars"},
    {"unique", "case_sensitive attribute"},
    {"upper", ""},
}};

}  // namespace

Value Run::Filter(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  const auto known = std::find_if(kFilters.begin(), kFilters.end(),
                                  [&](const auto& filter) { return filter[0] == name; });
  if (known == kFilters.end()) {
    Refuse("the filter " + std::string(name), "one of the usual filters");
  }
  if ((*known)[1] != "*") CheckArguments(name, (*known)[1], arguments);
  const Level level(*this);  // map calls filters
  const auto text = [&] {
    std::string made = ToText(*this, value);
    Charge(made.size());
    return made;
  };
  if (name == "trim") {
    const Value* characters = arguments.Get(0, "chars");
    const std::string of = text();
    if (characters == nullptr || characters->IsNone()) {
      return Value::Of(std::string(Trimmed(of, true, true)));
    }
    return Value::Of(std::string(TrimmedOf(*this, of, ToText(*this, *characters), true, true)));
  }
  if (name == "tojson") return Json(*this, value, arguments);
  if (name == "length" || name == "count") return Value::Of(LengthOf(*this, value));
  if (name == "upper") return Value::Of(Upper(text()));
  if (name == "lower") return Value::Of(Lower(text()));
  if (name == "capitalize") return Value::Of(Capitalized(text()));
  if (name == "title") return Value::Of(JinjaTitle(text()));
  if (name == "string") return value.AsString() != nullptr ? value : Value::Of(text());
  if (name == "safe") return value.AsString() != nullptr ? value : Value::Of(text());
  if (name == "escape" || name == "e") return Made(Escaped(text()));
  if (name == "default" || name == "d") {
    const Value* otherwise = arguments.Get(0, "default_value");
    const Value* takes_false = arguments.Get(1, "boolean");
    const bool is_off = takes_false != nullptr && takes_false->IsTrue() && !value.IsTrue();
    if (!value.IsUndefined() && !is_off) return value;
    return otherwise == nullptr ? Value::Of(std::string()) : *otherwise;
  }
  if (name == "format") return Formatted(*this, text(), arguments);
  if (name == "center") return Centered(*this, text(), arguments);
  if (name == "join") return Joined(*this, value, arguments);
  if (name == "replace") {
    const Value* most = arguments.Get(2, "count");
    const Value* old = arguments.Get(0, "old");
    const Value* made = arguments.Get(1, "new");
    if (old == nullptr || made == nullptr) Refuse("replace", "what is replaced, and by what");
    return Made(Replaced(*this, text(), ToText(*this, *old), ToText(*this, *made),
                         IntegerOf(*this, most, "count", -1)));
  }
  if (name == "first") return FirstOrLast(*this, value, true);
  if (name == "last") return FirstOrLast(*this, value, false);
  if (name == "list") return Value::Of(Items(value));
  if (name == "items") {
    if (value.IsUndefined()) return Value::Of(List());
    if (value.AsDict() == nullptr) Refuse("items of a " + std::string(value.TypeName()), "a dict");
    List items;
    ChargeItems(2 * value.AsDict()->members.size());
    for (const auto& [key, item] : value.AsDict()->members) {
      items.push_back(Value::Of(List{key, item}, true));
    }
    return Value::Of(std::move(items), Value::View::kOnce);
  }
  if (name == "reverse") {
    if (value.AsString() != nullptr) {
      std::string_view rest = *value.AsString();
      Charge(rest.size());
      std::string made;
      while (!rest.empty()) {
        const size_t size = LastOf(rest).size;
        made.append(rest.substr(rest.size() - size));
        rest.remove_suffix(size);
      }
      return Made(std::move(made));
    }
    List items = Items(value);
    std::reverse(items.begin(), items.end());
    return Value::Of(std::move(items), Value::View::kOnce);
  }
  if (name == "map") return Mapped(*this, value, arguments);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr") {
    return Selected(*this, name, value, arguments);
  }
  if (name == "sort") return Sorted(*this, value, arguments);
  if (name == "dictsort") return SortedMembers(*this, value, arguments);
  if (name == "unique") return Distinct(*this, value, arguments);
  if (name == "min") return Extreme(*this, value, arguments, true);
  if (name == "max") return Extreme(*this, value, arguments, false);
  if (name == "sum") {
    const Value* start = arguments.Get(1, "start");
    Value total = start == nullptr ? Value::Of(int64_t{0}) : *start;
    const Value* attribute = arguments.Get(0, "attribute");
    for (const Value& item : Items(value)) {
      const bool is_member = attribute != nullptr && !attribute->IsNone();
      total =
          Binary("+", total, is_member ? MemberOf(*this, item, ToText(*this, *attribute)) : item);
    }
    return total;
  }
  if (name == "int") return ToInteger(*this, value, arguments);
  if (name == "float") return ToReal(*this, value, arguments);
  if (name == "abs") {
    if (!value.IsNumber()) Refuse("abs of a " + std::string(value.TypeName()), "a number");
    if (!value.IsInteger()) return Value::Of(std::abs(value.Real()));
    return value.Integer() < 0 ? Binary("-", Value::Of(int64_t{0}), value)
                               : Value::Of(value.Integer());
  }
  if (name == "round") return Rounded(*this, value, arguments);
  return Indented(*this, value, arguments);
}

}  // namespace sluice::text::jinja
