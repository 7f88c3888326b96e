// Values of parameters on their way from and to Python: one overload a type of params.def.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "sluice/params.hpp"

namespace sluice::python {

namespace nb = nanobind;

// What params.def calls a range.
struct ParamRange {
  double low;
  double high;
  bool low_is_open;
};
#define SLUICE_CLOSED(low, high) \
  ParamRange { static_cast<double>(low), static_cast<double>(high), false }
#define SLUICE_OPEN_CLOSED(low, high) \
  ParamRange { static_cast<double>(low), static_cast<double>(high), true }

// By the names of params.def's choices. Throws Error. Whole numbers outside the range are refused
// here, because C++ could not hold them all; the rest of the ranges is left to Validate.
void FromPython(std::string_view name, nb::handle value, int32_t& to, const ParamRange& range);
void FromPython(std::string_view name, nb::handle value, float& to, const ParamRange&);
void FromPython(std::string_view name, nb::handle value, std::optional<int32_t>& to,
                const ParamRange& range);
void FromPython(std::string_view name, nb::handle value, std::optional<uint64_t>& to,
                const ParamRange&);
void FromPython(std::string_view name, nb::handle value, float& to);
void FromPython(std::string_view name, nb::handle value, DrawMethod& to);
void FromPython(std::string_view name, nb::handle value, DraftMode& to);
void FromPython(std::string_view name, nb::handle value, LogprobMode& to);
void FromPython(std::string_view name, nb::handle value, Profile& to);
void FromPython(std::string_view name, nb::handle value, TokenIds& to);
void FromPython(std::string_view name, nb::handle value, OptionalTokenIds& to);
void FromPython(std::string_view name, nb::handle value, TokenSequences& to);
void FromPython(std::string_view name, nb::handle value, BiasEntries& to);

// Reals as the shortest decimal that is the same fp32: 0.8, not 0.800000011920929.
nb::object ToPython(float value);
nb::object ToPython(int32_t value);
nb::object ToPython(uint64_t value);
nb::object ToPython(DrawMethod value);
nb::object ToPython(DraftMode value);
nb::object ToPython(LogprobMode value);
nb::object ToPython(const Profile& value);
nb::object ToPython(const TokenIds& value);
nb::object ToPython(const TokenSequences& value);
nb::object ToPython(const BiasEntries& value);
template <typename T>
nb::object ToPython(const std::optional<T>& value) {
  return value.has_value() ? ToPython(*value) : nb::none();
}

}  // namespace sluice::python
