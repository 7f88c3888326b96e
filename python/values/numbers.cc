#include "python/values/numbers.h"

#include <cstring>
#include <string>

#include "python/errors.h"
#include "python/values/arrays.h"

namespace sluice::python {
namespace {

std::string RangeText(IntRange range) {
  return "[" + std::to_string(range.low) + ", " + std::to_string(range.high) + "]";
}

bool Contains(IntRange range, bool is_negative, uint64_t bits) {
  if (is_negative) return static_cast<int64_t>(bits) >= range.low;
  return bits <= range.high && (range.low <= 0 || bits >= static_cast<uint64_t>(range.low));
}

// Every element of an array with one axis, as T; `make(bits or value, is_negative)`.
template <typename T, typename Make>
std::vector<T> ReadArray(std::string_view name, const Array& array, Make make) {
  array.CheckOnHost(name);
  array.CheckDims(name, 1, 1);
  std::vector<T> values(static_cast<size_t>(array.shape(0)));
  const auto read = [&](auto zero) {
    using From = decltype(zero);
    const From* from = static_cast<const From*>(array.data());
    for (size_t i = 0; i < values.size(); ++i) {
      From value;  // copied, because numpy lets arrays start at any byte
      std::memcpy(&value, from + static_cast<int64_t>(i) * array.stride(0), sizeof value);
      values[i] = make(value);
    }
  };
  switch (array.element()) {
    case Element::kI8:
      read(int8_t{});
      break;
    case Element::kI16:
      read(int16_t{});
      break;
    case Element::kI32:
      read(int32_t{});
      break;
    case Element::kI64:
      read(int64_t{});
      break;
    case Element::kU8:
      read(uint8_t{});
      break;
    case Element::kU16:
      read(uint16_t{});
      break;
    case Element::kU32:
      read(uint32_t{});
      break;
    case Element::kU64:
      read(uint64_t{});
      break;
    case Element::kF32:
      if constexpr (std::is_same_v<T, double>) read(float{});
      break;
    case Element::kF64:
      if constexpr (std::is_same_v<T, double>) read(double{});
      break;
    default:
      break;
  }
  return values;
}

std::string DTypeOf(const Array& array) {
  return array.element() == Element::kOther ? array.dtype_name()
                                            : std::string(Name(array.element()));
}

bool IsInteger(Element element) { return element >= Element::kI8 && element <= Element::kU64; }

// An array or a sequence, and not text.
std::optional<Array> OpenList(std::string_view name, nb::handle object, std::string_view allowed) {
  const bool is_text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  if (!is_text) {
    std::optional<Array> array = Array::Open(name, object, Access::kRead);
    if (array.has_value() || PySequence_Check(object.ptr())) return array;
  }
  ThrowType(name, Describe(object), std::string(allowed));
}

}  // namespace

bool IsNumber(nb::handle object) {
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) return true;
  if (PyUnicode_Check(object.ptr()) || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    return false;
  }
  if (!PyNumber_Check(object.ptr())) return false;
  const nb::object ndim = nb::getattr(object, "ndim", nb::none());
  return ndim.is_none() || (PyLong_Check(ndim.ptr()) && nb::cast<int>(ndim) == 0);
}

double GetReal(std::string_view name, nb::handle object) {
  if (PyFloat_CheckExact(object.ptr())) return PyFloat_AsDouble(object.ptr());
  if (!IsNumber(object)) ThrowType(name, Describe(object), "a number, or one a row");
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();  // an int beyond the doubles, or a type that changed its mind
    ThrowValue(name, Describe(object), "a number that a float holds");
  }
  return value;
}

uint64_t GetInteger(std::string_view name, nb::handle object, IntRange range) {
  nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    ThrowType(name, Describe(object), "a whole number, or one a row");
  }
  int overflow = 0;
  const int64_t value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  bool fits = overflow == 0 && Contains(range, value < 0, static_cast<uint64_t>(value));
  uint64_t bits = static_cast<uint64_t>(value);
  if (overflow > 0) {
    bits = PyLong_AsUnsignedLongLong(number.ptr());
    fits = !PyErr_Occurred() && Contains(range, false, bits);
    PyErr_Clear();
  }
  if (!fits) ThrowValue(name, Describe(number), RangeText(range));
  return bits;
}

std::vector<double> GetReals(std::string_view name, nb::handle object) {
  constexpr std::string_view kAllowed = "a number, or one a row";
  const std::optional<Array> array = OpenList(name, object, kAllowed);
  if (array.has_value()) {
    const Element element = array->element();
    if (element != Element::kF32 && element != Element::kF64 && !IsInteger(element)) {
      ThrowType(std::string(name).append(".dtype"), DTypeOf(*array), "float32, float64 or integer");
    }
    return ReadArray<double>(name, *array, [](auto value) { return static_cast<double>(value); });
  }
  std::vector<double> values;
  for (const nb::handle element : object) values.push_back(GetReal(name, element));
  return values;
}

std::vector<uint64_t> GetIntegers(std::string_view name, nb::handle object, IntRange range) {
  constexpr std::string_view kAllowed = "a whole number, or one a row";
  const std::optional<Array> array = OpenList(name, object, kAllowed);
  if (array.has_value()) {
    if (!IsInteger(array->element())) {
      ThrowType(std::string(name).append(".dtype"), DTypeOf(*array), "an integer type");
    }
    return ReadArray<uint64_t>(name, *array, [&](auto value) {
      if constexpr (std::is_integral_v<decltype(value)>) {
        const auto bits = static_cast<uint64_t>(value);
        const bool is_negative = std::is_signed_v<decltype(value)> && value < 0;
        if (!Contains(range, is_negative, bits)) {
          ThrowValue(name, std::to_string(value), RangeText(range));
        }
        return bits;
      } else {
        return uint64_t{0};
      }
    });
  }
  std::vector<uint64_t> values;
  for (const nb::handle element : object) values.push_back(GetInteger(name, element, range));
  return values;
}

std::vector<int32_t> GetInts(std::string_view name, nb::handle object) {
  const std::vector<uint64_t> values = GetIntegers(name, object, RangeOf<int32_t>());
  std::vector<int32_t> ints(values.size());
  for (size_t i = 0; i < values.size(); ++i) ints[i] = static_cast<int32_t>(values[i]);
  return ints;
}

void CheckOneARow(std::string_view name, size_t size, int64_t rows) {
  if (static_cast<int64_t>(size) == rows) return;
  ThrowValue(std::string(name).append(".size()"), std::to_string(size),
             "one for all rows or one a row, " + std::to_string(rows));
}

}  // namespace sluice::python
