#include "text/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "support/check.h"
#include "text/jinja/format/number_text.h"
#include "text/jinja/run.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

constexpr int kDeepest = 200;  // of values that are written

void AppendHex(uint32_t c, int digits, std::string& text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    text.push_back(kHexDigits[c >> shift & 15]);
}

void AppendEscape(uint32_t c, std::string& text) {
  const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  text.append(digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U");
  AppendHex(c, digits, text);
}

void AppendQuoted(std::string_view value, std::string& text) {
  const bool has_single = value.find('\'') != std::string_view::npos;
  const bool has_double = value.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  text.push_back(quote);
  ForEachCharacter(value, [&](uint32_t c, std::string_view bytes) {
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      text.push_back('\\');
      text.append(bytes);
    } else if (c == '\n') {
      text.append("\\n");
    } else if (c == '\r') {
      text.append("\\r");
    } else if (c == '\t') {
      text.append("\\t");
    } else if (IsPrintable(c)) {
      text.append(bytes);
    } else {
      AppendEscape(c, text);
    }
  });
  text.push_back(quote);
}

void AppendJsonString(std::string_view value, bool ascii_only, std::string& text) {
  text.push_back('"');
  ForEachCharacter(value, [&](uint32_t c, std::string_view bytes) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t at = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      text.push_back('\\');
      text.push_back(kLetters[at]);
    } else if (c >= 0x20 && (c < 0x7F || !ascii_only)) {
      text.append(bytes);
    } else if (c < 0x10000) {
      text.append("\\u");
      AppendHex(c, 4, text);
    } else {
      text.append("\\u");
      AppendHex(0xD800 + ((c - 0x10000) >> 10), 4, text);
      text.append("\\u");
      AppendHex(0xDC00 + ((c - 0x10000) & 0x3FF), 4, text);
    }
  });
  text.push_back('"');
}

void Append(Run& run, const Value& value, int depth, std::string& text) {
  run.ChargeElement(text.size());
  if (depth > kDeepest) ThrowInvalid("template", "deeper nesting of values", "at most 200 levels");
  if (value.IsUndefined()) {
    text.append("Undefined");
    return;
  }
  if (const std::string* string = value.AsString()) {
    if (value.IsMarkup()) text.append("Markup(");
    AppendQuoted(*string, text);
    if (value.IsMarkup()) text.push_back(')');
    return;
  }
  if (const auto* sequence = value.As<Value::Sequence>()) {
    if (sequence->view != Value::View::kNone) {
      ThrowInvalid("template", "the text of a range, a dict's view or a filter's items",
                   "that of a list, which the filter list makes");
    }
    text.push_back(sequence->is_tuple ? '(' : '[');
    const List& items = *sequence->items;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text.append(", ");
      Append(run, items[i], depth + 1, text);
    }
    if (sequence->is_tuple && items.size() == 1) text.push_back(',');
    text.push_back(sequence->is_tuple ? ')' : ']');
    return;
  }
  if (const Dict* dict = value.AsDict()) {
    text.push_back('{');
    for (size_t i = 0; i < dict->members.size(); ++i) {
      if (i > 0) text.append(", ");
      Append(run, dict->members[i].first, depth + 1, text);
      text.append(": ");
      Append(run, dict->members[i].second, depth + 1, text);
    }
    text.push_back('}');
    return;
  }
  if (value.AsMembers() != nullptr) {
    ThrowInvalid("template", "the text of a namespace or of loop", "that of a member");
  }
  text.append(ToText(run, value));
}

}  // namespace

