// The planes inside a sluice.CertifiedHead, for what puts them elsewhere.
#pragma once

#include <nanobind/nanobind.h>

#include "sluice/certified_head.hpp"

namespace sluice::python {

const CertifiedHead& CertifiedHeadOf(nanobind::handle head);

}  // namespace sluice::python
