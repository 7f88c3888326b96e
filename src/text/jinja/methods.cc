// Methods of str, dict and list, and the functions that every template has.
#include <algorithm>
#include <ctime>
#include <limits>
#include <optional>

#include "support/check.h"
#include "text/jinja/find.h"
#include "text/jinja/format.h"
#include "text/jinja/run.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

using Call = std::function<Value(Run&, const Arguments&)>;

Value Bound(std::string_view name, const char* parameters, Call call, const Value& held = {}) {
  return Value::Of(Function{std::string(name), std::move(call), parameters}, held);
}

const std::string& StringArgument(const Run& run, const Arguments& arguments, size_t place,
                                  std::string_view name) {
  const Value* value = arguments.Get(place, name);
  if (value == nullptr || value->AsString() == nullptr) {
    run.Refuse("the argument " + std::string(name), "a string");
  }
  return *value->AsString();
}

int64_t IntegerArgument(const Run& run, const Arguments& arguments, size_t place,
                        std::string_view name, int64_t otherwise) {
  const Value* value = arguments.Get(place, name);
  if (value == nullptr || value->IsNone()) return otherwise;
  if (!value->IsInteger()) run.Refuse("the argument " + std::string(name), "an integer");
  return value->Integer();
}

// The part of a text that two arguments name as a slice does; none where it begins behind the end.
std::optional<std::string_view> PartOf(Run& run, std::string_view text, const Arguments& arguments,
                                       size_t* before = nullptr) {
  const auto size = static_cast<int64_t>(CountCharacters(text));
  run.Charge(text.size());
  const auto place = [&](size_t at, std::string_view name, int64_t otherwise) {
    const int64_t given = IntegerArgument(run, arguments, at, name, otherwise);
    return given < 0 ? std::max<int64_t>(given + size, 0) : given;
  };
  const int64_t begin = place(1, "start", 0);
  const int64_t end = std::min(place(2, "end", size), size);
  if (begin > end) return std::nullopt;
  if (before != nullptr) *before = static_cast<size_t>(begin);
  return CharactersFrom(text, static_cast<size_t>(begin), static_cast<size_t>(end));
}

// str.startswith and str.endswith take one text or a tuple of them.
Value Matches(Run& run, std::string_view text, const Arguments& arguments, bool at_the_end) {
  const std::optional<std::string_view> part = PartOf(run, text, arguments);
  const auto matches = [&](std::string_view of) {
    run.Charge(of.size());
    return part && (at_the_end ? part->ends_with(of) : part->starts_with(of));
  };
  const Value* value = arguments.Get(0, "prefix");
  if (value != nullptr && value->AsList() != nullptr) {
    const List& texts = *value->AsList();
    return Value::Of(std::any_of(texts.begin(), texts.end(), [&](const Value& item) {
      run.Charge();
      return item.AsString() != nullptr && matches(*item.AsString());
    }));
  }
  return Value::Of(matches(StringArgument(run, arguments, 0, "prefix")));
}

Value Find(Run& run, std::string_view text, const Arguments& arguments) {
  const std::string& part = StringArgument(run, arguments, 0, "sub");
  size_t before = 0;
  const std::optional<std::string_view> in = PartOf(run, text, arguments, &before);
  const size_t at = in ? Finder(run, part).In(*in) : std::string_view::npos;
  if (at == std::string_view::npos) return Value::Of(int64_t{-1});
  return Value::Of(before + CountCharacters(in->substr(0, at)));
}

Value Count(Run& run, std::string_view text, const Arguments& arguments) {
  const std::string& part = StringArgument(run, arguments, 0, "sub");
  const std::optional<std::string_view> in = PartOf(run, text, arguments);
  if (!in) return Value::Of(int64_t{0});
  if (part.empty()) return Value::Of(CountCharacters(*in) + 1);
  size_t count = 0;
  const Finder finder(run, part);
  for (size_t at = finder.In(*in); at != std::string_view::npos;
       at = finder.In(*in, at + part.size())) {
    ++count;
  }
  return Value::Of(count);
}

