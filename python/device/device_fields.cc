// The layout of structs in device memory for Python, in every build.
#include <cstddef>

#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/keywords.h"
#include "python/values/numbers.h"
#include "python/values/params.h"
#include "sluice/cut.hpp"

namespace sluice::python {
namespace {

// sluice/tensors.py reads results as words of 32 and 64 bits.
static_assert(offsetof(Cut, upper) == 0 && offsetof(Cut, lower) == 4 &&
              offsetof(Cut, ties_dropped) == 8 && offsetof(Cut, ties_kept) == 12 &&
              offsetof(Cut, count) == 16 && offsetof(Cut, status) == 20 && sizeof(Cut) == 24);
static_assert(offsetof(TokenResult, id) == 0 && offsetof(TokenResult, status) == 4 &&
              offsetof(TokenResult, cut) == 16 && sizeof(TokenResult) == 40);
static_assert(offsetof(CutMass, kept) == 0 && offsetof(CutMass, total) == 8 &&
              offsetof(CutMass, margin) == 16 && sizeof(CutMass) == 24);

// The members of SelectParams and NoiseKey: name to kind.
nb::dict DeviceFields() {
  nb::dict fields;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  fields[#name] = SLUICE_PYTHON_TYPE_##type;
#include "sluice/params.def"
  fields["profile"] = "name";
  for (const char* name : {"seed", "position", "choice"}) fields[name] = "int";
  fields["stream"] = "name";
  return fields;
}

template <typename T>
nb::object ToNumpy(const auto& values) {
  const NewArray<T> array = MakeNumpy<T>({values.size()});
  for (size_t i = 0; i < values.size(); ++i) array.values[i] = static_cast<T>(values[i]);
  return array.object;
}

// Numbers of a sequence or an array, one a row, as a field takes them: float64, or the bits of
// int64.
nb::object RowValues(std::string_view name, nb::handle values) {
  IntRange range = RangeOf<int32_t>();
  if (name == "seed") range = RangeOf<uint64_t>();
  if (name == "position") range = RangeOf<uint32_t>();
  if (name == "choice") range = {0, (1 << 24) - 1};
  const nb::dict fields = DeviceFields();
  if (nb::cast<std::string_view>(fields[nb::cast(name)]) == "float") {
    return ToNumpy<double>(GetReals(name, values));
  }
  return ToNumpy<int64_t>(GetIntegers(name, values, range));
}

}  // namespace

void BindDeviceFields(nb::module_& module) {
  module.attr("SELECT_PARAMS_BYTES") = sizeof(SelectParams);
  module.attr("NOISE_KEY_BYTES") = sizeof(NoiseKey);
  module.attr("DEVICE_FIELDS") = DeviceFields();
  module.def("row_values", RowValues, nb::arg("name"), nb::arg("values"),
             nb::sig("def row_values(name: str, values: typing.Any) -> typing.Any"));
}

}  // namespace sluice::python
