#include "capi/guard.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "sluice/error.hpp"

namespace sluice::capi {
namespace {

struct LastError {
  std::string message;
  std::string parameter;
  std::string value;
  std::string allowed;
};

LastError& OfThisThread() {
  thread_local LastError last;
  return last;
}

constexpr int kFirstErrorCode = 1;
static_assert(kFirstErrorCode + static_cast<int>(ErrorCode::kInvalidValue) == SLUICE_INVALID_VALUE);
static_assert(kFirstErrorCode + static_cast<int>(ErrorCode::kInvalidType) == SLUICE_INVALID_TYPE);
static_assert(kFirstErrorCode + static_cast<int>(ErrorCode::kUnavailable) == SLUICE_UNAVAILABLE);
static_assert(kFirstErrorCode + static_cast<int>(ErrorCode::kExhausted) == SLUICE_EXHAUSTED);

sluice_status Keep(sluice_status status, LastError error) noexcept {
  OfThisThread() = std::move(error);
  return status;
}

// Short enough for a std::string to hold without an allocation.
LastError OutOfMemory() { return {"out of memory", {}, {}, {}}; }

}  // namespace

sluice_status StatusOfCurrentException() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return Keep(kFirstErrorCode + static_cast<sluice_status>(error.code()),
                  {error.what(), error.parameter(), error.value(), error.allowed()});
    } catch (const CallbackFailed& failed) {
      return Keep(SLUICE_CALLBACK_FAILED, {failed.message, {}, {}, {}});
    } catch (const std::bad_alloc&) {
      return Keep(SLUICE_OUT_OF_MEMORY, OutOfMemory());
    } catch (const std::length_error&) {  // a container of more bytes than there are addresses
      return Keep(SLUICE_OUT_OF_MEMORY, OutOfMemory());
    } catch (const std::exception& foreign) {
      // The library throws nothing else, so this came out of a callback written in C++.
      return Keep(SLUICE_CALLBACK_FAILED,
                  {std::string("a callback threw: ").append(foreign.what()), {}, {}, {}});
    } catch (...) {
      return Keep(SLUICE_CALLBACK_FAILED, {"a callback threw", {}, {}, {}});
    }
  } catch (...) {  // no memory for the text
    return Keep(SLUICE_OUT_OF_MEMORY, OutOfMemory());
  }
}

}  // namespace sluice::capi

using sluice::capi::OfThisThread;

const char* sluice_last_error() { return OfThisThread().message.c_str(); }
const char* sluice_last_error_parameter() { return OfThisThread().parameter.c_str(); }
const char* sluice_last_error_value() { return OfThisThread().value.c_str(); }
const char* sluice_last_error_allowed() { return OfThisThread().allowed.c_str(); }
