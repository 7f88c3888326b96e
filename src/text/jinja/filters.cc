// Filters and tests.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "support/check.h"
#include "text/jinja/format.h"
#include "text/jinja/level.h"
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

std::string TextArgument(const Run& run, const Value* value, std::string_view name,
                         std::string_view otherwise) {
  if (value == nullptr) return std::string(otherwise);
  if (value->AsString() == nullptr) run.Refuse("the argument " + std::string(name), "a string");
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
  return Value::Of(std::move(kept));
}

Value Mapped(Run& run, const Value& value, const Arguments& arguments) {
  List made;
  if (const Value* member = arguments.Get(SIZE_MAX, "attribute")) {
    const Value* otherwise = arguments.Get(SIZE_MAX, "default");
    for (const Value& item : run.Items(value)) {
      Value found = MemberOf(run, item, ToText(run, *member));
      made.push_back(found.IsUndefined() && otherwise != nullptr ? *otherwise : found);
    }
    return Value::Of(std::move(made));
  }
  if (arguments.positional.empty()) run.Refuse("map without a filter", "its name");
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  const std::string name = ToText(run, arguments.positional[0]);
  for (const Value& item : run.Items(value)) made.push_back(run.Filter(name, item, rest));
  return Value::Of(std::move(made));
}

// What sort, min, max and unique compare: strings without their case.
Value KeyOf(Run& run, const Value& item, const Arguments& arguments, size_t attribute_place) {
  const Value* attribute = arguments.Get(attribute_place, "attribute");
  Value key = attribute == nullptr || attribute->IsNone()
                  ? item
                  : MemberOf(run, item, ToText(run, *attribute));
  const Value* keeps_case = arguments.Get(SIZE_MAX, "case_sensitive");
  if (key.AsString() != nullptr && (keeps_case == nullptr || !keeps_case->IsTrue())) {
    run.Charge(key.AsString()->size());
    return run.Made(Lower(*key.AsString()));
  }
  return key;
}

Value Sorted(Run& run, const Value& value, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : run.Items(value)) {
    keyed.emplace_back(KeyOf(run, item, arguments, 2), item);
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
  const bool by_value = what != nullptr && ToText(run, *what) == "value";
  by.named.emplace_back("attribute", Value::Of(int64_t{by_value ? 1 : 0}));
  if (const Value* reverse = arguments.Get(2, "reverse"))
    by.named.emplace_back("reverse", *reverse);
  return Sorted(run, Value::Of(std::move(pairs)), by);
}

