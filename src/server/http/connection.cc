#include "server/http/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "server/http/connection_set.h"
#include "server/http/peer.h"

namespace sluice::server {
namespace {

using boost::asio::posix::descriptor_base;

// Requests that came together are answered this many at a time; then other connections have a turn.
constexpr int kRequestsAtOnce = 32;
constexpr size_t kMostIdBytes = 128;
constexpr size_t kRecordBytes = size_t{16} << 10;  // of TLS, at most
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kLastChunk = "0\r\n\r\n";

bool IsUsableId(std::string_view id) {
  return !id.empty() && id.size() <= kMostIdBytes &&
         std::ranges::all_of(id, [](char c) { return c >= ' ' && c <= '~'; });
}

// Holds the connection, and waits in its memory.
template <typename Then>
struct WaitHandler {
  using allocator_type = HandlerAllocator<void>;
  allocator_type get_allocator() const noexcept { return allocator_type(*memory); }
  void operator()(const boost::system::error_code&) { then(*connection); }

  boost::intrusive_ptr<Connection> connection;
  HandlerMemory* memory;
  Then then;
};

}  // namespace

Connection::Connection(ConnectionSet& set, boost::asio::io_context& loop, int fd)
    : set_(set), fd_(fd), socket_(loop.get_executor(), fd), peer_(PeerOf(fd)) {
  request_.peer = peer_;
}

void Connection::Start() {
  awaits_tls_ = set_.tls() != nullptr;
  // The handshake has the time of a head, whatever it comes in.
  if (awaits_tls_) set_.EnterWait(*this, WaitKind::kHead);
  InEvent([] {});
  if (!is_closed_) WaitReadable();
}

bool Connection::IsIdle() const {
  return state_ == State::kReading && reader_ == nullptr && input_.empty();
}

void Connection::StopAfterExchange() {
  if (IsIdle()) Close(false);
}

void Connection::Close(bool resets) {
  if (is_closed_) return;
  is_closed_ = true;
  const boost::intrusive_ptr<Connection> self(this);
  if (!is_given_up_ && (state_ == State::kAnswering || out_.unsent() > 0)) {
    set_.counters().disconnects.fetch_add(1, std::memory_order_relaxed);
  }
  if (resets) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  if (tls_ != nullptr && !resets) tls_->Close();
  boost::system::error_code ignored;
  socket_.close(ignored);
  Deadlines::Leave(*this);
  set_.EndHandshake(*this);
  set_.Remove(*this);
  reader_.reset();
  std::exchange(answer_, nullptr).reset();
}

// --- events

template <typename Act>
void Connection::InEvent(Act act) {
  if (is_closed_) return;
  const boost::intrusive_ptr<Connection> self(this);
  is_in_event_ = true;
  try {
    act();
    Settle();
  } catch (const std::exception&) {  // no memory: of this connection nothing can be saved
    Close(true);
  }
  is_in_event_ = false;
}

void Connection::Settle() {
  for (int requests = 0; !is_closed_;) {
    if (is_lost_) return Close(true);
    switch (state_) {
      case State::kAnswering:
        if (!is_complete_) return;
        state_ = State::kSending;
        std::exchange(answer_, nullptr).reset();
        break;
      case State::kSending:
        if (out_.unsent() > 0) return;
        set_.PublishCounts();
        if (closes_ || set_.is_stopping()) return BeginLinger();
        BeginRequest();
        break;
      case State::kLingering:
        return;
      case State::kReading:
        if (input_.empty() || needs_more_) {
          if (is_half_closed_ || (IsIdle() && set_.is_stopping())) return Close(false);
          if (IsIdle() && !waits()) set_.EnterWait(*this, WaitKind::kIdle);
          return;
        }
        if (++requests > kRequestsAtOnce) return SettleLater();
        input_.erase(0, Read(input_));
        if (input_.empty()) input_.shrink_to_fit();
        break;
    }
  }
}

void Connection::SettleLater() {
  if (is_deferred_) return;
  set_.Defer(*this);
  is_deferred_ = true;
}

void Connection::OnDeferred() {
  is_deferred_ = false;
  InEvent([] {});
  if (is_closed_ || is_deferred_ || !std::exchange(reads_later_, false)) return;
  WaitReadable();
}

void Connection::OnDeadline() {
  InEvent([this] {
    switch (wait_kind()) {
      case WaitKind::kIdle:
      case WaitKind::kLinger:
        return Close(false);
      case WaitKind::kHead:
        if (awaits_tls_ || is_in_handshake()) {
          set_.counters().timeouts.fetch_add(1, std::memory_order_relaxed);
          return Close(true);
        }
        return Reject(408, "the head of the request took too long");
      case WaitKind::kWrite:
        return GiveUp();
      case WaitKind::kBody: {
        const std::chrono::duration<double> time = set_.limits().header_timeout;
        const double least =
            time.count() * static_cast<double>(set_.limits().body_bytes_per_second);
        const size_t bytes = reader_->body_bytes();
        if (static_cast<double>(bytes - std::exchange(body_bytes_at_check_, bytes)) < least) {
          return Reject(408, "the body of the request came too slowly");
        }
        return set_.EnterWait(*this, WaitKind::kBody);
      }
    }
  });
}

template <typename Then>
void Connection::Wait(descriptor_base::wait_type what, HandlerMemory& memory, Then then) {
  socket_.async_wait(what, WaitHandler<Then>{this, &memory, then});
}

void Connection::WaitReadable() {
  Wait(is_half_closed_ ? descriptor_base::wait_error : descriptor_base::wait_read, read_memory_,
       [](Connection& connection) { connection.OnReadable(); });
}

void Connection::WaitWritable() {
  if (std::exchange(waits_writable_, true)) return;
  Wait(descriptor_base::wait_write, write_memory_,
       [](Connection& connection) { connection.OnWritable(); });
}

void Connection::OnReadable() {
  if (is_closed_) return;
  if (is_deferred_) {
    reads_later_ = true;
    return;
  }
  InEvent([this] {
    if (!IsOpen()) return;
    auto& buffer = set_.input();
    const ssize_t size = Receive(buffer);
    if (size < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) OnReadError(errno);
    } else if (size == 0) {
      OnEndOfInput();
    } else {
      set_.counters().bytes_in.fetch_add(size, std::memory_order_relaxed);
      OnInput({buffer.data(), static_cast<size_t>(size)});
    }
  });
  if (is_closed_) return;
  if (is_deferred_) {
    reads_later_ = true;
  } else {
    WaitReadable();
  }
}

