// What the bindings of text share.
#pragma once

#include <string>
#include <vector>

#include "python/values/calls.h"
#include "python/values/numbers.h"

namespace sluice::python {

// One id, or any number of them. An id that no int32 holds is one that no vocabulary has.
inline std::vector<int32_t> GetTokens(const char* name, nb::handle object) {
  const auto id_of = [](uint64_t bits) {
    return bits > INT32_MAX ? -1 : static_cast<int32_t>(bits);  // a negative one has its high bits
  };
  constexpr IntRange kAny{INT64_MIN, UINT64_MAX};
  if (IsNumber(object)) return {id_of(GetInteger(name, object, kAny))};
  std::vector<int32_t> ids;
  for (const uint64_t bits : GetIntegers(name, object, kAny)) ids.push_back(id_of(bits));
  return ids;
}

inline nb::str TextOf(const std::string& text) { return nb::str(text.data(), text.size()); }

// Detokenizer, StopScanner and TextStream.
void BindTextStream(nb::module_& module);

}  // namespace sluice::python
