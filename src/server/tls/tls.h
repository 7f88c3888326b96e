// TLS of a listener's connections: a certificate that can be replaced, and a session for each
// connection. A session works on a socket and never waits. In a build without OpenSSL the
// constructor throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

namespace sluice::server {

class TlsSession {
 public:
  enum class Result : uint8_t {
    kDone,
    kNeedsInput,
    kNeedsRoom,  // to write
    kEnd,        // the peer sends no more
    kFailed,     // errno says why, or is EPROTO
  };

  virtual ~TlsSession() = default;

  // Called until it is kDone; before that nothing can be read or written.
  virtual Result Handshake() = 0;
  virtual bool is_open() const = 0;  // the handshake is over
  // One record at most. `count` is what came or went.
  virtual Result Read(char* to, size_t size, size_t& count) = 0;
  // After kNeedsRoom the same bytes are given again, and maybe more.
  virtual Result Write(const char* from, size_t size, size_t& count) = 0;
  virtual void Close() = 0;  // says to the peer that nothing follows, if that takes no wait
};

class TlsContext {
 public:
  // Both are PEM: a certificate and those that signed it, and the key of the first. Throws Error
  // naming tls_cert or tls_key.
  TlsContext(std::string_view certificates, std::string_view key);
  ~TlsContext();

  // For handshakes from now on; from any thread. Throws as the constructor, and changes nothing
  // then.
  void Replace(std::string_view certificates, std::string_view key);
  // On a connection that does not block. Throws std::bad_alloc.
  std::unique_ptr<TlsSession> Open(int fd) const;

 private:
  struct Certificate;
  static std::shared_ptr<const Certificate> Load(std::string_view certificates,
                                                 std::string_view key);

  mutable std::mutex mutex_;
  std::shared_ptr<const Certificate> certificate_;
};

}  // namespace sluice::server
