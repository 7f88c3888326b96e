#include "python/errors.h"

#include <array>
#include <exception>
#include <utility>

namespace sluice::python {
namespace {

// In the order of ErrorCode.
constexpr std::array<const char*, 4> kClasses = {"Error", "ArgumentTypeError", "UnavailableError",
                                                 "ExhaustedError"};

// "seed.size", as arrays call it, for the "seed.size()" of C++.
std::string PythonName(std::string parameter) {
  constexpr std::string_view kCall = ".size()";
  if (parameter.ends_with(kCall)) parameter.resize(parameter.size() - 2);
  return parameter;
}

void Translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object type =
        nb::module_::import_("sluice.errors").attr(kClasses[static_cast<size_t>(error.code())]);
    const nb::object value = type(PythonName(error.parameter()), error.value(), error.allowed());
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

}  // namespace

void RegisterErrors() { nb::register_exception_translator(Translate); }

void ThrowValue(std::string_view parameter, std::string value, std::string allowed) {
  throw Error(ErrorCode::kInvalidValue, std::string(parameter), std::move(value),
              std::move(allowed));
}

void ThrowType(std::string_view parameter, std::string value, std::string allowed) {
  throw Error(ErrorCode::kInvalidType, std::string(parameter), std::move(value),
              std::move(allowed));
}

std::string Describe(nb::handle object) {
  constexpr size_t kShort = 40;
  const bool is_plain = PyUnicode_Check(object.ptr()) || PyLong_Check(object.ptr()) ||
                        PyFloat_Check(object.ptr()) || object.is_none();
  if (is_plain) {
    // Python refuses to write an int of more than 4300 digits.
    nb::object text = nb::steal(PyObject_Repr(object.ptr()));
    if (text.is_valid()) {
      const std::string repr = nb::cast<std::string>(text);
      if (repr.size() <= kShort) return repr;
      return repr.substr(0, kShort).append("...");
    }
    PyErr_Clear();
  }
  return std::string("a ").append(nb::type_name(nb::handle(object.type())).c_str());
}

}  // namespace sluice::python
