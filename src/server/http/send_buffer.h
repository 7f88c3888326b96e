// Bytes on their way to a socket: heads and whole bodies, or a stream in pieces. A piece is
// appended where it is sent from: room for the header of its chunk is kept before it and filled
// when the piece is closed, so header and piece go out in one send() and nothing is copied.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::server {

class TlsSession;

class SendBuffer {
 public:
  enum class Sent : uint8_t { kAll, kBlocked, kFailed };

  void Append(std::string_view bytes);  // not while a piece is open

  // Opens a piece: what is appended to text() until ClosePiece. An empty one is not sent.
  void OpenPiece(bool is_chunk);
  void ClosePiece();
  void DropPiece();
  std::string& text() { return bytes_; }

  // The bytes that are closed and not sent.
  size_t unsent() const { return ready_ - sent_; }

  // One send() of all of that, without waiting; a second one only after a signal. `count` is what
  // it took. After kFailed errno says why.
  Sent Send(int fd, size_t& count);
  // Writes them as records of TLS, as many as go without waiting.
  Sent Send(TlsSession& tls, size_t& count);

  size_t capacity() const { return bytes_.capacity(); }

 private:
  void Forget();  // what is sent

  std::string bytes_;
  size_t sent_ = 0;
  size_t ready_ = 0;     // to here it may be sent
  size_t piece_at_ = 0;  // where the open piece begins, after the header of its chunk
  bool is_open_ = false;
  bool is_chunk_ = false;
};

}  // namespace sluice::server
