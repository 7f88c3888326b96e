// /tokenize and /detokenize.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/routes.h"

namespace sluice::server {

// Throws ApiFailure for a request that cannot be. A long one is answered by and by.
std::unique_ptr<Answer> Tokenize(Exchange& exchange, const ServerState& state,
                                 LoopServices& services);
std::unique_ptr<Answer> Detokenize(Exchange& exchange, const ServerState& state,
                                   LoopServices& services);

// Throws ApiFailure, 404, unless it is empty or one of the server's.
void CheckModelName(const std::string& name, const ServerState& state);

}  // namespace sluice::server
