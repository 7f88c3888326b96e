// A JSON value by the name of its field, which errors give: what params_json.h and request_json.h
// read with.
//
// Over simdjson's On-Demand parser: a field is converted from its own characters, so an error can
// show them, and a float is rounded once.
#pragma once

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "semantics/validate.h"
#include "support/check.h"
#include "support/number.h"

namespace sluice::json {

using Json = simdjson::ondemand::value;
using semantics::Range;
using simdjson::ondemand::json_type;

inline constexpr int kDeepest = 64;  // of what is skipped; what is read is at most three deep

[[noreturn]] inline void ThrowMalformed(simdjson::error_code error) {
  ThrowInvalid("json",
               std::string("malformed (").append(simdjson::error_message(error)).append(")"),
               "one JSON object in UTF-8");
}

template <typename T>
T Get(simdjson::simdjson_result<T> result) {
  T value;
  if (const auto error = std::move(result).get(value); error != simdjson::SUCCESS) {
    ThrowMalformed(error);
  }
  return value;
}

// The name of a field. From simdjson 3.2 on its method takes whether wrong UTF-16 may be replaced.
template <typename Field>
std::string_view NameOf(Field& field) {
  if constexpr (requires { field.unescaped_key(); }) {
    return Get(field.unescaped_key());
  } else {
    return Get(field.unescaped_key(false));
  }
}

inline std::string_view Trimmed(std::string_view token) {
  const size_t last = token.find_last_not_of(" \t\r\n");
  return token.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// The part that an error shows of a text that may be long.
inline std::string Shown(std::string_view text) {
  constexpr size_t kLongest = 40;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;  // not in the middle of a character
  while (end > 0 && (static_cast<unsigned char>(text[end]) >> 6) == 2) --end;
  return std::string(text.substr(0, end)).append("...");
}

inline std::string Shown(Json value) {
  switch (Get(value.type())) {
    case json_type::object:
      return "an object";
    case json_type::array:
      return "a list";
    default:
      return Shown(Trimmed(value.raw_json_token()));
  }
}

template <typename T>
std::string TextOf(const Range& range) {
  std::string text = range.low_is_open ? "(" : "[";
  text.append(ToText(range.low)).append(", ");
  // 2^64 - 1 has no double of its own.
  const bool is_widest = std::is_same_v<T, uint64_t> && range.high >= 0x1p64;
  return text.append(is_widest ? Number(std::numeric_limits<uint64_t>::max()) : ToText(range.high))
      .append("]");
}

inline constexpr Range kIds{0, 2147483647, false};
inline constexpr Range kAnyFloat{-0x1.fffffep+127, 0x1.fffffep+127, false};

// The same as a value with another name is another reader.
class ValueReader {
 public:
  ValueReader(std::string_view name, Json value) : name_(name), value_(value) {}

  template <typename T>
  T Integer(const Range& range) const {
    return IntegerOf<T>(value_, range);
  }
  float Float(const Range& range) const { return FloatOf(value_, range); }
  std::vector<int32_t> Ids() const { return IdsOf(value_); }
  bool Boolean() const {
    if (TypeOf(value_) != json_type::boolean) Refuse(Shown(value_), "true or false");
    Json value = value_;
    return Get(value.get_bool());
  }
  std::string Text() const { return TextOfString(value_); }
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    ForEachElement(value_, "a list of texts",
                   [&](Json text) { texts.push_back(TextOfString(text)); });
    return texts;
  }

  // use(name, value): of each field of an object. Every field must be used or skipped.
  template <typename Use>
  void ForEachField(Use use) const {
    if (TypeOf(value_) != json_type::object) Refuse(Shown(value_), "an object");
    Json object = value_;
    for (auto result : Get(object.get_object())) {
      auto field = Get(std::move(result));
      const std::string name(NameOf(field));
      use(name, field.value());
    }
  }

 protected:
  [[noreturn]] void Refuse(std::string value, std::string allowed) const {
    ThrowInvalid(name_, std::move(value), std::move(allowed));
  }

  static json_type TypeOf(Json value) { return Get(value.type()); }
  static std::string Quoted(std::string_view text) {
    return std::string("\"").append(Shown(text)).append("\"");
  }

  template <typename Use>
  void ForEachElement(Json value, const char* allowed, Use use) const {
    if (TypeOf(value) != json_type::array) Refuse(Shown(value), allowed);
    for (auto element : Get(value.get_array())) use(Get(std::move(element)));
  }

  std::string TextOfString(Json value) const {
    if (TypeOf(value) != json_type::string) Refuse(Shown(value), "a text");
    return std::string(Get(value.get_string()));
  }

  float FloatOf(Json value, const Range& range) const {
    const auto allowed = [&] { return "a number in " + TextOf<float>(range); };
    if (TypeOf(value) != json_type::number) Refuse(Shown(value), allowed());
    const std::string_view text = Trimmed(value.raw_json_token());
    double wide = 0;
    if (value.get_double().get(wide) != simdjson::SUCCESS) Refuse(Shown(text), allowed());
    float number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) number = static_cast<float>(wide);  // below or above all floats
    if (!range.Contains(static_cast<double>(number))) Refuse(Shown(text), allowed());
    return number;
  }

