// Fields that are no parameters are walked through, so that what is no JSON there is an error as
// well.
#include <set>

#include "json/params_json.h"
#include "json/profile_switches.h"
#include "json/read_param.h"

namespace sluice {
namespace {

using json::Get;
using json::Json;
using json::json_type;
using json::kAnyFloat;
using json::kIds;
using json::Range;
using json::Shown;
using json::Skip;

class FieldReader : public json::ValueReader {
 public:
  using ValueReader::ValueReader;

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
  int32_t IdOfKey(const std::string& key) const {
    int32_t id = -1;
    const char* last = key.data() + key.size();
    const auto [end, error] = std::from_chars(key.data(), last, id);
    if (error != std::errc() || end != last || id < 0) {
      Refuse(Quoted(key), "a whole number in " + json::TextOf<int32_t>(kIds) + " as a key");
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

  // A name, by the function that lists them all. Its error names the field of the struct.
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
};

}  // namespace

bool json::IsParam(std::string_view name) {
  return std::ranges::find(kParamNames, name) != std::end(kParamNames);
}

bool json::ReadParam(std::string_view name, Json value, SamplingParams& params) {
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

ParsedParams ParseParams(std::string_view json, const SamplingParams& base) {
  ParsedParams parsed{base, {}};
  std::set<std::string, std::less<>> seen;
  json::ForEachFieldOf(json, [&](const std::string& name, Json value) {
    if (!json::IsParam(name)) {
      Skip(value, 2);
      if (seen.insert(name).second) parsed.unknown.push_back(name);
      return;
    }
    if (!seen.insert(name).second) ThrowInvalid(name, "given twice", "each field once");
    if (Get(value.type()) == json_type::null) {
      Skip(value, 2);
    } else {
      json::ReadParam(name, value, parsed.params);
    }
  });
  return parsed;
}

}  // namespace sluice
