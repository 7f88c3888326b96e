// OpenSSL's access to a socket: without signals, without waits, and without handshakes of more than
// a bounded size.
#pragma once

#include <openssl/bio.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::server {

// The longest first message of a client. OpenSSL itself takes 128 KiB, and makes room for them when
// it has read that they come; those of clients have some hundred bytes.
inline constexpr size_t kMostHelloBytes = size_t{16} << 10;

// What a session's BIO has of its own; outlives it.
struct SocketBio {
  int fd = -1;
  // The head of the first record and of the message in it.
  std::array<uint8_t, 9> hello = {};
  size_t hello_size = 0;
};

// Owns nothing. Null without memory.
BIO* NewSocketBio(SocketBio& socket);

}  // namespace sluice::server
