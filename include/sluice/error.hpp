// The one exception of the library. It is thrown for what a caller passed, before any row is
// touched; trouble inside a row is a RowStatus.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace sluice {

enum class ErrorCode : uint8_t {
  kInvalidValue,  // a value is outside its allowed range
  kInvalidType,   // a dtype or device is not the one the function takes
  kUnavailable,   // a backend or feature is not present in this build or on this machine
  kExhausted,     // no room now; the same call may succeed later
};

// what() reads "top_p = 1.5 is not allowed: (0, 1]", and "missing prompt: a text" where the value
// is empty: nothing was given. The three parts are also accessible one by one, so that a server can
// answer {"param": "top_p"} without parsing text.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string parameter, std::string value, std::string allowed);

  ErrorCode code() const noexcept { return code_; }
  const std::string& parameter() const noexcept { return parameter_; }
  const std::string& value() const noexcept { return value_; }
  const std::string& allowed() const noexcept { return allowed_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string parameter_;
  std::string value_;
  std::string allowed_;
  std::string message_;
};

}  // namespace sluice