void Connection::OnWritable() {
  InEvent([this] {
    waits_writable_ = false;
    if (!IsOpen()) return;
    Send();
    if (!owes_room_ || !CanWrite() || out_.unsent() > set_.limits().coalesce_bytes) return;
    owes_room_ = false;
    answer_->OnRoom();
  });
}

ssize_t Connection::Receive(std::span<char> to) {
  // What comes after the response is thrown away as it is.
  if (tls_ == nullptr || state_ == State::kLingering) {
    return ::recv(fd_, to.data(), to.size(), MSG_DONTWAIT);
  }
  size_t size = 0;
  for (auto result = TlsSession::Result::kDone; to.size() - size >= kRecordBytes;) {
    size_t count = 0;
    result = tls_->Read(to.data() + size, to.size() - size, count);
    size += count;
    if (result == TlsSession::Result::kDone) continue;
    if (size > 0) break;
    if (result == TlsSession::Result::kEnd) return 0;
    if (result != TlsSession::Result::kFailed) errno = EAGAIN;
    return -1;
  }
  return static_cast<ssize_t>(size);
}

bool Connection::IsOpen() {
  if (state_ == State::kLingering) return true;
  if (awaits_tls_ && !BeginTls()) return false;
  return tls_ == nullptr || tls_->is_open() || ContinueHandshake();
}

// A client may take the port for one without TLS, and can read an answer only without it.
bool Connection::BeginTls() {
  constexpr uint8_t kHandshake = 22;  // what a first record is
  uint8_t first = 0;
  const ssize_t size = ::recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (size == 0) {
    OnEndOfInput();
    return false;
  }
  if (size < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) OnReadError(errno);
    return false;
  }
  if (first == kHandshake) {
    tls_ = set_.tls()->Open(fd_);
    awaits_tls_ = false;
    set_.BeginHandshake(*this);
    return true;
  }
  awaits_tls_ = false;
  auto& buffer = set_.input();
  (void)::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  Reject(400, "this port takes TLS alone: the URL begins with https://");
  return false;
}

bool Connection::ContinueHandshake() {
  switch (tls_->Handshake()) {
    case TlsSession::Result::kDone:
      set_.EndHandshake(*this);
      Deadlines::Leave(*this);
      return true;
    case TlsSession::Result::kNeedsInput:
      return false;
    case TlsSession::Result::kNeedsRoom:
      WaitWritable();
      return false;
    default:
      set_.counters().malformed_requests.fetch_add(1, std::memory_order_relaxed);
      set_.EndHandshake(*this);
      BeginLinger();  // for the peer to read why
      return false;
  }
}

