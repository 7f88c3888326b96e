// The methods of papers, in a header of their own: few files need it.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice::python {

void BindClusterHead(nanobind::module_& module);

}  // namespace sluice::python
