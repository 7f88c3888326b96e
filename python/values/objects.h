// Which of the module's own classes a Python object is, and the path that it is.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace sluice::python {

// The T inside, or null. (For nb::try_cast None is a T as well, one that is null.)
template <typename T>
T* ObjectIn(nanobind::handle object) {
  T* inside = nullptr;
  return nanobind::try_cast(object, inside) ? inside : nullptr;
}

// A path from a str, bytes or pathlib.Path.
inline std::string PathFrom(nanobind::handle path) {
  const auto made = nanobind::cast<nanobind::bytes>(
      nanobind::module_::import_("os").attr("fsencode")(nanobind::borrow(path)));
  return {static_cast<const char*>(made.data()), made.size()};
}

}  // namespace sluice::python