const Value* Dict::Find(Run& run, const Value& key) const {
  run.ChargeCompared(members.size());
  for (const auto& [name, value] : members) {
    if (IsEqual(run, name, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(Run& run, std::string_view key) const {
  run.ChargeCompared(members.size());
  for (const auto& [name, value] : members) {
    const std::string* text = name.AsString();
    if (text == nullptr || text->size() != key.size()) continue;
    run.ChargeCompared(key.size());
    if (*text == key) return &value;
  }
  return nullptr;
}

void Dict::Set(Run& run, Value key, Value value) {
  run.ChargeCompared(members.size());
  for (auto& [name, old] : members) {
    if (IsEqual(run, name, key)) {
      old = std::move(value);
      return;
    }
  }
  members.emplace_back(std::move(key), std::move(value));
}

const Value* Arguments::Get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Value::Holds(const Value& other) {
  depth_ = std::max<uint16_t>(depth_, static_cast<uint16_t>(other.depth_ + 1));
  holds_namespace_ = holds_namespace_ || other.holds_namespace_;
  if (depth_ > kDeepest) ThrowInvalid("template", "deeper nesting of values", "at most 200 levels");
}

// Templates name missing members by texts of any length, again and again.
Value Value::Missing(std::string_view name) {
  constexpr size_t kLongest = 80;
  if (name.size() > kLongest) name = name.substr(0, ValidPrefix(name.substr(0, kLongest)));
  return Value(Data(Undefined{std::string(name)}));
}

Value Value::Of(List items, bool is_tuple) {
  Value made(Data(Sequence{nullptr, is_tuple}));
  for (const Value& item : items) made.Holds(item);
  std::get<Sequence>(made.data_).items = std::make_shared<List>(std::move(items));
  return made;
}

Value Value::Of(List items, View view) {
  Value made = Of(std::move(items));
  std::get<Sequence>(made.data_).view = view;
  return made;
}

Value Value::Text(std::string value, bool is_markup) {
  Value made = Of(std::move(value));
  made.is_markup_ = is_markup;
  return made;
}

Value Value::Of(ChatText value, bool is_markup) {
  Value made = Text(std::move(value.text), is_markup);
  if (!value.own.empty()) {
    made.own_ = std::make_shared<const std::vector<TextSpan>>(std::move(value.own));
  }
  return made;
}

Value Value::OfGroup(Value name, Value items) {
  Value made = Of(List{std::move(name), std::move(items)}, true);
  std::get<Sequence>(made.data_).is_group = true;
  return made;
}

Value Value::OfCycler(List items) {
  Value made(Data(std::make_shared<Cycler>()));
  for (const Value& item : items) made.Holds(item);
  std::get<std::shared_ptr<Cycler>>(made.data_)->items = std::move(items);
  return made;
}

Value Value::Of(Dict members, bool is_namespace) {
  Value made(Data(Mapping{nullptr, is_namespace}));
  made.holds_namespace_ = is_namespace;
  for (const auto& [key, value] : members.members) {
    made.Holds(key);
    made.Holds(value);
  }
  std::get<Mapping>(made.data_).members = std::make_shared<Dict>(std::move(members));
  return made;
}

Value Value::Of(Function function, const Value& held) {
  Value made(Data(std::make_shared<const Function>(std::move(function))));
  made.Holds(held);
  return made;
}

int64_t Value::Integer() const {
  if (const bool* flag = As<bool>()) return *flag ? 1 : 0;
  return *As<int64_t>();
}

double Value::Real() const {
  if (const double* real = As<double>()) return *real;
  return static_cast<double>(Integer());
}

bool Value::IsTrue() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return Real() != 0.0;
  if (const std::string* text = AsString()) return !text->empty();
  if (const List* list = AsList()) return !list->empty() || IsView(View::kOnce);
  if (const auto* mapping = As<Mapping>()) {
    return mapping->is_namespace || !mapping->members->members.empty();
  }
  return true;
}

std::string_view Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (As<bool>() != nullptr) return "bool";
  if (As<int64_t>() != nullptr) return "int";
  if (As<double>() != nullptr) return "float";
  if (AsString() != nullptr) return is_markup_ ? "Markup" : "str";
  if (const auto* sequence = As<Sequence>()) return sequence->is_tuple ? "tuple" : "list";
  if (AsDict() != nullptr) return "dict";
  if (AsMembers() != nullptr) return "namespace";
  return As<std::shared_ptr<Cycler>>() != nullptr ? "cycler" : "function";
}

bool IsEqual(Run& run, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.Integer() == b.Integer();
    return a.Real() == b.Real();
  }
  if (a.AsString() != nullptr && b.AsString() != nullptr) {
    if (a.AsString() == b.AsString()) return true;
    if (a.AsString()->size() != b.AsString()->size()) return false;
    run.ChargeCompared(a.AsString()->size());
    return *a.AsString() == *b.AsString();
  }
  if (a.IsNone() || a.IsUndefined()) return a.TypeName() == b.TypeName();
  const auto* x = a.As<Value::Sequence>();
  const auto* y = b.As<Value::Sequence>();
  if (x != nullptr && y != nullptr) {
    if (x->is_tuple != y->is_tuple || x->view != y->view) return false;
    if (x->items == y->items || x->view == Value::View::kOnce) return x->items == y->items;
    return std::equal(x->items->begin(), x->items->end(), y->items->begin(), y->items->end(),
                      [&](const Value& left, const Value& right) {
                        run.Charge();
                        return IsEqual(run, left, right);
                      });
  }
  const auto* cycler = a.As<std::shared_ptr<Value::Cycler>>();
  const auto* other_cycler = b.As<std::shared_ptr<Value::Cycler>>();
  if (cycler != nullptr && other_cycler != nullptr) return *cycler == *other_cycler;
  // A namespace is equal to itself only, and may hold itself.
  if (a.AsMembers() != nullptr && a.AsMembers() == b.AsMembers()) return true;
  if (a.AsDict() != nullptr && b.AsDict() != nullptr) {
    const Dict& left = *a.AsDict();
    const Dict& right = *b.AsDict();
    return left.members.size() == right.members.size() &&
           std::all_of(left.members.begin(), left.members.end(), [&](const auto& member) {
             run.Charge();
             run.ChargeCompared(right.members.size());
             const Value* other = right.Find(run, member.first);
             return other != nullptr && IsEqual(run, *other, member.second);
           });
  }
  return false;
}

size_t CountOf(Run& run, const List& list, const Value& value) {
  run.ChargeCompared(list.size());
  return static_cast<size_t>(std::count_if(
      list.begin(), list.end(), [&](const Value& item) { return IsEqual(run, item, value); }));
}

size_t FindIn(Run& run, const List& list, const Value& value) {
  run.ChargeCompared(list.size());
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Value& item) { return IsEqual(run, item, value); });
  return static_cast<size_t>(found - list.begin());
}