Value Joined(Run& run, const Value& value, const Arguments& arguments) {
  const Value* given = arguments.Get(0, "d");
  const std::string between = given == nullptr ? "" : ToText(run, *given);
  const Value* attribute = arguments.Get(1, "attribute");
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

Value Json(Run& run, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  // As transformers defines it: ensure_ascii, indent, separators, sort_keys.
  const Value* ascii = arguments.Get(0, "ensure_ascii");
  style.ascii_only = ascii != nullptr && ascii->IsTrue();
  style.indent = IntegerOf(run, arguments.Get(1, "indent"), "indent", -1);
  if (style.indent > 64) run.Refuse("a larger indent", "at most 64");
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
  std::string space;
  if (width != nullptr && width->AsString() != nullptr) {
    space = *width->AsString();
  } else {
    const int64_t count = IntegerOf(run, width, "width", 4);
    if (count > 1024) run.Refuse("a larger width", "at most 1024");
    space.assign(static_cast<size_t>(std::max<int64_t>(count, 0)), ' ');
  }
  std::string made;
  bool is_first = true;
  const std::string text = ToText(run, value);
  run.Charge(text.size());
  std::string_view rest = text;
  for (bool has_more = true; has_more;) {
    const size_t at = rest.find('\n');
    const std::string_view line = rest.substr(0, at);
    has_more = at != std::string_view::npos;
    const bool wants = is_first ? first != nullptr && first->IsTrue()
                                : !line.empty() || (blank != nullptr && blank->IsTrue());
    if (wants) made.append(space);
    made.append(line);
    if (has_more) {
      made.push_back('\n');
      rest.remove_prefix(at + 1);
    }
    run.Charge(space.size());
    is_first = false;
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

Value ToInteger(const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default");
  const Value fallback = otherwise == nullptr ? Value::Of(int64_t{0}) : *otherwise;
  double real = 0;
  if (value.IsInteger()) return Value::Of(value.Integer());
  if (value.IsNumber()) {
    real = value.Real();
  } else if (const std::string* text = value.AsString()) {
    const std::string_view number = Trimmed(*text, true, true);
    int64_t whole = 0;
    const char* last = number.data() + number.size();
    const char* first = number.data() + (number.starts_with('+') ? 1 : 0);
    const auto [end, error] = std::from_chars(first, last, whole);
    if (error == std::errc() && end == last) return Value::Of(whole);
    const auto result = std::from_chars(first, last, real);
    if (result.ec != std::errc() || result.ptr != last) return fallback;
  } else {
    return fallback;
  }
  if (!(std::abs(real) < 0x1p62)) return fallback;
  return Value::Of(static_cast<int64_t>(real));
}

Value ToReal(const Value& value, const Arguments& arguments) {
  const Value* otherwise = arguments.Get(0, "default");
  if (value.IsNumber()) return Value::Of(value.Real());
  if (const std::string* text = value.AsString()) {
    const std::string_view number = Trimmed(*text, true, true);
    double real = 0;
    const char* last = number.data() + number.size();
    const auto [end, error] = std::from_chars(number.data(), last, real);
    if (error == std::errc() && end == last) return Value::Of(real);
  }
  return otherwise == nullptr ? Value::Of(0.0) : *otherwise;
}

std::string Escaped(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '&':
        made.append("&amp;");
        break;
      case '<':
        made.append("&lt;");
        break;
      case '>':
        made.append("&gt;");
        break;
      case '"':
        made.append("&#34;");
        break;
      case '\'':
        made.append("&#39;");
        break;
      default:
        made.push_back(c);
    }
  }
  return made;
}

Value FirstOrLast(Run& run, const Value& value, bool is_first) {
  const List items = run.Items(value);
  if (items.empty()) return Value::Missing(is_first ? "first" : "last");
  return is_first ? items.front() : items.back();
}

Value Extreme(Run& run, const Value& value, const Arguments& arguments, bool is_least) {
  const List items = run.Items(value);
  if (items.empty()) return Value::Missing("an item of an empty list");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value a = KeyOf(run, items[i], arguments, 1);
    const Value b = KeyOf(run, items[best], arguments, 1);
    if (is_least ? IsLess(run, a, b) : IsLess(run, b, a)) best = i;
  }
  return items[best];
}

Value Distinct(Run& run, const Value& value, const Arguments& arguments) {
  List keys;
  List made;
  for (const Value& item : run.Items(value)) {
    Value key = KeyOf(run, item, arguments, 1);
    run.Charge(16 * keys.size());
    if (FindIn(run, keys, key) < keys.size()) continue;
    keys.push_back(std::move(key));
    made.push_back(item);
  }
  return Value::Of(std::move(made));
}

Value Rounded(const Run& run, const Value& value, const Arguments& arguments) {
  if (!value.IsNumber()) run.Refuse("round of a " + std::string(value.TypeName()), "a number");
  const int64_t digits = IntegerOf(run, arguments.Get(0, "precision"), "precision", 0);
  if (digits < 0 || digits > 15) run.Refuse("a precision", "[0, 15]");
  const std::string method = TextArgument(run, arguments.Get(1, "method"), "method", "common");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return Value::Of(std::ceil(value.Real() * scale) / scale);
  if (method == "floor") return Value::Of(std::floor(value.Real() * scale) / scale);
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
  if (const List* list = value.AsList()) return list->size();
  if (const Dict* dict = value.AsDict()) return dict->members.size();
  if (value.IsUndefined()) return 0;
  run.Refuse("the length of a " + std::string(value.TypeName()), "a list, a dict or a string");
}

}  // namespace

