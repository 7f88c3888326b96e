// One request and the answer to it. Everything here happens on the thread of its connection.
//
// A handler answers at once with Respond, or gives the connection an Answer and writes later: a
// whole response, or a stream in pieces. The connection owns the Answer. It destroys it when the
// response is complete, when the peer is gone or was given up, and when the server ends; so an
// Answer stops in its destructor the work that has no reader any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace sluice::server {

class Answer {
 public:
  virtual ~Answer() = default;
  // The unsent bytes of a stream beyond HttpLimits::coalesce_bytes have gone out.
  virtual void OnRoom() {}
};

// Stays until its Answer has been destroyed. No call of it destroys the Answer before it returns to
// the event loop.
class Exchange {
 public:
  virtual const HttpRequest& request() const = 0;
  virtual HttpBody TakeBody() = 0;  // once: its memory is given back with it

  // The group of its requester among the engine's requests; 0: none of its own.
  virtual uint64_t group() const { return 0; }
  // Places for more choices than the first one. Throws ApiFailure where there are too few, naming
  // the field that gives their number.
  virtual void TakePlaces(int64_t, std::string_view) {}

  // The whole response. Nothing may be written after it.
  virtual void Respond(HttpResponse response) = 0;

  // Or a stream: its head, which goes out with the first Flush; then pieces, appended to stream()
  // and sent by Flush, in one send() if the socket takes it; then End. head.body is empty. Before a
  // piece stream() holds what the connection needs there: it is for appending only.
  virtual void Begin(HttpResponse head) = 0;
  virtual std::string& stream() = 0;
  virtual void Flush() = 0;
  virtual void End() = 0;  // flushes

  // Bytes that the socket has not taken. Beyond HttpLimits::coalesce_bytes an Answer appends
  // nothing more until OnRoom, and then what is new since, as one piece.
  virtual size_t unsent() const = 0;

 protected:
  ~Exchange() = default;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // After the head of a request: a response instead of reading its body.
  virtual std::optional<HttpResponse> Refuse(const HttpRequest& head) = 0;
  // After the head of a request that is not refused: the client of its body among all bodies; 0:
  // one without a number of its own.
  virtual uint64_t ClientOf(const HttpRequest&) { return 0; }
  // After the whole request. Null: the exchange has been responded to.
  virtual std::unique_ptr<Answer> Handle(Exchange& exchange) = 0;
  // The response that the connection itself gives to what is no request it takes: a status (400,
  // 408, 413, 431, ...) and what is wrong in words. `request` has an id, and what was read of it.
  virtual HttpResponse Malformed(const HttpRequest& request, int status, std::string_view what) = 0;
};

}  // namespace sluice::server
