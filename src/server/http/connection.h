// One connection: reads a request, hands it to the Handler, writes the answer, and so on with the
// next one. Everything that ends an exchange is noted where it happens and done in Settle, at the
// end of an event of its own, so that no call of an Answer destroys it.
#pragma once

#include <sys/types.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/intrusive/list_hook.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/http/deadlines.h"
#include "server/http/exchange.h"
#include "server/http/handler_memory.h"
#include "server/http/request_reader.h"
#include "server/http/response_head.h"
#include "server/http/send_buffer.h"
#include "server/tls/tls.h"

namespace sluice::server {

class ConnectionSet;

using HandshakeHook = boost::intrusive::list_base_hook<boost::intrusive::tag<class HandshakeTag>>;

class Connection final
    : public boost::intrusive_ref_counter<Connection, boost::thread_unsafe_counter>,
      public boost::intrusive::list_base_hook<>,
      public HandshakeHook,
      public Timed,
      private Exchange {
 public:
  // Owns `fd`. `set` is there until Close.
  Connection(ConnectionSet& set, boost::asio::io_context& loop, int fd);

  void Start();
  void StopAfterExchange();  // closes now if it waits for a request
  // Destroys the Answer. `resets`: what is unsent is thrown away, and the peer gets a reset.
  void Close(bool resets);
  void OnDeadline();
  void OnDeferred();
  // Of TLS, which is not over.
  bool is_in_handshake() const { return HandshakeHook::is_linked(); }

 private:
  enum class State : uint8_t {
    kReading,    // a request, or waits for one
    kAnswering,  // the Handler has it
    kSending,    // the rest of a complete response
    kLingering,  // all is sent; until the peer has read it and closes, its bytes are thrown away
  };

  // An event on the loop: `act`, and then Settle.
  template <typename Act>
  void InEvent(Act act);
  void Settle();
  void SettleLater();

  const HttpRequest& request() const override { return request_; }
  HttpBody TakeBody() override { return {std::move(request_.body), std::move(request_.share)}; }
  void Respond(HttpResponse response) override;
  void Begin(HttpResponse head) override;
  std::string& stream() override { return out_.text(); }
  void Flush() override;
  void End() override;
  size_t unsent() const override { return out_.unsent(); }

  // There is always a wait for bytes, so that a peer that leaves is seen; after the last bytes of
  // one that only listens, it is for an error.
  void WaitReadable();
  void WaitWritable();
  template <typename Then>
  void Wait(boost::asio::posix::descriptor_base::wait_type what, HandlerMemory& memory, Then then);
  void OnReadable();
  void OnWritable();
  ssize_t Receive(std::span<char> to);  // as recv() does it
  // Where there is TLS: whether its handshake is over, or was.
  bool IsOpen();
  bool BeginTls();
  bool ContinueHandshake();
  void OnInput(std::string_view bytes);
  void OnEndOfInput();
  void OnReadError(int error);

  size_t Read(std::string_view bytes);  // a request, or a part; how many it took
  void AssignId();                      // of the request: the client's own, or a new one
  void OnHead();
  void Handle();
  // Calls the Handler, and gives its exceptions a status.
  template <typename Call>
  void Guarded(Call call);
  void RejectBody();  // which has no room
  void Reject(int status, std::string_view what);
  void WriteWhole(HttpResponse response);
  void WriteHead(const HttpResponse& response, HeadStyle::Body body);
  void Send();
  void Lose();    // the peer is gone
  void GiveUp();  // the peer reads too slowly
  void BeginRequest();
  void BeginLinger();
  bool CanWrite() const { return state_ == State::kAnswering && !is_complete_ && !is_lost_; }
  bool IsIdle() const;

  ConnectionSet& set_;
  const int fd_;  // of socket_
  State state_ = State::kReading;
  bool is_closed_ = false;
  bool is_lost_ = false;         // the peer is gone or given up: Settle closes
  bool is_given_up_ = false;     // because it reads too slowly
  bool is_half_closed_ = false;  // the peer sends no more
  bool awaits_tls_ = false;      // and nothing has come
  bool is_in_event_ = false;     // Settle follows
  bool is_deferred_ = false;     // Settle follows, from the loop
  bool reads_later_ = false;     // and then the wait for bytes
  bool waits_writable_ = false;
  bool needs_more_ = false;  // of input_, nothing can be read

  // The state of this request and its response:
  bool is_http_1_1_ = true;
  bool closes_ = false;       // after the response
  bool has_begun_ = false;    // Begin was called
  bool is_complete_ = false;  // Respond or End was called
  bool is_chunked_ = false;
  bool has_no_body_ = false;  // pieces are thrown away
  bool owes_room_ = false;    // OnRoom

  SendBuffer out_;
  std::unique_ptr<TlsSession> tls_;  // null: none, or it awaits one

  // Fields that a token does not need:
  boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type> socket_;
  std::unique_ptr<RequestReader> reader_;  // while a request comes
  HttpRequest request_;
  std::unique_ptr<Answer> answer_;
  std::string input_;  // that came and is not read: a part of a request, or the next ones
  size_t body_bytes_at_check_ = 0;
  uint64_t client_ = 0;  // of the body
  const uint64_t peer_;

  HandlerMemory read_memory_;
  HandlerMemory write_memory_;
};

}  // namespace sluice::server
