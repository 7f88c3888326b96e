#include "link/vllm/peer_watch.h"

#include <algorithm>
#include <utility>

namespace sluice::link {

PeerWatch::PeerWatch(zmq::context_t& context, zmq::socket_t& socket, const std::string& name,
                     Peers peers)
    : monitor_(
          OpenMonitor(context, socket, name,
                      ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED)),
      watched_(socket.handle()),
      peers_(peers) {}

PeerWatch::PeerWatch(PeerWatch&& other) noexcept
    : monitor_(std::move(other.monitor_)),
      watched_(std::exchange(other.watched_, nullptr)),
      peers_(other.peers_),
      open_(std::move(other.open_)),
      held_(std::move(other.held_)),
      named_(other.named_),
      connection_(other.connection_),
      has_changed_(other.has_changed_) {}

// An event without its reader would keep the context from ending.
void PeerWatch::Close() {
  if (watched_ != nullptr) zmq_socket_monitor(watched_, nullptr, 0);
  watched_ = nullptr;
}

void PeerWatch::Read() {
  ReadMonitor(monitor_, [this](uint16_t event, int32_t value) { Take(event, value); });
}

void PeerWatch::Take(uint16_t event, int32_t value) {
  if (event == ZMQ_EVENT_ACCEPTED) {
    open_.push_back(value);
  } else if (event == ZMQ_EVENT_DISCONNECTED) {
    std::erase(open_, value);
    std::erase(held_, value);
    if (value == named_) named_ = -1;
    if (value != connection_) return;
    connection_ = peers_ == Peers::kOne ? OneThatStands() : -1;
    has_changed_ = true;
  } else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && peers_ == Peers::kOne && !open_.empty()) {
    // The event does not say which one it is of; a peer connects and says its name in one go.
    connection_ = open_.back();
    has_changed_ = true;
  }
}

// A stranger that came and left took the place of an engine that is there all the time.
int32_t PeerWatch::OneThatStands() const {
  if (named_ >= 0) return named_;
  return open_.empty() ? -1 : open_.back();
}

bool PeerWatch::Use(int32_t connection) {
  Read();  // its beginning was reported before it could say something
  if (std::ranges::find(open_, connection) == open_.end()) return false;
  if (!Holds(connection)) held_.push_back(connection);
  connection_ = named_ = connection;
  has_changed_ = false;
  return true;
}

bool PeerWatch::Holds(int32_t connection) const {
  return std::ranges::find(held_, connection) != held_.end();
}

bool PeerWatch::TakeChange() {
  Read();
  return std::exchange(has_changed_, false);
}

}  // namespace sluice::link
