// Which connection of a bound socket is the engine's, and whether it is still that one.
//
// ZeroMQ connects again by itself, and with router_handover a peer takes the place of an earlier
// one without a word, so what was on its way may be gone although the socket works. A monitor
// reports what happens to connections, in its order: a file descriptor that ended and one that came
// later with the same number are not taken for each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "link/sockets.h"

namespace sluice::link {

class PeerWatch {
 public:
  enum class Peers : uint8_t {
    kOne,   // a peer that comes takes the place of the one before, until it goes
    kMany,  // the engine is the one that was named with Use
  };

  // `name` is an address of its own in the context. Throws zmq::error_t.
  PeerWatch(zmq::context_t& context, zmq::socket_t& socket, const std::string& name, Peers peers);
  ~PeerWatch() { Close(); }  // before the socket
  PeerWatch(PeerWatch&& other) noexcept;
  PeerWatch& operator=(PeerWatch&&) = delete;

  // A message of the engine came from this file descriptor. False: that one has ended. Else what
  // was before does not count as a change any more.
  bool Use(int32_t connection);
  bool has_connection() const { return connection_ >= 0; }
  // Of kMany: whether this one, that was named with Use, stands.
  bool Holds(int32_t connection) const;

  // Whether since the last call the engine's connection has ended, or another has taken its place.
  bool TakeChange();

  zmq::socket_t& monitor() { return monitor_; }

 private:
  void Read();
  void Take(uint16_t event, int32_t value);
  int32_t OneThatStands() const;
  void Close();

  zmq::socket_t monitor_;
  void* watched_;
  Peers peers_;
  std::vector<int32_t> open_;  // the last one to come at the end
  std::vector<int32_t> held_;  // all that were named with Use and stand
  int32_t named_ = -1;         // the last of these
  int32_t connection_ = -1;
  bool has_changed_ = false;
};

// The file descriptor that it came from.
inline int32_t ConnectionOf(zmq::message_t& message) {
  return zmq_msg_get(message.handle(), ZMQ_SRCFD);
}

}  // namespace sluice::link
