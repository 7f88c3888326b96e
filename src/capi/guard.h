// Where exceptions stop: every function of the C interface runs its body in here.
#pragma once

#include <string>

#include "sluice/c/base.h"

namespace sluice::capi {

// A callback of the caller that reported failure. Not an Error: no argument was wrong.
struct CallbackFailed {
  std::string message;
};

// The status of the exception being handled; keeps its text for sluice_last_error.
sluice_status StatusOfCurrentException() noexcept;

template <typename Body>
sluice_status Guarded(Body&& body) noexcept {
  try {
    body();
    return SLUICE_OK;
  } catch (...) {
    return StatusOfCurrentException();
  }
}

}  // namespace sluice::capi
