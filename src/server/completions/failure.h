// What a client is told of an output that ends without a finish_reason.
#pragma once

#include "server/api/api_error.h"
#include "sluice/client.hpp"

namespace sluice::server {

// Ends that a response gives as its finish_reason; the others are failures.
bool HasFinishReason(GenerationEnd end);

ApiError FailureOf(const ClientOutput& output);

}  // namespace sluice::server
