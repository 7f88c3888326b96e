// The refusal of the operating system, as an Error.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "sluice/error.hpp"

namespace sluice {

// `what` could not be done; errno says why.
[[noreturn]] inline void ThrowSystemError(std::string what, int error = errno) {
  throw Error(ErrorCode::kUnavailable, std::move(what), std::generic_category().message(error),
              "what the operating system grants");
}

}  // namespace sluice