  template <typename T>
  T IntegerOf(Json value, const Range& range) const {
    const auto allowed = [&] { return "a whole number in " + TextOf<T>(range); };
    if (TypeOf(value) != json_type::number) Refuse(Shown(value), allowed());
    // Most are written plainly: lists of ids are long, and this way takes a fifth of the time.
    int64_t plain = 0;
    if (value.get_int64().get(plain) == simdjson::SUCCESS && std::in_range<T>(plain) &&
        range.Contains(static_cast<double>(plain))) {
      return static_cast<T>(plain);
    }
    const std::string_view text = Trimmed(value.raw_json_token());
    double wide = 0;
    if (value.get_double().get(wide) != simdjson::SUCCESS) Refuse(Shown(text), allowed());
    T number = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last) {  // 1.0, 1e2, or no such number
      const bool is_exact = std::floor(wide) == wide && std::abs(wide) <= 0x1p53;
      if (!is_exact || !range.Contains(wide)) Refuse(Shown(text), allowed());
      return static_cast<T>(wide);
    }
    if (!range.Contains(static_cast<double>(number))) Refuse(Shown(text), allowed());
    return number;
  }

  std::vector<int32_t> IdsOf(Json value) const {
    std::vector<int32_t> ids;
    ForEachElement(value, "a list of token ids",
                   [&](Json id) { ids.push_back(IntegerOf<int32_t>(id, kIds)); });
    return ids;
  }

  std::string_view name_;
  Json value_;
};

// Walks through a value that has no reader, so that what is no JSON there is an error as well.
inline void Skip(Json value, int depth) {
  if (depth > kDeepest) ThrowInvalid("json", "deeper nesting", "at most 64 levels");
  switch (Get(value.type())) {
    case json_type::object:
      for (auto result : Get(value.get_object())) {
        auto field = Get(std::move(result));
        NameOf(field);
        Skip(field.value(), depth + 1);
      }
      return;
    case json_type::array:
      for (auto element : Get(value.get_array())) Skip(Get(std::move(element)), depth + 1);
      return;
    case json_type::string:
      Get(value.get_string());
      return;
    case json_type::number: {
      // A whole number of any length is JSON.
      const std::string_view text = Trimmed(value.raw_json_token());
      const size_t sign = text.starts_with('-') ? 1 : 0;
      const bool is_long = text.size() > sign + 1 && text[sign] != '0' &&
                           text.find_first_not_of("0123456789", sign) == std::string_view::npos;
      if (is_long) return;
      Get(value.get_double());
      return;
    }
    case json_type::boolean:
      Get(value.get_bool());
      return;
    case json_type::null:
      if (!Get(simdjson::simdjson_result<bool>(value.is_null())))
        ThrowMalformed(simdjson::N_ATOM_ERROR);
      return;
  }
}

// The fields of a text that is one JSON object and nothing else.
template <typename Use>
void ForEachFieldOf(std::string_view json, Use use) {
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(json);
  auto document = Get(parser.iterate(padded));
  if (Get(document.type()) != json_type::object) {
    ThrowInvalid("json", "no object", "one JSON object in UTF-8");
  }
  for (auto result : Get(document.get_object())) {
    auto field = Get(std::move(result));
    const std::string name(NameOf(field));
    use(name, field.value());
  }
  if (document.current_location().error() == simdjson::SUCCESS) {
    ThrowInvalid("json", "text after the object", "one JSON object in UTF-8");
  }
}

}  // namespace sluice::json
