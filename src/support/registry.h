// Which backends this build and machine have, and which one a call runs on.
#pragma once

#include "sluice/execution.hpp"

namespace sluice {

// kAuto resolved: the one that SLUICE_BACKEND names, else the fastest available. Throws Error with
// kUnavailable when this machine lacks the backend.
Backend ResolveBackend(Backend requested);

}  // namespace sluice
