// The error of a failed request, for its client: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "sluice/error.hpp"

namespace sluice::server {

struct ApiError {
  int status = 400;
  std::string message = {};
  std::string type = "invalid_request_error";
  std::string param = {};       // empty: null
  std::string code = {};        // empty: null
  int retry_after_seconds = 0;  // above 0: the response has Retry-After
};

// Thrown while a request is read and checked.
class ApiFailure : public std::exception {
 public:
  explicit ApiFailure(ApiError error) : error_(std::move(error)) {}
  const ApiError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  ApiError error_;
};

// The library's Error, by its code: kInvalidValue and kInvalidType are 400 and name the parameter;
// kExhausted and kUnavailable are 503 with Retry-After.
ApiError ToApiError(const Error& error);
ApiError InternalError(std::string_view what);  // 500 server_error
ApiError Unavailable(std::string_view what);    // 503 service_unavailable, Retry-After

// A text in quotes that may show a part of an address or of a file that is not UTF-8.
void AppendQuotedAny(std::string& out, std::string_view text);

// The JSON above, without a line feed.
std::string ErrorBody(const ApiError& error);

}  // namespace sluice::server
