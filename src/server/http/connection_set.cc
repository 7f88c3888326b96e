#include "server/http/connection_set.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <ctime>
#include <utility>

#include "support/random_seed.h"

namespace sluice::server {
namespace {

using std::chrono::milliseconds;

// For a peer to read the last response before what it still sends makes the kernel reset the
// connection.
constexpr milliseconds kLinger{2000};

// A body that the budget never has room for is too long, whatever others are in memory.
HttpLimits WithinBudget(HttpLimits limits) {
  limits.body_bytes = std::min(limits.body_bytes, BodyShare::Longest(limits.inflight_bytes));
  return limits;
}

}  // namespace

ConnectionSet::ConnectionSet(boost::asio::io_context& loop, const HttpLimits& limits,
                             Handler& handler, HttpCounters& counters, const TlsContext* tls)
    : loop_(loop),
      limits_(WithinBudget(limits)),
      handler_(handler),
      counters_(counters),
      tls_(tls),
      deadlines_({limits.idle_timeout, limits.header_timeout, limits.header_timeout,
                  limits.write_timeout, kLinger}),
      timer_(loop.get_executor()),
      // No deadline is more than a sixteenth late.
      tick_(std::clamp(
          std::min({limits.idle_timeout, limits.header_timeout, limits.write_timeout}) / 16,
          milliseconds(1), milliseconds(500))),
      id_seed_(RandomSeed()) {}

ConnectionSet::~ConnectionSet() = default;

void ConnectionSet::Add(int fd) {
  counters_.connections_seen.fetch_add(1, std::memory_order_relaxed);
  if (counters_.connections.load(std::memory_order_relaxed) >= limits_.connections) {
    Refuse(fd);
    return;
  }
  boost::intrusive_ptr<Connection> connection;
  try {
    connection = new Connection(*this, loop_, fd);
  } catch (const std::exception&) {  // no memory, or no room in epoll: the others go on
    counters_.refused_connections.fetch_add(1, std::memory_order_relaxed);
    ::close(fd);
    return;
  }
  intrusive_ptr_add_ref(connection.get());  // the list's
  connections_.push_back(*connection);
  ++size_;
  counters_.connections.fetch_add(1, std::memory_order_relaxed);
  connection->Start();
}

// As good as it can without waiting: a peer that has sent its request already gets to read this,
// and not only that the connection was reset.
void ConnectionSet::Refuse(int fd) {
  counters_.refused_connections.fetch_add(1, std::memory_order_relaxed);
  if (tls_ != nullptr) {  // a handshake would cost more than a refusal may
    ::close(fd);
    return;
  }
  try {
    std::string bytes;
    HttpRequest request;
    request.id = NewId();
    const HttpResponse response =
        handler_.Malformed(request, 503, "there are too many connections");
    AppendHead(response, {.connection = HeadStyle::Connection::kClose}, request.id, Date(), bytes);
    bytes.append(response.body);
    (void)::recv(fd, input_.data(), input_.size(), MSG_DONTWAIT);
    (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(fd, SHUT_WR);
  } catch (const std::exception&) {  // no memory for words
  }
  ::close(fd);
}

void ConnectionSet::Remove(Connection& connection) {
  connections_.erase(connections_.iterator_to(connection));
  --size_;
  counters_.connections.fetch_sub(1, std::memory_order_relaxed);
  PublishCounts();
  intrusive_ptr_release(&connection);
}

void ConnectionSet::BeginHandshake(Connection& connection) {
  handshakes_.push_back(connection);
  if (std::ssize(handshakes_) <= limits_.handshakes) return;
  counters_.refused_connections.fetch_add(1, std::memory_order_relaxed);
  handshakes_.front().Close(true);
}

void ConnectionSet::EndHandshake(Connection& connection) {
  if (connection.is_in_handshake()) handshakes_.erase(handshakes_.iterator_to(connection));
}

void ConnectionSet::StopAfterExchanges() {
  is_stopping_ = true;
  for (auto at = connections_.begin(); at != connections_.end();) {
    Connection& connection = *at++;
    connection.StopAfterExchange();
  }
}

void ConnectionSet::CloseAll() {
  while (!connections_.empty()) connections_.front().Close(true);
}

void ConnectionSet::End() {
  is_over_ = true;
  CloseAll();
  deferred_.clear();
  timer_.cancel();
}

std::string_view ConnectionSet::Date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 64> text;
    // In English whatever the locale: no code of this project sets one.
    date_.assign(text.data(),
                 std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts));
  }
  return date_;
}

std::string ConnectionSet::NewId() {
  std::array<char, 40> text;
  const int size = std::snprintf(text.data(), text.size(), "req-%016llx%08llx",
                                 static_cast<unsigned long long>(id_seed_),
                                 static_cast<unsigned long long>(++ids_));
  return {text.data(), static_cast<size_t>(size)};
}

void ConnectionSet::EnterWait(Timed& timed, WaitKind kind) {
  deadlines_.Enter(timed, kind, Clock::now());
  if (!is_timer_on_) StartTimer();
}

void ConnectionSet::StartTimer() {
  timer_.expires_after(tick_);
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->is_timer_on_ = false;
    if (!error && !self->is_over_) self->OnTimer();
  });
  is_timer_on_ = true;
}

void ConnectionSet::OnTimer() {
  const Clock::time_point now = Clock::now();
  while (Timed* const late = deadlines_.TakeLate(now)) {
    static_cast<Connection*>(late)->OnDeadline();
  }
  PublishCounts();
  if (!is_timer_on_ && !deadlines_.empty()) StartTimer();
}

void ConnectionSet::Defer(Connection& connection) {
  if (is_over_) return;
  deferred_.emplace_back(&connection);
  if (is_settling_posted_) return;
  boost::asio::post(loop_, [self = shared_from_this()] { self->SettleDeferred(); });
  is_settling_posted_ = true;
}

void ConnectionSet::SettleDeferred() {
  is_settling_posted_ = false;
  settling_.swap(deferred_);
  for (const auto& connection : settling_) connection->OnDeferred();
  settling_.clear();
}

void ConnectionSet::PublishCounts() {
  counters_.writes.fetch_add(std::exchange(writes_, 0), std::memory_order_relaxed);
  counters_.bytes_out.fetch_add(std::exchange(bytes_out_, 0), std::memory_order_relaxed);
}

}  // namespace sluice::server
