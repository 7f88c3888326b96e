// Whether a server can listen where it is asked to, said in words before it tries.
#pragma once

#include "sluice/server.hpp"

namespace sluice::cli {

struct ListenPlace {
  std::string text;       // "127.0.0.1:8080", "unix:PATH"
  bool is_local = false;  // only this machine reaches it
};

// Binds and lets go again. Throws Error naming `host`, `port` or `unix_socket`: the threads of a
// server share their port, so that without this a second server would share it as well.
ListenPlace CheckCanListen(const ServerOptions& options);

}  // namespace sluice::cli
