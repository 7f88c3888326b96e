#include "link/vllm/vllm_port.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "link/sockets.h"
#include "link/vllm/handshake.h"
#include "link/vllm/messages.h"
#include "support/check.h"
#include "support/number.h"
#include "support/system_error.h"

namespace sluice::link {
namespace {

constexpr int64_t kMostSmallBytes = int64_t{64} << 10;  // of greetings and facts: some hundred
constexpr int kMostSmallMessages = 64;                  // of a connection, that wait to be read
constexpr int kGreetingsAtOnce = 64;
constexpr std::chrono::milliseconds kGreetAgainEvery{250};

}  // namespace

VllmPort::VllmPort(std::shared_ptr<zmq::context_t> context, VllmEndpoint endpoint, int32_t clients,
                   std::chrono::milliseconds stall_timeout, int epoll_fd)
    : context_(std::move(context)),
      endpoint_(std::move(endpoint)),
      clients_(clients),
      stall_timeout_(stall_timeout),
      ranks_(static_cast<size_t>(endpoint_.ranks)),
      places_(Index(endpoint_.ranks, 0)) {
  for (Place& place : places_) {
    place.event = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!place.event.IsOpen()) ThrowSystemError("eventfd");
  }
  Listen(epoll_fd);
}

zmq::socket_t VllmPort::Bind(SocketKind kind, const std::string& address) const {
  zmq::socket_t socket(*context_, kind.type);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, kind.is_small ? kMostSmallMessages : 0);
  socket.set(zmq::sockopt::maxmsgsize, kind.is_small ? kMostSmallBytes : kMostMessageBytes);
  socket.set(zmq::sockopt::ipv6, endpoint_.host.find('[') != std::string::npos);
  if (kind.type == zmq::socket_type::router) {
    // An engine that is started again has the identity of the one before.
    socket.set(zmq::sockopt::router_handover, true);
    // A message for a peer that is gone is refused in place of dropped.
    socket.set(zmq::sockopt::router_mandatory, true);
  }
  // For machines that vanish. A process that is stopped has the time that a stall has.
  const auto stall = static_cast<int>(stall_timeout_.count());
  socket.set(zmq::sockopt::heartbeat_ivl, std::max(stall / 4, 1));
  socket.set(zmq::sockopt::heartbeat_timeout, 2 * stall);
  socket.bind(address);
  return socket;
}

void VllmPort::Listen(int epoll_fd) {
  try {
    handshake_ = Bind({.type = zmq::socket_type::router, .is_small = true}, endpoint_.address);
  } catch (const zmq::error_t& error) {
    ThrowInvalid("endpoint", ToText(std::string_view(endpoint_.name)),
                 "vllm+tcp://ADDRESS:PORT, an address of this machine that the engine reaches, as "
                 "a number: " +
                     std::string(error.what()));
  }
  watch_.emplace(*context_, handshake_, "inproc://" + endpoint_.name, PeerWatch::Peers::kMany);
  Watch(epoll_fd, handshake_, true);
  Watch(epoll_fd, watch_->monitor(), true);
}

bool VllmPort::Take(int32_t rank, int32_t client, News& news) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[Index(rank, client)];
  uint64_t count = 0;
  if (!place.news.has_value()) return false;
  [[maybe_unused]] const ssize_t size = ::read(place.event.get(), &count, sizeof count);
  news = std::move(*place.news);
  place.news.reset();
  return true;
}

// News that were not taken are replaced, except that an engine has been started.
void VllmPort::Post(int32_t rank, int32_t client, News news) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[Index(rank, client)];
  if (place.news.has_value() && !news.is_started) {
    news.is_started = place.news->is_started;
    news.sockets = std::move(place.news->sockets);
  }
  place.news = std::move(news);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(place.event.get(), &one, sizeof one);
}

void VllmPort::PostAll(int32_t rank, const News& news) {
  for (int32_t client = 0; client < clients_; ++client) {
    Post(rank, client,
         {.is_started = news.is_started, .reason = news.reason, .is_refusal = news.is_refusal});
  }
}

bool VllmPort::Turn(Clock::time_point now, ClientCounters& counters) {
  std::vector<zmq::message_t> parts;
  bool has_more = true;
  for (int left = kGreetingsAtOnce; left > 0 && has_more; --left) {
    has_more = ReceiveAll(handshake_, parts);
    if (has_more) TakeGreeting(parts, now, counters);
  }
  watch_->TakeChange();
  for (int32_t number = 0; number < endpoint_.ranks; ++number) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    if (rank.is_greeted && now >= rank.greeted_again_at) Begin(number, now);
    if (!rank.is_loading || watch_->Holds(rank.connection)) continue;
    rank.is_loading = false;
    PostAll(number, {.reason = "its connection ended while it loaded its model: its log says why"});
  }
  return has_more;
}

