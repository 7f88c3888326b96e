// Values of a template: Python's, as far as templates need them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/chat_text.hpp"

namespace sluice::text::jinja {

class Value;
class Run;

using List = std::vector<Value>;

struct Undefined {
  std::string name;  // what was looked for, or the beginning of it
};
struct None {};

// Keeps the order in which members came.
struct Dict {
  std::vector<std::pair<Value, Value>> members;

  // Each charges the run for the members that it goes through.
  const Value* Find(Run& run, const Value& key) const;
  const Value* Find(Run& run, std::string_view key) const;
  void Set(Run& run, Value key, Value value);
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at that place or of that name; null when it was not given.
  const Value* Get(size_t place, std::string_view name) const;
};

// `parameters` are the names of a call's arguments, with a space between them; a question mark
// makes one optional, and a slash before them says that they go by their place only.
struct Function {
  std::string name;
  std::function<Value(Run&, const Arguments&)> call;
  const char* parameters = nullptr;  // null: it looks at its arguments itself
  bool is_macro = false;
};

class Value {
 public:
  using String = std::shared_ptr<const std::string>;
  // No list in Python, which would have another text: a range, a dict's view, and what a filter
  // gives out item by item, once.
  enum class View : uint8_t { kNone, kRange, kDict, kOnce };
  struct Sequence {
    std::shared_ptr<List> items;
    bool is_tuple = false;
    View view = View::kNone;
    bool is_group = false;  // a tuple of groupby, with names for its items
  };
  struct Mapping {
    std::shared_ptr<Dict> members;
    bool is_namespace = false;
  };
  // What cycler() makes: gives its items in turns.
  struct Cycler {
    List items;
    size_t place = 0;
  };
  using Data = std::variant<Undefined, None, bool, int64_t, double, String, Sequence, Mapping,
                            std::shared_ptr<const Function>, std::shared_ptr<Cycler>>;

  Value() : data_(None{}) {}
  explicit Value(Data data) : data_(std::move(data)) {}
  static Value Missing(std::string_view name);
  static Value Of(bool value) { return Value(Data(value)); }
  static Value Of(int64_t value) { return Value(Data(value)); }
  static Value Of(size_t value) { return Value(Data(static_cast<int64_t>(value))); }
  static Value Of(double value) { return Value(Data(value)); }
  static Value Of(std::string value) {
    return Value(Data(std::make_shared<const std::string>(std::move(value))));
  }
  // With its origin; Of(std::string) is foreign.
  static Value Of(ChatText value, bool is_markup = false);
  // Markup is text that is HTML already: what is joined to it is escaped.
  static Value Text(std::string value, bool is_markup);
  // These hold other values; throws when they are nested too deeply to be taken apart again.
  static Value Of(List items, bool is_tuple = false);
  static Value Of(List items, View view);
  static Value Of(Dict members, bool is_namespace = false);
  static Value OfGroup(Value name, Value items);
  static Value OfCycler(List items);
  // A method of `held`, which it keeps.
  static Value Of(Function function, const Value& held = {});

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  bool IsUndefined() const { return As<Undefined>() != nullptr; }
  bool IsNone() const { return As<None>() != nullptr; }
  bool IsNumber() const {
    return As<bool>() != nullptr || As<int64_t>() != nullptr || As<double>() != nullptr;
  }
  bool IsInteger() const { return As<bool>() != nullptr || As<int64_t>() != nullptr; }
  bool IsView(View view) const {
    const Sequence* sequence = As<Sequence>();
    return sequence != nullptr && sequence->view == view;
  }
  bool IsMarkup() const { return is_markup_; }
  bool IsTuple() const {
    const Sequence* sequence = As<Sequence>();
    return sequence != nullptr && sequence->is_tuple;
  }
  const std::string* AsString() const {
    const String* text = As<String>();
    return text == nullptr ? nullptr : text->get();
  }
  // Of a string: the bytes that the template wrote itself.
  std::span<const TextSpan> Own() const {
    return own_ == nullptr ? std::span<const TextSpan>() : *own_;
  }
  List* AsList() const {
    const Sequence* sequence = As<Sequence>();
    return sequence == nullptr ? nullptr : sequence->items.get();
  }
  // A namespace has members too, and is no dict otherwise.
  Dict* AsMembers() const {
    const Mapping* mapping = As<Mapping>();
    return mapping == nullptr ? nullptr : mapping->members.get();
  }
  Dict* AsDict() const {
    const Mapping* mapping = As<Mapping>();
    return mapping == nullptr || mapping->is_namespace ? nullptr : mapping->members.get();
  }

  int64_t Integer() const;  // of IsInteger()
  double Real() const;      // of IsNumber()
  bool IsTrue() const;
  std::string_view TypeName() const;  // as Python says it

  // Whether a namespace is in it: one in another could make a circle.
  bool HoldsNamespace() const { return holds_namespace_; }

 private:
  void Holds(const Value& other);

  Data data_;
  std::shared_ptr<const std::vector<TextSpan>> own_;  // null: none
  bool holds_namespace_ = false;
  bool is_markup_ = false;
  uint16_t depth_ = 0;  // of the values that it holds
};

// What is shared many times is gone through as often: these charge the run for what they visit.
bool IsEqual(Run& run, const Value& a, const Value& b);
size_t CountOf(Run& run, const List& list, const Value& value);
// Its place; the size when the list has none.
size_t FindIn(Run& run, const List& list, const Value& value);

std::string ToText(Run& run, const Value& value);    // str()
std::string ReprText(Run& run, const Value& value);  // repr()
std::string AsciiText(std::string_view repr);        // ascii(), of a repr

struct JsonStyle {
  std::optional<std::string> indent = {};  // none: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool has_separators = false;  // they were given
  bool ascii_only = false;
  bool sort_keys = false;
};
void AppendJson(Run& run, const Value& value, const JsonStyle& style, int64_t depth,
                std::string& text);

// Characters of valid UTF-8: their number, those from one place to another, all.
size_t CountCharacters(std::string_view text);
std::string_view CharactersFrom(std::string_view text, size_t begin, size_t end);
std::vector<std::string_view> Characters(std::string_view text);

}  // namespace sluice::text::jinja
