// What engines and clients say about themselves, as dicts.
#pragma once

#include <nanobind/nanobind.h>

#include "sluice/client.hpp"
#include "sluice/engine_messages.hpp"

namespace sluice::python {

namespace nb = nanobind;

nb::dict InfoOf(const EngineInfo& info);
nb::dict CountersOf(const ClientCounters& counters);
nb::dict CountersOf(const EngineCounters& counters);

}  // namespace sluice::python
