// Arguments of filters, methods and functions, with their names and number checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

// Refuses what is no integer; `otherwise` is for one that is not given.
inline int64_t IntegerArgument(const Run& run, const Arguments& arguments, size_t place,
                               std::string_view name, int64_t otherwise = 0) {
  const Value* value = arguments.Get(place, name);
  if (value == nullptr) return otherwise;
  if (!value->IsInteger()) run.Refuse("the argument " + std::string(name), "an integer");
  return value->Integer();
}

inline const std::string& StringArgument(const Run& run, const Arguments& arguments, size_t place,
                                         std::string_view name) {
  const Value* value = arguments.Get(place, name);
  if (value == nullptr || value->AsString() == nullptr) {
    run.Refuse("the argument " + std::string(name), "a string");
  }
  return *value->AsString();
}

inline bool FlagArgument(const Arguments& arguments, size_t place, std::string_view name,
                         bool otherwise = false) {
  const Value* value = arguments.Get(place, name);
  return value == nullptr ? otherwise : value->IsTrue();
}

// The argument, or null where it is none or not given.
inline const Value* GivenArgument(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* value = arguments.Get(place, name);
  return value == nullptr || value->IsNone() ? nullptr : value;
}

}  // namespace sluice::text::jinja