Value Lines(Run& run, std::string_view text, const Arguments& arguments) {
  const Value* keeps = arguments.Get(0, "keepends");
  List lines;
  run.Charge(text.size());
  while (!text.empty()) {
    const Line line = FirstLine(text);
    run.Charge(16);
    const bool keeps_end = keeps != nullptr && keeps->IsTrue();
    lines.push_back(Value::Of(std::string(keeps_end ? text.substr(0, line.size) : line.text)));
    text.remove_prefix(line.size);
  }
  return Value::Of(std::move(lines));
}

List SplitText(Run& run, std::string_view text, const Arguments& arguments, bool from_right) {
  run.Charge(text.size());
  const Value* separator = arguments.Get(0, "sep");
  const int64_t most = IntegerArgument(run, arguments, 1, "maxsplit", -1);
  List parts;
  const auto add = [&](std::string_view part) {
    run.Charge(16);
    parts.push_back(Value::Of(std::string(part)));
  };
  const auto is_full = [&] { return most >= 0 && static_cast<int64_t>(parts.size()) >= most; };
  if ((separator == nullptr || separator->IsNone()) && from_right) {
    for (std::string_view rest = Trimmed(text, false, true); !rest.empty();) {
      if (is_full()) {
        add(rest);
        break;
      }
      size_t size = rest.size();
      while (size > 0 && !IsPythonSpace(LastOf(rest.substr(0, size)).value)) {
        size -= LastOf(rest.substr(0, size)).size;
      }
      add(rest.substr(size));
      rest = Trimmed(rest.substr(0, size), false, true);
    }
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  if (separator == nullptr || separator->IsNone()) {
    for (std::string_view rest = Trimmed(text, true, false); !rest.empty();) {
      if (is_full()) {
        add(rest);
        break;
      }
      size_t size = 0;
      while (size < rest.size() && !IsPythonSpace(FirstOf(rest.substr(size)).value)) {
        size += FirstOf(rest.substr(size)).size;
      }
      add(rest.substr(0, size));
      rest = Trimmed(rest.substr(size), true, false);
    }
    return parts;
  }
  const std::string& mark = StringArgument(run, arguments, 0, "sep");
  if (mark.empty()) run.Refuse("an empty separator", "text");
  if (from_right) {
    // From the end, both are read backwards.
    const std::string back_text(text.rbegin(), text.rend());
    const std::string back_mark(mark.rbegin(), mark.rend());
    const Finder finder(run, back_mark);
    while (!is_full()) {
      const size_t at = finder.In(back_text, back_text.size() - text.size());
      if (at == std::string::npos) break;
      const size_t end = back_text.size() - at;
      add(text.substr(end));
      text = text.substr(0, end - mark.size());
    }
    add(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  const Finder finder(run, mark);
  for (size_t at = 0; !is_full() && (at = finder.In(text)) != std::string_view::npos;) {
    add(text.substr(0, at));
    text.remove_prefix(at + mark.size());
  }
  add(text);
  return parts;
}

Value StripMethod(Run& run, const std::string& text, const Arguments& arguments, bool left,
                  bool right) {
  const Value* set = arguments.Get(0, "chars");
  if (set == nullptr || set->IsNone()) return run.Made(std::string(Trimmed(text, left, right)));
  return run.Made(
      std::string(TrimmedOf(run, text, StringArgument(run, arguments, 0, "chars"), left, right)));
}

Value StringMethod(const Value::String& held, std::string_view name) {
  const auto bind = [&](const char* parameters,
                        Value (*call)(Run&, const std::string&, const Arguments&)) {
    return Bound(name, parameters,
                 [held, call](Run& run, const Arguments& a) { return call(run, *held, a); });
  };
  using Text = const std::string&;
  using Given = const Arguments&;
  if (name == "strip")
    return bind("chars", [](Run& r, Text t, Given a) { return StripMethod(r, t, a, true, true); });
  if (name == "lstrip")
    return bind("chars", [](Run& r, Text t, Given a) { return StripMethod(r, t, a, true, false); });
  if (name == "rstrip")
    return bind("chars", [](Run& r, Text t, Given a) { return StripMethod(r, t, a, false, true); });
  if (name == "split")
    return bind("sep maxsplit",
                [](Run& r, Text t, Given a) { return Value::Of(SplitText(r, t, a, false)); });
  if (name == "rsplit")
    return bind("sep maxsplit",
                [](Run& r, Text t, Given a) { return Value::Of(SplitText(r, t, a, true)); });
  if (name == "startswith")
    return bind("prefix start end",
                [](Run& r, Text t, Given a) { return Matches(r, t, a, false); });
  if (name == "endswith")
    return bind("prefix start end", [](Run& r, Text t, Given a) { return Matches(r, t, a, true); });
  if (name == "upper") return bind("", [](Run& r, Text t, Given) { return r.Made(Upper(t)); });
  if (name == "lower") return bind("", [](Run& r, Text t, Given) { return r.Made(Lower(t)); });
  if (name == "title")
    return bind("", [](Run& r, Text t, Given) { return r.Made(PythonTitle(t)); });
  if (name == "capitalize")
    return bind("", [](Run& r, Text t, Given) { return r.Made(Capitalized(t)); });
  if (name == "replace") {
    return bind("old new count", [](Run& r, Text t, Given a) {
      const int64_t most = IntegerArgument(r, a, 2, "count", -1);
      return r.Made(
          Replaced(r, t, StringArgument(r, a, 0, "old"), StringArgument(r, a, 1, "new"), most));
    });
  }
  if (name == "find")
    return bind("sub start end", [](Run& r, Text t, Given a) { return Find(r, t, a); });
  if (name == "count")
    return bind("sub start end", [](Run& r, Text t, Given a) { return Count(r, t, a); });
  if (name == "join") {
    return bind("iterable", [](Run& r, Text t, Given a) {
      const Value* items = a.Get(0, "iterable");
      if (items == nullptr) r.Refuse("join without values", "a list");
      std::string made;
      bool is_first = true;
      for (const Value& item : r.Items(*items)) {
        if (item.AsString() == nullptr)
          r.Refuse("join of a " + std::string(item.TypeName()), "strings");
        r.ChargeElement(made.size() + t.size() + item.AsString()->size());
        if (!std::exchange(is_first, false)) made.append(t);
        made.append(*item.AsString());
      }
      return r.Made(std::move(made));
    });
  }
  if (name == "splitlines")
    return bind("keepends", [](Run& r, Text t, Given a) { return Lines(r, t, a); });
  const auto all = [&](bool (*is)(uint32_t)) {
    return Bound(name, "", [held, is](Run& run, const Arguments&) {
      run.Charge(held->size());
      bool holds = !held->empty();
      ForEachCharacter(*held, [&](uint32_t c, std::string_view) { holds = holds && is(c); });
      return Value::Of(holds);
    });
  };
  if (name == "isdigit") return all(IsPythonDigit);
  if (name == "isspace") return all(IsPythonSpace);
  return Value::Missing(name);
}

Value DictMethod(const Value& of, const std::shared_ptr<Dict>& held, std::string_view name) {
  if (name == "items") {
    return Bound(
        name, "",
        [held](Run& run, const Arguments&) {
          List items;
          for (const auto& [key, value] : held->members) {
            run.Charge();
            items.push_back(Value::Of(List{key, value}, true));
          }
          return Value::Of(std::move(items), Value::View::kSized);
        },
        of);
  }
  if (name == "keys" || name == "values") {
    const bool is_keys = name == "keys";
    return Bound(
        name, "",
        [held, is_keys](Run& run, const Arguments&) {
          List items;
          for (const auto& [key, value] : held->members) {
            run.Charge();
            items.push_back(is_keys ? key : value);
          }
          return Value::Of(std::move(items), Value::View::kSized);
        },
        of);
  }
  if (name == "get") {
    return Bound(
        name, "key default",
        [held](Run& run, const Arguments& arguments) {
          const Value* key = arguments.Get(0, "key");
          if (key == nullptr) run.Refuse("get without a key", "a key");
          const Value* found = held->Find(run, *key);
          if (found != nullptr) return *found;
          const Value* otherwise = arguments.Get(1, "default");
          return otherwise == nullptr ? Value() : *otherwise;
        },
        of);
  }
  return Value::Missing(name);
}

Value ListMethod(const Value& of, const std::shared_ptr<List>& held, std::string_view name) {
  if (name == "index" || name == "count") {
    const bool counts = name == "count";
    return Bound(
        name, "value",
        [held, counts](Run& run, const Arguments& arguments) {
          const Value* item = arguments.Get(0, "value");
          if (item == nullptr) run.Refuse("no value", "a value");
          if (counts) return Value::Of(CountOf(run, *held, *item));
          const size_t place = FindIn(run, *held, *item);
          if (place == held->size())
            run.Refuse("index of what the list does not have", "one of its items");
          return Value::Of(place);
        },
        of);
  }
  return Value::Missing(name);
}

Value Range(Run& run, const Arguments& arguments) {
  const size_t given = arguments.positional.size();
  if (given < 1 || given > 3) run.Refuse("range", "one to three integers");
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < given; ++i) {
    parts[given == 1 ? 1 : i] = IntegerArgument(run, arguments, i, "range", 0);
  }
  if (parts[2] == 0) run.Refuse("a range's step 0", "another number");
  const auto low = static_cast<double>(parts[0]);
  const double count = (static_cast<double>(parts[1]) - low) / static_cast<double>(parts[2]);
  constexpr double kMost = 100000;  // Jinja's sandbox has the same
  if (count > kMost) run.Refuse("a longer range", "at most 100000 numbers");
  List items;
  for (int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1];) {
    run.Charge();
    items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, parts[2], &i)) break;
  }
  return Value::Of(std::move(items), Value::View::kSized);
}

