// The connections of one listener, and what they share: limits, the Handler, a buffer to read into,
// one timer, and the list of those that have something to settle.
#pragma once

#include <array>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/connection.h"
#include "server/http/deadlines.h"
#include "server/http/listener.h"

namespace sluice::server {

// Callbacks of the loop hold it: it may outlive its listener, and does nothing from End on.
class ConnectionSet : public std::enable_shared_from_this<ConnectionSet> {
 public:
  // tls: null for none; outlives it.
  ConnectionSet(boost::asio::io_context& loop, const HttpLimits& limits, Handler& handler,
                HttpCounters& counters, const TlsContext* tls);
  ~ConnectionSet();

  void Add(int fd);           // takes it
  void StopAfterExchanges();  // those there are and those to come
  void CloseAll();
  void End();  // CloseAll, and nothing happens any more
  int64_t size() const { return size_; }

  // --- for a Connection

  const HttpLimits& limits() const { return limits_; }
  Handler& handler() { return handler_; }
  HttpCounters& counters() { return counters_; }
  const TlsContext* tls() const { return tls_; }
  std::array<char, size_t{64} << 10>& input() { return input_; }  // for one event
  bool is_stopping() const { return is_stopping_; }
  std::string_view Date();
  std::string NewId();

  void EnterWait(Timed& timed, WaitKind kind);
  // OnDeferred follows, from the loop.
  void Defer(Connection& connection);
  void Remove(Connection& connection);
  void BeginHandshake(Connection& connection);  // closes the oldest one of too many
  void EndHandshake(Connection& connection);    // if it is in one
  // Added to the counters now and then: tokens of several threads would fight for them.
  void CountSend(size_t bytes) {
    ++writes_;
    bytes_out_ += static_cast<int64_t>(bytes);
  }
  void PublishCounts();

 private:
  using Clock = std::chrono::steady_clock;
  using Timer = boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>,
                                                  boost::asio::io_context::executor_type>;

  void Refuse(int fd);
  void StartTimer();
  void OnTimer();
  void SettleDeferred();

  boost::asio::io_context& loop_;
  const HttpLimits limits_;
  Handler& handler_;
  HttpCounters& counters_;
  const TlsContext* const tls_;

  boost::intrusive::list<Connection, boost::intrusive::constant_time_size<false>> connections_;
  boost::intrusive::list<Connection, boost::intrusive::base_hook<HandshakeHook>> handshakes_;
  int64_t size_ = 0;
  bool is_stopping_ = false;
  bool is_over_ = false;

  Deadlines deadlines_;
  Timer timer_;
  std::chrono::milliseconds tick_;
  bool is_timer_on_ = false;

  std::vector<boost::intrusive_ptr<Connection>> deferred_;
  std::vector<boost::intrusive_ptr<Connection>> settling_;
  bool is_settling_posted_ = false;

  int64_t writes_ = 0;
  int64_t bytes_out_ = 0;
  uint64_t id_seed_;
  uint64_t ids_ = 0;
  int64_t date_second_ = -1;
  std::string date_;
  std::array<char, size_t{64} << 10> input_;
};

}  // namespace sluice::server
