#include "server/admission/admission.h"

#include <algorithm>
#include <string>

#include "server/api/api_error.h"

namespace sluice::server {
namespace {

ApiFailure TooMany(const Requester& requester, int64_t its, int64_t more, int64_t most) {
  return ApiFailure({.status = 429,
                     .message = std::string(requester.has_key ? "this key" : "this address") +
                                " has " + std::to_string(its) + " choices in flight and needs " +
                                std::to_string(more) + " more; it may have " +
                                std::to_string(most) + " now",
                     .type = "rate_limit_error",
                     .code = "rate_limit_exceeded",
                     .retry_after_seconds = 1});
}

// No later time is better, so that a client must not try again.
ApiFailure NeverFits(int64_t choices, int64_t most, std::string_view field) {
  return ApiFailure({.status = 400,
                     .message = "this request has " + std::to_string(choices) +
                                " choices, n for each prompt; this server takes at most " +
                                std::to_string(most) + " of one client",
                     .param = std::string(field)});
}

}  // namespace

int64_t Admission::MostOfOne(const Requester& requester) const {
  int64_t most = max_choices_;
  if (requester.has_key && max_per_key_ > 0) most = std::min(most, max_per_key_);
  return requester.shares ? std::min(most, std::max<int64_t>(1, max_choices_ / 2)) : most;
}

void Admission::Take(const Requester& requester, int64_t more, int64_t had,
                     std::string_view field) {
  if (more == 0) return;
  if (had + more > MostOfOne(requester)) {
    throw NeverFits(had + more, MostOfOne(requester), field);
  }
  const std::lock_guard lock(mutex_);
  const int64_t free = max_choices_ - in_flight_;
  if (more > free) {
    throw ApiFailure(Unavailable("the server takes " + std::to_string(max_choices_) +
                                 " choices at once; it has " + std::to_string(in_flight_) +
                                 ", and this request needs " + std::to_string(more) + " more"));
  }
  const auto [found, is_new] = of_requester_.try_emplace(requester.id, 0);
  int64_t& its = found->second;
  int64_t most = max_choices_;
  if (requester.has_key && max_per_key_ > 0) most = max_per_key_;
  // As many as are left with them: its + more <= free - more.
  if (requester.shares) most = std::min(most, std::max<int64_t>(1, (free + its) / 2));
  if (its + more > most) {
    const ApiFailure failure = TooMany(requester, its, more, most);
    if (is_new) of_requester_.erase(found);
    throw failure;
  }
  its += more;
  in_flight_ += more;
}

void Admission::GiveBack(uint64_t id, int64_t count) {
  const std::lock_guard lock(mutex_);
  in_flight_ -= count;
  const auto found = of_requester_.find(id);
  found->second -= count;
  if (found->second == 0) of_requester_.erase(found);
}

}  // namespace sluice::server
