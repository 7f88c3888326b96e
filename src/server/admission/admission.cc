#include "server/admission/admission.h"

#include <string>

#include "server/api/api_error.h"

namespace sluice::server {

Admission::Admission(int64_t max_requests, size_t keys, int64_t max_per_key)
    : max_requests_(max_requests),
      max_per_key_(max_per_key),
      of_key_(std::make_unique<std::atomic<int64_t>[]>(keys)) {}

Admission::Permit Admission::Admit(std::optional<size_t> key) {
  Permit permit;
  permit.all_ = &in_flight_;
  if (in_flight_.fetch_add(1, std::memory_order_relaxed) >= max_requests_) {
    throw ApiFailure(Unavailable("the server has " + std::to_string(max_requests_) +
                                 " requests in flight and takes no more"));
  }
  if (key.has_value() && max_per_key_ > 0) {
    permit.key_ = &of_key_[*key];
    if (permit.key_->fetch_add(1, std::memory_order_relaxed) >= max_per_key_) {
      throw ApiFailure({.status = 429,
                        .message = "this key has " + std::to_string(max_per_key_) +
                                   " requests in flight, as many as it may",
                        .type = "rate_limit_error",
                        .code = "rate_limit_exceeded",
                        .retry_after_seconds = 1});
    }
  }
  return permit;
}

}  // namespace sluice::server
