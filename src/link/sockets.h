// Calls of ZeroMQ's sockets that have several users.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <zmq.hpp>

namespace sluice::link {

// The next part of a message. False: there is none.
inline bool Receive(zmq::socket_t& socket, zmq::message_t& message) {
  int size = -1;
  do {
    size = zmq_msg_recv(message.handle(), socket.handle(), ZMQ_DONTWAIT);
  } while (size < 0 && zmq_errno() == EINTR);
  return size >= 0;
}

// The last part of a message. False: it could not be sent, and is the caller's still.
inline bool Send(zmq::socket_t& socket, zmq_msg_t& message) {
  int size = -1;
  do {
    size = zmq_msg_send(&message, socket.handle(), ZMQ_DONTWAIT);
  } while (size < 0 && zmq_errno() == EINTR);
  return size >= 0;
}

// False: it could not be sent, as where the other end is missing. Throws std::bad_alloc.
inline bool Send(zmq::socket_t& socket, std::string_view bytes, int flags = 0) {
  int size = -1;
  do {
    size = zmq_send(socket.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT | flags);
  } while (size < 0 && zmq_errno() == EINTR);
  if (size < 0 && zmq_errno() == ENOMEM) throw std::bad_alloc();
  return size >= 0;
}

// The file descriptor of `epoll_fd` signals what the socket has.
inline void Watch(int epoll_fd, zmq::socket_t& socket, bool is_watched) {
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll_fd, is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, socket.get(zmq::sockopt::fd),
            &event);
}

inline bool HasInput(zmq::socket_t& socket) {
  return (socket.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
}

// A socket that reports these events of another one; ReadMonitor reads it.
inline zmq::socket_t OpenMonitor(zmq::context_t& context, zmq::socket_t& socket,
                                 const std::string& address, int events) {
  // Its reader first: an event without a reader would keep the context from ending.
  zmq::socket_t monitor(context, zmq::socket_type::pair);
  if (zmq_socket_monitor(socket.handle(), address.c_str(), events) != 0) throw zmq::error_t();
  monitor.set(zmq::sockopt::linger, 0);
  monitor.set(zmq::sockopt::rcvhwm, 0);
  monitor.connect(address);
  return monitor;
}

// Calls take(event, value) for everything that has happened; the rest of very much is for the next
// call.
template <typename TakeEvent>
void ReadMonitor(zmq::socket_t& monitor, TakeEvent take) {
  constexpr int kMostEvents = 1 << 16;
  zmq::message_t message;
  for (int left = kMostEvents; left > 0 && Receive(monitor, message); --left) {
    uint16_t event = 0;
    int32_t value = 0;
    const char* const bytes = static_cast<const char*>(message.data());
    if (message.size() >= sizeof event + sizeof value) {
      std::memcpy(&event, bytes, sizeof event);
      std::memcpy(&value, bytes + sizeof event, sizeof value);
    }
    while (message.more() && Receive(monitor, message)) {  // the endpoint
    }
    take(event, value);
  }
}

}  // namespace sluice::link
