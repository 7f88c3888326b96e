// Which of the module's own classes a Python object is.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice::python {

// The T inside, or null. (For nb::try_cast None is a T as well, one that is null.)
template <typename T>
T* ObjectIn(nanobind::handle object) {
  T* inside = nullptr;
  return nanobind::try_cast(object, inside) ? inside : nullptr;
}

}  // namespace sluice::python
