// What options of a server may be.
#pragma once

#include "sluice/server.hpp"

namespace sluice::server {

// Throws Error naming the first that cannot be.
void CheckServerOptions(const ServerOptions& options);

}  // namespace sluice::server
