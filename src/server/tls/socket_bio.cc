#include "server/tls/socket_bio.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace sluice::server {
namespace {

SocketBio& SocketOf(BIO* bio) { return *static_cast<SocketBio*>(BIO_get_data(bio)); }

bool IsLater() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// A message that says it is too long is refused before there is any room for it.
bool IsHelloTooLong(SocketBio& socket, const char* bytes, size_t size) {
  const size_t count = std::min(size, socket.hello.size() - socket.hello_size);
  if (count == 0) return false;
  std::copy_n(bytes, count, socket.hello.begin() + static_cast<std::ptrdiff_t>(socket.hello_size));
  socket.hello_size += count;
  if (socket.hello_size < socket.hello.size()) return false;
  const size_t length =
      size_t{socket.hello[6]} << 16 | size_t{socket.hello[7]} << 8 | socket.hello[8];
  return length > kMostHelloBytes;
}

int Read(BIO* bio, char* to, size_t size, size_t* count) {
  BIO_clear_retry_flags(bio);
  SocketBio& socket = SocketOf(bio);
  const ssize_t got = ::recv(socket.fd, to, size, MSG_DONTWAIT);
  if (got > 0) {
    *count = static_cast<size_t>(got);
    if (!IsHelloTooLong(socket, to, *count)) return 1;
    errno = EPROTO;
    return 0;
  }
  if (got == 0) {
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  } else if (IsLater()) {
    BIO_set_retry_read(bio);
  }
  return 0;
}

int Write(BIO* bio, const char* from, size_t size, size_t* count) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(SocketOf(bio).fd, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) {
    *count = static_cast<size_t>(sent);
    return 1;
  }
  if (sent < 0 && (IsLater() || errno == ENOBUFS || errno == ENOMEM)) BIO_set_retry_write(bio);
  return 0;
}

long Control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  return command == BIO_CTRL_EOF && BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
}

BIO_METHOD* MakeMethod() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read_ex(method, Read);
  BIO_meth_set_write_ex(method, Write);
  BIO_meth_set_ctrl(method, Control);
  return method;
}

}  // namespace

BIO* NewSocketBio(SocketBio& socket) {
  static BIO_METHOD* const method = MakeMethod();  // for the whole life of the program
  BIO* const bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace sluice::server
