// The engine's socket: a ZeroMQ ROUTER that says at once when a connection has closed.
//
// ZeroMQ hides connections. It reports, though, on which file descriptor a message came, and a
// monitor of the socket which descriptors were accepted and closed, before anything that comes on a
// later connection with the same number. What an earlier one said may still come afterwards, under
// its own address: ZeroMQ numbers connections, and an address is a zero byte and the number. Peers
// that set an address of their own are ignored: their connections could not be distinguished.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <zmq.hpp>

#include "sluice/engine_server.hpp"

namespace sluice::link {

class Router {
 public:
  // Binds, and starts the threads of a ZeroMQ context. Throws Error naming the endpoint.
  explicit Router(const EngineServerOptions& options);

  const std::string& endpoint() const { return endpoint_; }

  // The work to do.
  struct Ready {
    bool has_messages = false;
    bool has_closed = false;  // or accepted
    bool is_woken = false;    // `wake_fd` is readable
  };
  // Waits for a message, a closed connection or a readable `wake_fd`. Negative: for ever.
  Ready Wait(int wake_fd, std::chrono::milliseconds timeout);
  // Only for `wake_fd`.
  static Ready WaitForWake(int wake_fd, std::chrono::milliseconds timeout);
  // Whether a message is there that Wait would not see. Each look at a ZeroMQ socket is two system
  // calls, so call it only after a Send, which may have taken in the signal of a message.
  bool HasUnseen();

  // The message that came. Valid until the next call.
  struct Message {
    std::string_view address;
    std::string_view bytes;
    int fd = -1;
    bool has_one_part = true;
  };
  // Whether it came on a connection that is open, under an address that ZeroMQ has given it: a
  // forged one would have to guess a number of the connections that there were.
  bool HasConnection(const Message& message);

  // Whether connection `a` was made before `b`, within 2^31 of them.
  static bool IsOlder(std::string_view a, std::string_view b);

  bool Receive(Message& message);  // false: no message

  // False: the peer is gone, or has let too much wait. Never waits.
  bool Send(std::string_view address, std::string_view bytes);

  // What was sent still goes out; nothing is received any more.
  void Close() noexcept { socket_.close(); }

  // Calls closed(fd) for each connection that has closed since the last call. Those that there
  // are too many of are hung up on.
  template <typename Closed>
  void TakeClosed(Closed closed) {
    while (TakeEvent()) {
      if (last_event_ == ZMQ_EVENT_ACCEPTED) {
        open_.insert(last_fd_);
        ++accepted_;
        LimitConnections();
      }
      if (last_event_ == ZMQ_EVENT_DISCONNECTED) {
        open_.erase(last_fd_);
        closed(last_fd_);
      }
    }
  }

 private:
  void LimitConnections() const;
  bool IsOpen(int fd) const { return open_.contains(fd); }
  bool TakeEvent();

  zmq::context_t context_;
  zmq::socket_t socket_;
  zmq::socket_t monitor_;
  int socket_fd_ = -1;
  int monitor_fd_ = -1;
  size_t most_connections_ = 0;
  bool is_drained_ = false;  // nothing is there until the socket's descriptor is readable
  std::string endpoint_;
  zmq::message_t from_;
  zmq::message_t frame_;
  std::unordered_set<int> open_;
  int64_t accepted_ = 0;
  std::optional<uint32_t> first_number_;
  int last_event_ = 0;
  int last_fd_ = -1;
};

}  // namespace sluice::link
