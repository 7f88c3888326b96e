// Numbers that Python passes in: one, or one a row. A number that its type cannot hold is an Error,
// never another number.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sluice::python {

namespace nb = nanobind;

// Whole numbers that an argument takes.
struct IntRange {
  int64_t low = 0;
  uint64_t high = 0;
};
template <typename T>
constexpr IntRange RangeOf() {
  return {static_cast<int64_t>(std::numeric_limits<T>::min()),
          static_cast<uint64_t>(std::numeric_limits<T>::max())};
}

// Python's int and float, numpy's numbers and arrays without axes. False for anything else.
bool IsNumber(nb::handle object);

double GetReal(std::string_view name, nb::handle object);
// The bits of a signed or unsigned number in `range`.
uint64_t GetInteger(std::string_view name, nb::handle object, IntRange range);

template <typename T>
T GetNumber(std::string_view name, nb::handle object, IntRange range = RangeOf<T>()) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(GetReal(name, object));
  } else {
    return static_cast<T>(GetInteger(name, object, range));
  }
}

// One number an element of an array or a sequence of any length: double or the bits of an integer.
std::vector<double> GetReals(std::string_view name, nb::handle object);
std::vector<uint64_t> GetIntegers(std::string_view name, nb::handle object, IntRange range);

// A list of token ids, say: any whole numbers that an int32 holds.
std::vector<int32_t> GetInts(std::string_view name, nb::handle object);

// Throws unless there is one value a row.
void CheckOneARow(std::string_view name, size_t size, int64_t rows);

// set(row, value) for every row.
template <typename T, typename Set>
void ForEachRowValue(std::string_view name, nb::handle object, int64_t rows, IntRange range,
                     Set&& set) {
  const auto each = [&](const auto& values) {
    CheckOneARow(name, values.size(), rows);
    for (size_t row = 0; row < values.size(); ++row) set(row, static_cast<T>(values[row]));
  };
  if constexpr (std::is_floating_point_v<T>) {
    each(GetReals(name, object));
  } else {
    each(GetIntegers(name, object, range));
  }
}

}  // namespace sluice::python