Value MakeDict(Run& run, const Arguments& arguments, bool is_namespace) {
  Dict members;
  for (const Value& given : arguments.positional) {
    if (given.AsDict() == nullptr)
      run.Refuse("dict of a " + std::string(given.TypeName()), "a dict");
    for (const auto& [key, value] : given.AsDict()->members) members.Set(run, key, value);
  }
  for (const auto& [name, value] : arguments.named) members.Set(run, Value::Of(name), value);
  return Value::Of(std::move(members), is_namespace);
}

Value StrftimeNow(Run& run, const Arguments& arguments) {
  const std::string& format = StringArgument(run, arguments, 0, "format");
  if (format.size() > 1024) run.Refuse("a longer format", "at most 1024 bytes");
  run.Charge(2048);  // it takes microseconds
  if (format.find('\0') != std::string::npos) run.Refuse("a format with U+0000", "text without");
  const auto seconds = static_cast<std::time_t>(run.seconds().value_or(std::time(nullptr)));
  std::tm time = {};
  if (gmtime_r(&seconds, &time) == nullptr) {
    run.Refuse("the time " + std::to_string(seconds), "seconds of a year that 32 bits hold");
  }
  // A mark at the end, because an empty text and one without room look the same.
  std::string made(16384, '\0');
  const size_t size = std::strftime(made.data(), made.size(), (format + "|").c_str(), &time);
  if (size == 0) run.Refuse("a format of more than 16 KiB", "a shorter one");
  made.resize(size - 1);
  return run.Made(std::move(made));
}

}  // namespace

Value Run::Method(const Value& value, std::string_view name) {
  if (const auto* text = value.As<Value::String>()) return StringMethod(*text, name);
  if (const auto* mapping = value.As<Value::Mapping>()) {
    return mapping->is_namespace ? Value::Missing(name) : DictMethod(value, mapping->members, name);
  }
  if (const auto* sequence = value.As<Value::Sequence>())
    return ListMethod(value, sequence->items, name);
  return Value::Missing(name);
}

Value GlobalFunction(std::string_view name) {
  if (name == "range") return Bound(name, "start stop step", Range);
  if (name == "strftime_now") return Bound(name, "format", StrftimeNow);
  if (name == "raise_exception") {
    return Bound(name, "message", [](Run& run, const Arguments& arguments) -> Value {
      const Value* message = arguments.Get(0, "message");
      run.Refuse(message == nullptr ? "an exception" : ToText(run, *message),
                 "a conversation that the template takes");
    });
  }
  const bool is_namespace = name == "namespace";
  return Bound(name, nullptr, [is_namespace](Run& run, const Arguments& arguments) {
    return MakeDict(run, arguments, is_namespace);
  });
}

}  // namespace sluice::text::jinja
