#include "link/frontend/router.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "link/wire/wire.h"
#include "support/check.h"

namespace sluice::link {
namespace {

constexpr const char* kMonitor = "inproc://connections";
constexpr int kLingerMs = 500;
// Messages of one frontend that wait here: beyond them its connection waits, and no other.
constexpr int kMostWaiting = 256;
// To one frontend: more than its credits, so it reads nothing, and is given up.
constexpr int kMostUnread = kMostCredits + 4096;

// Each has a file descriptor, and where none is left ZeroMQ aborts the process when it accepts an
// ipc connection. Some are accepted before earlier ones are closed, hence half.
size_t MostConnections() {
  constexpr rlim_t kMostFrontends = 1024;
  constexpr rlim_t kOthers = 64;  // descriptors
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMostFrontends;
  return std::clamp<rlim_t>(limit.rlim_cur / 2, 2 * kOthers, kMostFrontends + kOthers) - kOthers;
}

void Set(zmq::socket_t& socket, const EngineServerOptions& options) {
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::router_mandatory, true);
  socket.set(zmq::sockopt::sndhwm, kMostUnread);
  socket.set(zmq::sockopt::rcvhwm, kMostWaiting);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(options.max_frame_bytes));
  const auto timeout = static_cast<int>(options.client_timeout.count());
  socket.set(zmq::sockopt::heartbeat_ivl, std::clamp(timeout / 4, 1, 5000));
  socket.set(zmq::sockopt::heartbeat_timeout, timeout);
  // For peers of which not even the kernel answers: probed after this time, and then five times.
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, std::max(timeout / 1000, 1));
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 5);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 5);
}

// Nothing for an address that its owner chose, if it does not look like one of ZeroMQ's.
std::optional<uint32_t> NumberOf(std::string_view address) {
  if (address.size() != 5 || address[0] != 0) return std::nullopt;
  uint32_t number = 0;
  for (const char c : address.substr(1)) number = (number << 8) | static_cast<uint8_t>(c);
  return number;
}

}  // namespace

bool Router::HasConnection(const Message& message) {
  const std::optional<uint32_t> number = NumberOf(message.address);
  if (!number.has_value() || !IsOpen(message.fd)) return false;
  if (!first_number_.has_value()) first_number_ = number;
  const auto distance = static_cast<int32_t>(*number - *first_number_);
  return std::abs(int64_t{distance}) <= accepted_;
}

bool Router::IsOlder(std::string_view a, std::string_view b) {
  const std::optional<uint32_t> first = NumberOf(a);
  const std::optional<uint32_t> second = NumberOf(b);
  return first.has_value() && second.has_value() && static_cast<int32_t>(*first - *second) < 0;
}

Router::Router(const EngineServerOptions& options) {
  try {
    socket_ = zmq::socket_t(context_, zmq::socket_type::router);
    Set(socket_, options);
    if (zmq_socket_monitor(socket_.handle(), kMonitor,
                           ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0) {
      throw zmq::error_t();
    }
    monitor_ = zmq::socket_t(context_, zmq::socket_type::pair);
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.set(zmq::sockopt::rcvhwm, 0);
    monitor_.connect(kMonitor);
    most_connections_ = MostConnections();
    socket_.bind(options.listen);
    endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
    socket_fd_ = socket_.get(zmq::sockopt::fd);
    monitor_fd_ = monitor_.get(zmq::sockopt::fd);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kUnavailable, "listen", options.listen + " (" + error.what() + ")",
                "ipc://PATH or tcp://HOST:PORT that is free");
  }
}

// Not zmq_poll, which reads each socket before it waits and afterwards.
Router::Ready Router::Wait(int wake_fd, std::chrono::milliseconds timeout) {
  std::array<pollfd, 3> files = {
      {{socket_fd_, POLLIN, 0}, {monitor_fd_, POLLIN, 0}, {wake_fd, POLLIN, 0}}};
  const int milliseconds = is_drained_ ? static_cast<int>(timeout.count()) : 0;
  // A signal: the caller looks at everything, and comes back.
  if (::poll(files.data(), files.size(), milliseconds) < 0) return {true, true, true};
  return {.has_messages = files[0].revents != 0 || !is_drained_,
          .has_closed = files[1].revents != 0,
          .is_woken = files[2].revents != 0};
}

Router::Ready Router::WaitForWake(int wake_fd, std::chrono::milliseconds timeout) {
  pollfd file = {wake_fd, POLLIN, 0};
  return {.is_woken = ::poll(&file, 1, static_cast<int>(timeout.count())) != 0};
}

bool Router::HasUnseen() {
  if (!is_drained_) is_drained_ = (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN) == 0;
  return !is_drained_;
}

// ZeroMQ has no call for it, and to unbind would close all that it has accepted. It sees the end of
// this one and closes it, as if its peer had.
void Router::LimitConnections() const {
  if (open_.size() > most_connections_) ::shutdown(last_fd_, SHUT_RDWR);
}

bool Router::Receive(Message& message) {
  is_drained_ = !socket_.recv(from_, zmq::recv_flags::dontwait);
  if (is_drained_) return false;
  // The parts of a message come together.
  if (!socket_.recv(frame_, zmq::recv_flags::dontwait)) return false;
  message.has_one_part = !frame_.more();
  for (zmq::message_t rest; frame_.more();) {
    if (!socket_.recv(rest, zmq::recv_flags::dontwait)) break;
    frame_.swap(rest);
  }
  message.address = from_.to_string_view();
  message.bytes = frame_.to_string_view();
  message.fd = zmq_msg_get(frame_.handle(), ZMQ_SRCFD);  // -1 for peers of before ZMTP 3.0
  return true;
}

bool Router::Send(std::string_view address, std::string_view bytes) {
  is_drained_ = false;
  if (zmq_send(socket_.handle(), address.data(), address.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    return false;
  }
  return zmq_send(socket_.handle(), bytes.data(), bytes.size(), ZMQ_DONTWAIT) >= 0;
}

bool Router::TakeEvent() {
  zmq::message_t event;
  if (!monitor_.recv(event, zmq::recv_flags::dontwait)) return false;
  // 16 bits of event and 32 of value, here a descriptor, in this machine's order.
  uint16_t kind = 0;
  int32_t value = -1;
  if (event.size() >= sizeof kind + sizeof value) {
    const auto* const bytes = static_cast<const char*>(event.data());
    std::memcpy(&kind, bytes, sizeof kind);
    std::memcpy(&value, bytes + sizeof kind, sizeof value);
  }
  last_event_ = kind;
  last_fd_ = value;
  zmq::message_t address;
  (void)monitor_.recv(address, zmq::recv_flags::dontwait);
  return true;
}

}  // namespace sluice::link
