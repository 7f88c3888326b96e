#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace sluice::server {

// A number for the address of the other end of a socket: that of a network of 64 bits for IPv6,
// where one client has them all. 0: this machine.
uint64_t PeerOf(int fd);
uint64_t PeerOf(const sockaddr_storage& name);

}  // namespace sluice::server