void Connection::OnInput(std::string_view bytes) {
  if (state_ == State::kLingering || ((state_ != State::kReading) && closes_)) return;
  if (state_ == State::kReading && input_.empty()) {
    input_.assign(bytes.substr(Read(bytes)));
    return;
  }
  input_.append(bytes);
  needs_more_ = false;
  if (state_ != State::kReading && input_.size() > set_.limits().pipelined_bytes) Lose();
}

void Connection::OnEndOfInput() {
  if (state_ == State::kReading || state_ == State::kLingering) return Close(false);
  if (set_.limits().allows_half_close && !is_half_closed_) {
    is_half_closed_ = true;
  } else {
    Lose();
  }
}

void Connection::OnReadError(int error) {
  // TCP_USER_TIMEOUT: what was sent was not acknowledged, or not taken, for write_timeout.
  if (error == ETIMEDOUT && out_.unsent() > 0) return GiveUp();
  Lose();
}

void Connection::Lose() {
  is_lost_ = true;
  if (!is_in_event_) SettleLater();
}

void Connection::GiveUp() {
  set_.counters().slow_readers.fetch_add(1, std::memory_order_relaxed);
  is_given_up_ = true;
  Lose();
}

// --- requests

void Connection::BeginRequest() {
  state_ = State::kReading;
  request_ = {};
  request_.peer = peer_;
  is_http_1_1_ = true;
  closes_ = has_begun_ = is_complete_ = is_chunked_ = has_no_body_ = owes_room_ = false;
}

size_t Connection::Read(std::string_view bytes) {
  size_t taken = 0;
  needs_more_ = false;
  if (reader_ == nullptr) {
    // Some clients end a body with a line that its length does not count (RFC 9112, 2.2).
    taken = std::min(bytes.find_first_not_of("\r\n"), bytes.size());
    if (taken == bytes.size()) return taken;
    reader_ = std::make_unique<RequestReader>(set_.limits(), request_);
    set_.EnterWait(*this, WaitKind::kHead);
  }
  for (size_t count = 1; count > 0;) {
    const bool had_head = reader_->has_head();
    count = reader_->Read(bytes.substr(taken));
    taken += count;
    if (const RequestReader::Problem problem = reader_->problem(); problem.status != 0) {
      Reject(problem.status, problem.what);
      return bytes.size();
    }
    if (!had_head && reader_->has_head()) Guarded([this] { OnHead(); });
    if (state_ == State::kReading && !is_closed_ &&
        !request_.share.GrowTo(reader_->body_bytes(), set_.counters().inflight_bytes, client_,
                               set_.limits().inflight_bytes)) {
      RejectBody();
      return bytes.size();
    }
    if (state_ != State::kReading || is_closed_) return taken;
    if (reader_->is_complete()) {
      Guarded([this] { Handle(); });
      return taken;
    }
  }
  needs_more_ = true;
  return taken;
}

template <typename Call>
void Connection::Guarded(Call call) {
  int status = 503;
  try {
    return call();
  } catch (const std::bad_alloc&) {
  } catch (const std::exception&) {
    status = 500;
  }
  if (is_closed_ || has_begun_ || is_complete_) return Lose();
  Reject(status, status == 503 ? "there is no memory for this request now" : "internal error");
}

void Connection::AssignId() {
  const std::string_view id = request_.Field("X-Request-Id").value_or("");
  request_.id = IsUsableId(id) ? std::string(id) : set_.NewId();
}

void Connection::OnHead() {
  is_http_1_1_ = reader_->is_http_1_1();
  closes_ = !reader_->keeps_alive();
  AssignId();
  std::optional<HttpResponse> refusal = set_.handler().Refuse(request_);
  if (is_closed_) return;
  if (refusal.has_value()) {
    refusal->closes |= !reader_->is_complete();  // its body is not read
    return WriteWhole(std::move(*refusal));
  }
  if (reader_->is_complete()) return;
  client_ = set_.handler().ClientOf(request_);
  if (!BodyShare::HasRoom(reader_->body_length(), set_.counters().inflight_bytes, client_,
                          set_.limits().inflight_bytes)) {
    return RejectBody();
  }
  body_bytes_at_check_ = 0;
  set_.EnterWait(*this, WaitKind::kBody);
  if (reader_->expects_continue()) {
    out_.Append(kContinue);
    Send();
  }
}

void Connection::Handle() {
  Deadlines::Leave(*this);
  reader_.reset();
  state_ = State::kAnswering;
  std::unique_ptr<Answer> answer = set_.handler().Handle(*this);
  if (is_closed_) return;
  answer_ = std::move(answer);
  if (answer_ == nullptr && !is_complete_) Lose();
}

