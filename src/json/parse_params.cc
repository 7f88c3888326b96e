// Reads JSON with simdjson's On-Demand parser: a field is converted from its own characters, so an
// error can name it, and a float is rounded once. Fields that are no parameters are walked through,
// so that what is no JSON there is an error as well.
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "json/params_json.h"
#include "json/profile_switches.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/number.h"

namespace sluice {
namespace {

using Json = simdjson::ondemand::value;
using semantics::Range;
using simdjson::ondemand::json_type;

constexpr int kDeepest = 64;  // of what is skipped; parameters are at most three deep

[[noreturn]] void ThrowMalformed(simdjson::error_code error) {
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

std::string_view Trimmed(std::string_view token) {
  const size_t last = token.find_last_not_of(" \t\r\n");
  return token.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// What an error shows of a text that may be long.
std::string Shown(std::string_view text) {
  constexpr size_t kLongest = 40;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kLongest;  // not in the middle of a character
  while (end > 0 && (static_cast<unsigned char>(text[end]) >> 6) == 2) --end;
  return std::string(text.substr(0, end)).append("...");
}

std::string Shown(Json value) {
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

// A value by the name of its field, which errors give.
class FieldReader {
 public:
  FieldReader(std::string_view name, Json value) : name_(name), value_(value) {}

  void Read(float& to, const Range& range) { to = FloatOf(value_, range); }
  void Read(int32_t& to, const Range& range) { to = IntegerOf<int32_t>(value_, range); }
  template <typename T>
  void Read(std::optional<T>& to, const Range& range) {
    to = IntegerOf<T>(value_, range);
  }

  void Read(DrawMethod& to) { to = Named(DrawMethodByName); }
  void Read(DraftMode& to) { to = Named(DraftModeByName); }
  void Read(LogprobMode& to) { to = Named(LogprobModeByName); }
  void Read(Profile& to) {
    if (TypeOf(value_) != json_type::object) {
      to = Named(ProfileByName);
      return;
    }
    to = Profile{};
    std::set<std::string_view> seen;
    ForEachField([&](const std::string& name, Json value) {
      const ProfileSwitch& found = SwitchByName(name);
      if (!seen.insert(found.name).second) Refuse(Quoted(name) + " twice", "each switch once");
      const bool is_text = TypeOf(value) == json_type::string;
      const std::string shown = is_text ? "" : Shown(value);
      const std::string_view position = is_text ? Get(value.get_string()) : std::string_view();
      if (position != found.values[0] && position != found.values[1]) {
        ThrowInvalid(std::string(name_).append(".").append(name),
                     is_text ? Quoted(position) : shown,
                     Quoted(found.values[0]) + " or " + Quoted(found.values[1]));
      }
      found.set(to, position == found.values[1]);
    });
  }

  void Read(TokenIds& to) { to = IdsOf(value_); }
  void Read(OptionalTokenIds& to) { to = IdsOf(value_); }
  void Read(TokenSequences& to) {
    to.clear();
    ForEachElement(value_, "a list of lists of token ids",
                   [&](Json word) { to.push_back(IdsOf(word)); });
  }
  void Read(BiasEntries& to) {
    constexpr const char* kPairs = "pairs of a token id and a number";
    to.clear();
    if (TypeOf(value_) == json_type::object) {
      std::set<int32_t> seen;
      ForEachField([&](const std::string& key, Json value) {
        const int32_t id = IdOfKey(key);
        if (!seen.insert(id).second) Refuse(Quoted(key) + " twice", "each token id once");
        to.push_back({id, FloatOf(value, kAnyFloat)});
      });
      return;
    }
    ForEachElement(value_, "an object from token ids to numbers", [&](Json pair) {
      BiasEntry entry;
      int place = 0;
      ForEachElement(pair, kPairs, [&](Json part) {
        if (place == 2) Refuse("a longer list", kPairs);
        if (place == 0) entry.id = IntegerOf<int32_t>(part, kIds);
        if (place == 1) entry.bias = FloatOf(part, kAnyFloat);
        ++place;
      });
      if (place != 2) Refuse("a shorter list", kPairs);
      to.push_back(entry);
    });
  }

 private:
  static constexpr Range kIds{0, 2147483647, false};
  static constexpr Range kAnyFloat{-0x1.fffffep+127, 0x1.fffffep+127, false};

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

  template <typename Use>
  void ForEachField(Use use) {
    for (auto result : Get(value_.get_object())) {
      auto field = Get(std::move(result));
      const std::string name(Get(field.unescaped_key()));
      use(name, field.value());
    }
  }

  float FloatOf(Json value, const Range& range) const {
    const std::string allowed = "a number in " + TextOf<float>(range);
    if (TypeOf(value) != json_type::number) Refuse(Shown(value), allowed);
    const std::string_view text = Trimmed(value.raw_json_token());
    double wide = 0;
    if (value.get_double().get(wide) != simdjson::SUCCESS) Refuse(Shown(text), allowed);
    float number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) number = static_cast<float>(wide);  // below or above all floats
    if (!range.Contains(static_cast<double>(number))) Refuse(Shown(text), allowed);
    return number;
  }

  template <typename T>
  T IntegerOf(Json value, const Range& range) const {
    const std::string allowed = "a whole number in " + TextOf<T>(range);
    if (TypeOf(value) != json_type::number) Refuse(Shown(value), allowed);
    const std::string_view text = Trimmed(value.raw_json_token());
    double wide = 0;
    if (value.get_double().get(wide) != simdjson::SUCCESS) Refuse(Shown(text), allowed);
    T number = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last) {  // 1.0, 1e2, or no such number
      const bool is_exact = std::floor(wide) == wide && std::abs(wide) <= 0x1p53;
      if (!is_exact || !range.Contains(wide)) Refuse(Shown(text), allowed);
      return static_cast<T>(wide);
    }
    if (!range.Contains(static_cast<double>(number))) Refuse(Shown(text), allowed);
    return number;
  }

  TokenIds IdsOf(Json value) const {
    TokenIds ids;
    ForEachElement(value, "a list of token ids",
                   [&](Json id) { ids.push_back(IntegerOf<int32_t>(id, kIds)); });
    return ids;
  }

  int32_t IdOfKey(const std::string& key) const {
    int32_t id = -1;
    const char* last = key.data() + key.size();
    const auto [end, error] = std::from_chars(key.data(), last, id);
    if (error != std::errc() || end != last || id < 0) {
      Refuse(Quoted(key), "a whole number in " + TextOf<int32_t>(kIds) + " as a key");
    }
    return id;
  }

  const ProfileSwitch& SwitchByName(const std::string& name) const {
    std::string known;
    for (const ProfileSwitch& s : kProfileSwitches) {
      if (s.name == name) return s;
      known.append(known.empty() ? "" : ", ").append(s.name);
    }
    Refuse(Quoted(name), "the switches " + known);
  }

  // A name, by the function that knows them all. Its error names the field of the struct.
  template <typename T>
  T Named(T (*by_name)(std::string_view)) {
    if (TypeOf(value_) != json_type::string) {
      try {
        by_name("");
      } catch (const Error& error) {
        Refuse(Shown(value_), error.allowed());
      }
    }
    const std::string_view name = Get(value_.get_string());
    try {
      return by_name(name);
    } catch (const Error& error) {
      Refuse(Quoted(name), error.allowed());
    }
  }

  std::string_view name_;
  Json value_;
};

// Walks through a value that nobody reads.
void Skip(Json value, int depth) {
  if (depth > kDeepest) ThrowInvalid("json", "deeper nesting", "at most 64 levels");
  switch (Get(value.type())) {
    case json_type::object:
      for (auto result : Get(value.get_object())) {
        auto field = Get(std::move(result));
        Get(field.unescaped_key());
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

// Reads the parameter of that name; false when there is none.
bool ReadField(std::string_view name, Json value, SamplingParams& params) {
#define SLUICE_SELECT_PARAM(type, field, default_value, range, json, help) \
  if (name == json) return FieldReader(json, value).Read(params.field, range), true;
#define SLUICE_REQUEST_PARAM(type, field, default_value, range, json, help) \
  if (name == json) return FieldReader(json, value).Read(params.field, range), true;
#define SLUICE_OPTIONAL_PARAM(type, field, range, json, help) \
  if (name == json) return FieldReader(json, value).Read(params.field, range), true;
#define SLUICE_CHOICE_PARAM(type, field, default_value, json, help) \
  if (name == json) return FieldReader(json, value).Read(params.field), true;
#define SLUICE_LIST_PARAM(type, field, json, help) \
  if (name == json) return FieldReader(json, value).Read(params.field), true;
#include "sluice/params.def"
  return false;
}

bool IsParameter(std::string_view name) {
#define SLUICE_SELECT_PARAM(type, field, default_value, range, json, help) \
  if (name == json) return true;
#define SLUICE_REQUEST_PARAM(type, field, default_value, range, json, help) \
  if (name == json) return true;
#define SLUICE_OPTIONAL_PARAM(type, field, range, json, help) \
  if (name == json) return true;
#define SLUICE_CHOICE_PARAM(type, field, default_value, json, help) \
  if (name == json) return true;
#define SLUICE_LIST_PARAM(type, field, json, help) \
  if (name == json) return true;
#include "sluice/params.def"
  return false;
}

}  // namespace

ParsedParams ParseParams(std::string_view json, const SamplingParams& base) {
  ParsedParams parsed{base, {}};
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(json);
  auto document = Get(parser.iterate(padded));
  if (Get(document.type()) != json_type::object) {
    ThrowInvalid("json", "no object", "one JSON object in UTF-8");
  }
  std::set<std::string, std::less<>> seen;
  for (auto result : Get(document.get_object())) {
    auto field = Get(std::move(result));
    const std::string name(Get(field.unescaped_key()));
    Json value = field.value();
    if (!IsParameter(name)) {
      Skip(value, 2);
      if (seen.insert(name).second) parsed.unknown.push_back(name);
      continue;
    }
    if (!seen.insert(name).second) ThrowInvalid(name, "given twice", "each field once");
    if (Get(value.type()) == json_type::null) {
      Skip(value, 2);
    } else {
      ReadField(name, value, parsed.params);
    }
  }
  if (document.current_location().error() == simdjson::SUCCESS) {
    ThrowInvalid("json", "text behind the object", "one JSON object in UTF-8");
  }
  return parsed;
}

}  // namespace sluice
