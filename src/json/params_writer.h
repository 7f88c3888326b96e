// The fields of a parameter object. Header only, so that other writers of JSON can have them in an
// object of their own; WriteParams is the whole object.
#pragma once

#include <algorithm>
#include <set>

#include "json/profile_switches.h"
#include "json/writer.h"
#include "sluice/params.hpp"

namespace sluice {

class ParamsWriter {
 public:
  explicit ParamsWriter(JsonWriter& json) : json_(json) {}

  // Lists that are empty and options that are unset are left out.
  void WriteFields(const SamplingParams& params) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) Field(json, params.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) Field(json, params.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  if (params.name.has_value()) Field(json, *params.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) Field(json, params.name);
#define SLUICE_LIST_PARAM(type, name, json, help) Field(json, params.name);
#include "sluice/params.def"
  }

 private:
  template <typename T>
  void Field(const char* name, const T& value) {
    json_.Key(name);
    Value(value);
  }
  void Field(const char* name, const TokenIds& ids) {
    if (ids.empty()) return;
    json_.Key(name);
    Value(ids);
  }
  void Field(const char* name, const OptionalTokenIds& ids) {
    if (!ids.has_value()) return;
    json_.Key(name);
    Value(*ids);
  }
  void Field(const char* name, const TokenSequences& words) {
    if (words.empty()) return;
    json_.Key(name).Array([&] {
      for (const TokenIds& word : words) Value(word);
    });
  }
  void Field(const char* name, const BiasEntries& entries) {
    if (entries.empty()) return;
    json_.Key(name);
    std::set<int32_t> ids;
    for (const BiasEntry& entry : entries) ids.insert(entry.id);
    // The order of entries matters where an id has several; an object would not keep them all.
    if (ids.size() < entries.size()) {
      json_.Array([&] {
        for (const BiasEntry& entry : entries) {
          json_.Array([&] {
            json_.Value(entry.id);
            json_.Value(entry.bias);
          });
        }
      });
    } else {
      json_.Object([&] {
        for (const BiasEntry& entry : entries) json_.Key(Number(entry.id)).Value(entry.bias);
      });
    }
  }

  void Value(float value) { json_.Value(value); }
  void Value(int32_t value) { json_.Value(value); }
  void Value(uint64_t value) { json_.Value(value); }
  void Value(DrawMethod value) { json_.Value(Name(value)); }
  void Value(DraftMode value) { json_.Value(Name(value)); }
  void Value(LogprobMode value) { json_.Value(Name(value)); }
  void Value(const TokenIds& ids) {
    json_.Array([&] {
      for (const int32_t id : ids) json_.Value(id);
    });
  }
  void Value(const Profile& profile) {
    const auto* named = std::find_if(std::begin(kProfiles), std::end(kProfiles),
                                     [&](const NamedProfile& n) { return n.profile == profile; });
    if (named != std::end(kProfiles)) {
      json_.Value(named->name);
      return;
    }
    json_.Object([&] {
      for (const ProfileSwitch& s : kProfileSwitches) {
        json_.Key(s.name).Value(s.values[s.get(profile) ? 1 : 0]);
      }
    });
  }

  JsonWriter& json_;
};

}  // namespace sluice
