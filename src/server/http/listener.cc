#include "server/http/listener.h"

#include <sys/socket.h>

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <cerrno>
#include <chrono>

#include "server/http/connection_set.h"
#include "server/http/listen_socket.h"

namespace sluice::server {
namespace {

// Accepted in one event; then connections that are there have a turn.
constexpr int kAcceptsAtOnce = 64;
// Without a descriptor or memory left, new connections wait so long in the kernel for the next try.
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

// Shared with the waits of the loop, which may come back when the listener is gone.
class HttpListener::Impl : public std::enable_shared_from_this<HttpListener::Impl> {
 public:
  Impl(boost::asio::io_context& loop, const ListenAddress& address, const HttpLimits& limits,
       Handler& handler, HttpCounters& counters, const Impl* first, const TlsContext* tls)
      : connections_(std::make_shared<ConnectionSet>(loop, limits, handler, counters, tls)),
        socket_(address, limits, first == nullptr ? nullptr : &first->socket_),
        port_(socket_.port()),
        waiter_(loop.get_executor()),
        pause_(loop.get_executor()) {}

  void Start() {
    if (is_stopped_ || waiter_.is_open()) return;
    waiter_.assign(socket_.fd());
    WaitForConnections();
  }

  void StopAccepting() {
    StopListening();
    connections_->StopAfterExchanges();
  }

  void End() {
    StopListening();
    connections_->End();
  }

  ConnectionSet& connections() { return *connections_; }
  uint16_t port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Executor = boost::asio::io_context::executor_type;

  void StopListening() {
    is_stopped_ = true;
    if (waiter_.is_open()) waiter_.release();
    pause_.cancel();
    socket_.Close();
  }

  void WaitForConnections() {
    waiter_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                       [self = shared_from_this()](const boost::system::error_code&) {
                         if (!self->is_stopped_) self->Accept();
                       });
  }

  void Accept() {
    for (int accepted = 0; accepted < kAcceptsAtOnce; ++accepted) {
      const int fd = ::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        connections_->Add(fd);
        continue;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return Pause();
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      // Any other error belongs to one connection, which is gone.
    }
    WaitForConnections();
  }

  void Pause() {
    connections_->counters().accept_pauses.fetch_add(1, std::memory_order_relaxed);
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](const boost::system::error_code&) {
      if (!self->is_stopped_) self->Accept();
    });
  }

  std::shared_ptr<ConnectionSet> connections_;
  ListenSocket socket_;
  uint16_t port_;
  boost::asio::posix::basic_stream_descriptor<Executor> waiter_;  // for connections; owns nothing
  boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Executor> pause_;
  bool is_stopped_ = false;
};

HttpListener::HttpListener(boost::asio::io_context& loop, const ListenAddress& address,
                           const HttpLimits& limits, Handler& handler, HttpCounters& counters,
                           const HttpListener* first, const TlsContext* tls)
    : impl_(std::make_shared<Impl>(loop, address, limits, handler, counters,
                                   first == nullptr ? nullptr : first->impl_.get(), tls)) {}

HttpListener::~HttpListener() { impl_->End(); }

uint16_t HttpListener::port() const { return impl_->port(); }
void HttpListener::Start() { impl_->Start(); }
void HttpListener::StopAccepting() { impl_->StopAccepting(); }
int64_t HttpListener::connections() const { return impl_->connections().size(); }
void HttpListener::CloseAll() { impl_->connections().CloseAll(); }

}  // namespace sluice::server