void VllmPort::TakeGreeting(std::vector<zmq::message_t>& parts, Clock::time_point now,
                            ClientCounters& counters) {
  vllm::Greeting greeting;
  if (parts.size() != 2 || !vllm::ReadGreeting(BytesOf(parts[1]), greeting).empty()) {
    ++counters.malformed_frames;
    return;
  }
  const std::string_view identity = BytesOf(parts[0]);
  const int32_t number = vllm::RankOf(identity);
  if (number < 0 || number >= endpoint_.ranks || !greeting.is_headless) {
    ++counters.foreign_frames;
    if (greeting.is_hello) RefuseHello(identity, greeting.is_headless);
    return;
  }
  if (!greeting.is_hello) return;
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.connection = ConnectionOf(parts[1]);
  watch_->Use(rank.connection);
  rank.is_greeted = rank.is_loading = true;
  Begin(number, now);
}

// The process that started it waits for an answer, and does not get one: it is said here.
void VllmPort::RefuseHello(std::string_view identity, bool is_headless) {
  std::string reason = "an engine that said hello there is ";
  if (!is_headless) {
    reason += "not headless: start it with --headless";
  } else if (const int32_t rank = vllm::RankOf(identity); rank < 0) {
    reason += "of no rank that is known: start it with vllm serve --headless";
  } else {
    reason += "of rank " + Number(rank) + ", and " +
              (endpoint_.ranks == 1 ? std::string("there is one rank")
                                    : "ranks are below " + Number(endpoint_.ranks)) +
              ": ?ranks=N after the port is the number of its --data-parallel-size";
  }
  for (int32_t rank = 0; rank < endpoint_.ranks; ++rank) {
    PostAll(rank, {.reason = reason, .is_refusal = true});
  }
}

// An engine says hello once, so where this fails it is tried again.
void VllmPort::Begin(int32_t number, Clock::time_point now) {
  Rank& rank = ranks_[static_cast<size_t>(number)];
  rank.greeted_again_at = now + kGreetAgainEvery;
  try {
    OpenAll(number);
  } catch (const zmq::error_t& error) {  // no file descriptor left, say
    PostAll(number,
            {.is_started = true,
             .reason = std::string("an engine has said hello, and there are no sockets for it: ") +
                       error.what()});
    return;
  }
  rank.is_greeted = false;
}

void VllmPort::OpenAll(int32_t rank) {
  ++lives_;
  std::vector<VllmSockets> all;
  std::vector<std::string> inputs, outputs;
  for (int32_t client = 0; client < clients_; ++client) {
    VllmSockets& sockets = all.emplace_back(Open(rank, client));
    inputs.push_back(sockets.input.get(zmq::sockopt::last_endpoint));
    outputs.push_back(sockets.output.get(zmq::sockopt::last_endpoint));
  }
  vllm::WriteAddresses(inputs, outputs, addresses_);
  for (int32_t client = 0; client < clients_; ++client) {
    Post(rank, client,
         {.is_started = true,
          .sockets = std::make_unique<VllmSockets>(std::move(all[static_cast<size_t>(client)])),
          .reason = "it loads its model"});
  }
  const std::string identity = vllm::IdentityOf(rank);
  const bool is_there = link::Send(handshake_, identity, ZMQ_SNDMORE);
  if (is_there) link::Send(handshake_, addresses_);
}

VllmSockets VllmPort::Open(int32_t rank, int32_t client) {
  zmq::socket_t input =
      Bind({.type = zmq::socket_type::router, .is_small = true}, endpoint_.host + ":*");
  zmq::socket_t output = Bind({.type = zmq::socket_type::pull}, endpoint_.host + ":*");
  const std::string name = "inproc://" + endpoint_.name + "-" + Number(rank) + "-" +
                           Number(client) + "-" + Number(lives_);
  PeerWatch input_watch(*context_, input, name + "-input", PeerWatch::Peers::kOne);
  PeerWatch output_watch(*context_, output, name + "-output", PeerWatch::Peers::kOne);
  return {.input = std::move(input),
          .output = std::move(output),
          .input_watch = std::move(input_watch),
          .output_watch = std::move(output_watch)};
}

VllmPort::Clock::time_point VllmPort::Deadline() const {
  Clock::time_point deadline = Clock::time_point::max();
  for (const Rank& rank : ranks_) {
    if (rank.is_greeted) deadline = std::min(deadline, rank.greeted_again_at);
  }
  return deadline;
}

bool VllmPort::HasInput() {
  const bool has_input = link::HasInput(handshake_);
  return link::HasInput(watch_->monitor()) || has_input;  // each is read
}

void VllmPort::AppendPollItems(std::vector<zmq_pollitem_t>& items) {
  items.push_back({handshake_.handle(), 0, ZMQ_POLLIN, 0});
  items.push_back({watch_->monitor().handle(), 0, ZMQ_POLLIN, 0});
}

}  // namespace sluice::link
