// Stage 1: are the parameters of a row in their ranges? The ranges stand in params.def alone.
#pragma once

#include "semantics/host_device.h"
#include "sluice/params.hpp"

namespace sluice::semantics {

struct Range {
  double low;
  double high;
  bool low_is_open;

  SLUICE_HD bool Contains(double value) const {  // false for NaN
    return (low_is_open ? value > low : value >= low) && value <= high;
  }
};

#define SLUICE_CLOSED(low, high) \
  ::sluice::semantics::Range { low, high, false }
#define SLUICE_OPEN_CLOSED(low, high) \
  ::sluice::semantics::Range { low, high, true }

SLUICE_HD inline bool AreValid(const SelectParams& params, const Limits& limits) {
  bool valid = params.temperature <= limits.max_temperature;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  valid = valid && range.Contains(static_cast<double>(params.name));
#include "sluice/params.def"
  return valid;
}

}  // namespace sluice::semantics