void Connection::RejectBody() {
  Reject(503, "bodies take all the memory that this client may have now; try again");
}

void Connection::Reject(int status, std::string_view what) {
  auto& counters = set_.counters();
  if (status != 503) {
    (status == 408 ? counters.timeouts : counters.malformed_requests)
        .fetch_add(1, std::memory_order_relaxed);
  }
  request_.body = {};
  request_.share = {};
  if (request_.id.empty()) AssignId();
  HttpResponse response = set_.handler().Malformed(request_, status, what);
  response.closes = true;
  WriteWhole(std::move(response));
}

// --- responses

void Connection::WriteHead(const HttpResponse& response, HeadStyle::Body body) {
  closes_ |= response.closes || set_.is_stopping() || body == HeadStyle::Body::kUntilClose;
  const auto connection = closes_         ? HeadStyle::Connection::kClose
                          : !is_http_1_1_ ? HeadStyle::Connection::kKeepAlive
                                          : HeadStyle::Connection::kUnsaid;
  std::string head;
  AppendHead(response, {body, connection}, request_.id, set_.Date(), head);
  out_.Append(head);
}

void Connection::WriteWhole(HttpResponse response) {
  Deadlines::Leave(*this);
  reader_.reset();
  state_ = State::kAnswering;
  is_complete_ = true;
  const bool has_none = HasNoBody(response.status);
  WriteHead(response, has_none ? HeadStyle::Body::kNone : HeadStyle::Body::kLength);
  if (!has_none && request_.method != "HEAD") out_.Append(response.body);
  Send();
}

void Connection::Respond(HttpResponse response) {
  if (!CanWrite() || has_begun_) return;
  WriteWhole(std::move(response));
  if (!is_in_event_) SettleLater();
}

void Connection::Begin(HttpResponse head) {
  if (!CanWrite() || has_begun_) return;
  has_begun_ = true;
  has_no_body_ = HasNoBody(head.status) || request_.method == "HEAD";
  is_chunked_ = is_http_1_1_ && !HasNoBody(head.status);
  WriteHead(head, HasNoBody(head.status) ? HeadStyle::Body::kNone
                  : is_chunked_          ? HeadStyle::Body::kChunked
                                         : HeadStyle::Body::kUntilClose);
  is_chunked_ &= !has_no_body_;
  out_.OpenPiece(is_chunked_);
}

void Connection::Flush() {
  if (!CanWrite() || !has_begun_) return;
  const HttpLimits& limits = set_.limits();
  // Without this piece, which may be what came together while the Answer held itself back.
  if (out_.unsent() > limits.unsent_bytes) return GiveUp();
  has_no_body_ ? out_.DropPiece() : out_.ClosePiece();
  if (!waits_writable_) Send();
  owes_room_ |= out_.unsent() > limits.coalesce_bytes;
  out_.OpenPiece(is_chunked_);
}

void Connection::End() {
  if (!CanWrite() || !has_begun_) return;
  has_no_body_ ? out_.DropPiece() : out_.ClosePiece();
  if (is_chunked_) out_.Append(kLastChunk);
  is_complete_ = true;
  if (!waits_writable_) Send();
  if (!is_in_event_) SettleLater();
}

void Connection::Send() {
  if (out_.unsent() == 0) return;
  size_t count = 0;
  const SendBuffer::Sent sent = tls_ != nullptr ? out_.Send(*tls_, count) : out_.Send(fd_, count);
  const int error = errno;
  set_.CountSend(count);
  const bool waits_for_reader = waits() && wait_kind() == WaitKind::kWrite;
  switch (sent) {
    case SendBuffer::Sent::kAll:
      if (waits_for_reader) Deadlines::Leave(*this);
      return;
    case SendBuffer::Sent::kBlocked:
      // After a 100 Continue it is the body that is waited for.
      if (state_ != State::kReading && (count > 0 || !waits_for_reader)) {
        set_.EnterWait(*this, WaitKind::kWrite);
      }
      return WaitWritable();
    case SendBuffer::Sent::kFailed:
      return OnReadError(error);
  }
}

void Connection::BeginLinger() {
  input_ = {};
  request_ = {};
  if (is_half_closed_) return Close(false);
  if (tls_ != nullptr) tls_->Close();
  ::shutdown(fd_, SHUT_WR);
  state_ = State::kLingering;
  set_.EnterWait(*this, WaitKind::kLinger);
}

}  // namespace sluice::server
