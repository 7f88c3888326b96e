// The status of one row. Trouble with one row is a value, never an exception: a row with a status
// yields token -1 and touches no neighbour.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

// In order of precedence: a row with several kinds of trouble reports the largest value. There is
// room between the values for kinds to come.
enum class RowStatus : uint8_t {
  kOk = 0,
  kEmptySupport = 16,  // every token is masked
  kPosInfInput = 32,   // an unmasked value is +inf after the adjustments
  kNanInput = 48,      // an unmasked value is NaN after the adjustments
  kBadParam = 64,      // a parameter of this row is out of range
};

constexpr std::string_view Name(RowStatus status) {
  switch (status) {
    case RowStatus::kOk:
      return "ok";
    case RowStatus::kEmptySupport:
      return "empty_support";
    case RowStatus::kPosInfInput:
      return "pos_inf_input";
    case RowStatus::kNanInput:
      return "nan_input";
    case RowStatus::kBadParam:
      return "bad_param";
  }
  return "unknown";
}

}  // namespace sluice
