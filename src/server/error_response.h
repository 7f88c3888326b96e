// Errors as responses.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "server/api/api_error.h"
#include "server/http/message.h"
#include "sluice/error.hpp"

namespace sluice::server {

inline HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response{.status = error.status,
                        .body = ErrorBody(error),
                        .error = std::make_shared<const ApiError>(error)};
  if (error.retry_after_seconds > 0) {
    response.fields.push_back({"Retry-After", std::to_string(error.retry_after_seconds)});
  }
  return response;
}

// The error of the exception that is being handled, for the client.
inline ApiError ErrorOfException() {
  try {
    throw;
  } catch (const ApiFailure& failure) {
    return failure.error();
  } catch (const Error& error) {
    return ToApiError(error);
  } catch (const std::bad_alloc&) {
    return Unavailable("there is no memory for this request");
  } catch (const std::exception& error) {
    return InternalError(error.what());
  }
}

}  // namespace sluice::server
