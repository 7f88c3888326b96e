// sluice::Error on its way to Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // how text is converted: every file has to agree
#include <nanobind/stl/string_view.h>

#include <string>
#include <string_view>

#include "sluice/error.hpp"

namespace sluice::python {

namespace nb = nanobind;

// From now on an Error that leaves a bound function is the class of sluice/errors.py for its code.
void RegisterErrors();

[[noreturn]] void ThrowValue(std::string_view parameter, std::string value, std::string allowed);
[[noreturn]] void ThrowType(std::string_view parameter, std::string value, std::string allowed);

// What an object is called in an Error: its repr when that is short, else its type.
std::string Describe(nb::handle object);

}  // namespace sluice::python