Value Run::Filter(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
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
    return Made(Replaced(*this, text(), TextArgument(*this, arguments.Get(0, "old"), "old", ""),
                         TextArgument(*this, arguments.Get(1, "new"), "new", ""),
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
    return Value::Of(std::move(items));
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
    return Value::Of(std::move(items));
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
    Value total = Value::Of(int64_t{0});
    const Value* attribute = arguments.Get(0, "attribute");
    for (const Value& item : Items(value)) {
      const bool is_member = attribute != nullptr && !attribute->IsNone();
      total =
          Binary("+", total, is_member ? MemberOf(*this, item, ToText(*this, *attribute)) : item);
    }
    return total;
  }
  if (name == "int") return ToInteger(value, arguments);
  if (name == "float") return ToReal(value, arguments);
  if (name == "abs") {
    if (!value.IsNumber()) Refuse("abs of a " + std::string(value.TypeName()), "a number");
    if (!value.IsInteger()) return Value::Of(std::abs(value.Real()));
    return value.Integer() < 0 ? Binary("-", Value::Of(int64_t{0}), value) : value;
  }
  if (name == "round") return Rounded(*this, value, arguments);
  if (name == "indent") return Indented(*this, value, arguments);
  Refuse("the filter " + std::string(name), "one of the usual filters");
}

bool Run::Test(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  const auto other = [&]() -> const Value& {
    if (arguments.positional.empty()) Refuse("is " + std::string(name) + " without a value", "one");
    return arguments.positional[0];
  };
  if (name == "defined") return !value.IsUndefined();
  if (name == "undefined") return value.IsUndefined();
  if (name == "none") return value.IsNone();
  if (name == "string") return value.AsString() != nullptr;
  if (name == "mapping") return value.AsDict() != nullptr;
  if (name == "number") return value.IsNumber();
  if (name == "integer") return value.As<int64_t>() != nullptr;
  if (name == "float") return value.As<double>() != nullptr;
  if (name == "boolean") return value.As<bool>() != nullptr;
  if (name == "true") return value.As<bool>() != nullptr && value.IsTrue();
  if (name == "false") return value.As<bool>() != nullptr && !value.IsTrue();
  if (name == "callable") return value.As<std::shared_ptr<const Function>>() != nullptr;
  if (name == "iterable" || name == "sequence") {
    return value.AsString() != nullptr || value.AsList() != nullptr || value.AsDict() != nullptr ||
           value.IsUndefined();
  }
  if (name == "even" || name == "odd" || name == "divisibleby") {
    const Value by = name == "divisibleby" ? other() : Value::Of(int64_t{2});
    const Value rest = Binary("%", value, by);
    return (rest.Real() == 0.0) != (name == "odd");
  }
  if (name == "in") return Compare("in", value, other());
  if (name == "eq" || name == "equalto" || name == "==") return Compare("==", value, other());
  if (name == "ne" || name == "!=") return Compare("!=", value, other());
  if (name == "lt" || name == "lessthan" || name == "<") return Compare("<", value, other());
  if (name == "gt" || name == "greaterthan" || name == ">") return Compare(">", value, other());
  if (name == "le" || name == "<=") return Compare("<=", value, other());
  if (name == "ge" || name == ">=") return Compare(">=", value, other());
  if (name == "upper" || name == "lower") {
    const std::string text = ToText(*this, value);
    Charge(text.size());
    bool has_case = false;
    ForEachCharacter(text, [&](uint32_t c, std::string_view) { has_case |= IsCased(c); });
    return has_case && text == (name == "upper" ? Upper(text) : Lower(text));
  }
  if (name == "sameas") {
    return value.TypeName() == other().TypeName() && Compare("==", value, other());
  }
  Refuse("the test " + std::string(name), "one of the usual tests");
}

}  // namespace sluice::text::jinja
