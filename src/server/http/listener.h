// Connections of one thread: listens, reads requests within limits, hands them to a Handler, and
// writes what it answers.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "server/http/body_share.h"
#include "server/http/exchange.h"
#include "server/tls/tls.h"
#include "sluice/server.hpp"

namespace sluice::server {

// Counters of all threads: each adds to them.
struct HttpCounters {
  std::atomic<int64_t> connections = 0;  // now
  std::atomic<int64_t> connections_seen = 0;
  std::atomic<int64_t> refused_connections = 0;  // beyond the limit
  std::atomic<int64_t> accept_pauses = 0;        // for lack of descriptors
  std::atomic<int64_t> malformed_requests = 0;
  std::atomic<int64_t> timeouts = 0;
  std::atomic<int64_t> disconnects = 0;   // before the answer was complete
  std::atomic<int64_t> slow_readers = 0;  // given up
  BodyBytes inflight_bytes;               // now
  // Those of writing come in portions, a little later.
  std::atomic<int64_t> bytes_in = 0;
  std::atomic<int64_t> bytes_out = 0;
  std::atomic<int64_t> writes = 0;
};

struct ListenAddress {
  std::string host = {};  // an address or a name; or
  uint16_t port = 0;
  std::string unix_socket = {};
};

class HttpListener {
 public:
  // Binds and listens; throws Error naming `host`, `port` or `unix_socket`, also when another
  // program listens there. `first` is one of another thread of this program: this one shares its
  // port (SO_REUSEPORT) or its socket, and `first` outlives the constructor. The others outlive it.
  // `tls`: null for none.
  HttpListener(boost::asio::io_context& loop, const ListenAddress& address,
               const HttpLimits& limits, Handler& handler, HttpCounters& counters,
               const HttpListener* first = nullptr, const TlsContext* tls = nullptr);
  ~HttpListener();  // closes all connections; on the loop's thread, or when the loop does not run

  uint16_t port() const;

  void Start();          // takes connections
  void StopAccepting();  // closes the listening socket and connections that wait for a request;
                         // the others close when their exchange is over
  int64_t connections() const;
  void CloseAll();  // what is unsent is lost

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sluice::server
