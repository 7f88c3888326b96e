// A socket that listens, at an address and a port or at a path.
#pragma once

#include <cstdint>
#include <string>

#include "server/http/listener.h"
#include "sluice/server.hpp"

namespace sluice::server {

class ListenSocket {
 public:
  // Throws Error naming `host`, `port` or `unix_socket`. `first` is another one of this program at
  // the same address, or null: it has the port or the path already.
  ListenSocket(const ListenAddress& address, const HttpLimits& limits, const ListenSocket* first);
  ~ListenSocket();  // closes it, and removes the path
  ListenSocket(const ListenSocket&) = delete;
  ListenSocket& operator=(const ListenSocket&) = delete;

  int fd() const { return fd_; }
  uint16_t port() const { return port_; }
  void Close();

 private:
  void ListenAtPort(const ListenAddress& address, const HttpLimits& limits, bool is_shared);
  void ListenAtPath(const std::string& path);

  int fd_ = -1;
  uint16_t port_ = 0;
  std::string path_;  // to be removed
};

}  // namespace sluice::server