std::string ToText(Run& run, const Value& value) {
  if (value.IsUndefined()) return "";
  if (value.IsNone()) return "None";
  if (const bool* flag = value.As<bool>()) return *flag ? "True" : "False";
  if (const int64_t* integer = value.As<int64_t>()) return std::to_string(*integer);
  if (const double* real = value.As<double>()) return RealText(*real);
  if (const std::string* text = value.AsString()) return *text;
  if (value.As<std::shared_ptr<Value::Cycler>>() != nullptr) {
    ThrowInvalid("template", "the text of a cycler", "that of its items");
  }
  if (const auto* function = value.As<std::shared_ptr<const Function>>()) {
    ThrowInvalid("template", "the text of the function " + (*function)->name, "a value");
  }
  std::string text;
  Append(run, value, 0, text);
  return text;
}

std::string ReprText(Run& run, const Value& value) {
  std::string text;
  Append(run, value, 0, text);
  return text;
}

std::string AsciiText(std::string_view repr) {
  std::string text;
  ForEachCharacter(repr, [&](uint32_t c, std::string_view bytes) {
    if (c < 0x80) {
      text.append(bytes);
    } else {
      AppendEscape(c, text);
    }
  });
  return text;
}

void AppendJson(Run& run, const Value& value, const JsonStyle& style, int64_t depth,
                std::string& text) {
  run.ChargeElement(text.size());
  if (depth > kDeepest) ThrowInvalid("template", "deeper nesting of values", "at most 200 levels");
  const auto line = [&](int64_t levels) {
    if (!style.indent) return;
    text.push_back('\n');
    for (int64_t i = 0; i < levels; ++i) text.append(*style.indent);
  };
  // With an indent, a separator ends its line.
  std::string_view separator = style.item_separator;
  if (style.indent && !style.has_separators) separator = ",";
  if (value.IsNone()) {
    text.append("null");
  } else if (const bool* flag = value.As<bool>()) {
    text.append(*flag ? "true" : "false");
  } else if (const double* real = value.As<double>(); real != nullptr && !std::isfinite(*real)) {
    text.append(std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity");
  } else if (value.IsNumber()) {
    text.append(ToText(run, value));
  } else if (const std::string* string = value.AsString()) {
    AppendJsonString(*string, style.ascii_only, text);
  } else if (const List* list = value.AsList();
             list != nullptr && value.As<Value::Sequence>()->view == Value::View::kNone) {
    text.push_back('[');
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) text.append(separator);
      line(depth + 1);
      AppendJson(run, (*list)[i], style, depth + 1, text);
    }
    if (!list->empty()) line(depth);
    text.push_back(']');
  } else if (const Dict* dict = value.AsDict()) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict->members) members.push_back(&member);
    if (style.sort_keys) {
      std::stable_sort(members.begin(), members.end(), [&](const auto* a, const auto* b) {
        return IsLess(run, a->first, b->first);
      });
    }
    text.push_back('{');
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) text.append(separator);
      line(depth + 1);
      const Value& key = members[i]->first;
      std::string name;
      if (key.AsString() != nullptr) {
        name = *key.AsString();
      } else {
        AppendJson(run, key, style, depth + 1, name);
        run.ChargeElement(name.size());
      }
      AppendJsonString(name, style.ascii_only, text);
      text.append(style.key_separator);
      AppendJson(run, members[i]->second, style, depth + 1, text);
    }
    if (!members.empty()) line(depth);
    text.push_back('}');
  } else {
    ThrowInvalid("template", std::string("tojson of a ").append(value.TypeName()),
                 "none, bool, number, string, list or dict");
  }
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return !IsContinuation(static_cast<uint8_t>(c)); }));
}

std::string_view CharactersFrom(std::string_view text, size_t begin, size_t end) {
  size_t at = 0;
  const auto skip = [&](size_t count) {
    for (; count > 0 && at < text.size(); --count) at += FirstOf(text.substr(at)).size;
  };
  skip(begin);
  const size_t first = at;
  skip(end - begin);
  return text.substr(first, at - first);
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  ForEachCharacter(text, [&](uint32_t, std::string_view bytes) { characters.push_back(bytes); });
  return characters;
}

}  // namespace sluice::text::jinja
