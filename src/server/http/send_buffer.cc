#include "server/http/send_buffer.h"

#include <sys/socket.h>

#include <cerrno>

#include "server/tls/tls.h"

namespace sluice::server {
namespace {

// Leading zeros are allowed (RFC 9112, 7.1), and eight digits hold any piece.
constexpr std::string_view kChunkHeader = "00000000\r\n";
constexpr size_t kDigits = 8;
// Bytes that an empty buffer keeps: more than a token's events need, less than 24 KiB a stream.
constexpr size_t kMostKept = size_t{8} << 10;

}  // namespace

void SendBuffer::Append(std::string_view bytes) {
  bytes_.append(bytes);
  ready_ = bytes_.size();
}

void SendBuffer::OpenPiece(bool is_chunk) {
  if (is_chunk) bytes_.append(kChunkHeader);
  piece_at_ = bytes_.size();
  is_chunk_ = is_chunk;
  is_open_ = true;
}

void SendBuffer::ClosePiece() {
  const size_t size = bytes_.size() - piece_at_;
  if (size == 0) return DropPiece();
  if (is_chunk_) {
    char* digit = bytes_.data() + piece_at_ - kChunkHeader.size() + kDigits;
    for (size_t rest = size; rest > 0; rest >>= 4) *--digit = "0123456789abcdef"[rest & 15];
    bytes_.append("\r\n");
  }
  ready_ = bytes_.size();
  is_open_ = false;
}

void SendBuffer::DropPiece() {
  bytes_.resize(ready_);
  is_open_ = false;
}

SendBuffer::Sent SendBuffer::Send(int fd, size_t& count) {
  count = 0;
  while (sent_ < ready_) {
    const ssize_t sent =
        ::send(fd, bytes_.data() + sent_, ready_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM
                 ? Sent::kBlocked
                 : Sent::kFailed;
    }
    count = static_cast<size_t>(sent);
    sent_ += count;
    break;
  }
  const bool is_all = sent_ == ready_;
  Forget();
  return is_all ? Sent::kAll : Sent::kBlocked;
}

SendBuffer::Sent SendBuffer::Send(TlsSession& tls, size_t& count) {
  count = 0;
  auto result = TlsSession::Result::kDone;
  while (sent_ < ready_ && result == TlsSession::Result::kDone) {
    size_t written = 0;
    result = tls.Write(bytes_.data() + sent_, ready_ - sent_, written);
    count += written;
    sent_ += written;
  }
  const bool is_all = sent_ == ready_;
  Forget();
  if (is_all) return Sent::kAll;
  return result == TlsSession::Result::kNeedsRoom ? Sent::kBlocked : Sent::kFailed;
}

void SendBuffer::Forget() {
  if (sent_ == bytes_.size()) {
    bytes_.clear();
    sent_ = ready_ = 0;
    if (bytes_.capacity() > kMostKept) bytes_.shrink_to_fit();
  } else if (sent_ > bytes_.size() / 2) {
    bytes_.erase(0, sent_);
    ready_ -= sent_;
    piece_at_ -= sent_;
    sent_ = 0;
  }
}

}  // namespace sluice::server
