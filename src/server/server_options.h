// The allowed options of a server.
#pragma once

#include <string>
#include <vector>

#include "sluice/server.hpp"

namespace sluice::server {

// Throws Error naming the first that cannot be.
void CheckServerOptions(const ServerOptions& options);

// Checks keys that replace others; needs_key: one at least, and else none.
void CheckApiKeys(const std::vector<std::string>& keys, bool needs_key);

// Listens where the server would, for a moment: what would keep it from that is known before an
// engine has been waited for. Throws Error naming `host`, `port` or `unix_socket`.
void CheckCanListen(const ServerOptions& options);

}  // namespace sluice::server
