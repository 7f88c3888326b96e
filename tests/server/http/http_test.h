// A listener, its Handler and its peers, all in one thread: the loop runs while a peer waits.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/listener.h"

namespace sluice::test {

using server::Answer;
using server::Exchange;
using server::HttpRequest;
using server::HttpResponse;
using std::chrono::milliseconds;

// Says what became of it.
struct AnswerLog {
  int destroyed = 0;
  int rooms = 0;
  std::function<void()> on_room = {};
};

class LoggedAnswer : public Answer {
 public:
  explicit LoggedAnswer(AnswerLog& log) : log_(log) {}
  ~LoggedAnswer() override { ++log_.destroyed; }
  void OnRoom() override {
    ++log_.rooms;
    if (log_.on_room) log_.on_room();
  }

 private:
  AnswerLog& log_;
};

// Answers with what was asked, unless told otherwise.
class EchoHandler : public server::Handler {
 public:
  std::function<std::optional<HttpResponse>(const HttpRequest&)> refuse = {};
  std::function<std::unique_ptr<Answer>(Exchange&)> handle = {};
  std::vector<HttpRequest> seen = {};

  std::optional<HttpResponse> Refuse(const HttpRequest& head) override {
    return refuse ? refuse(head) : std::nullopt;
  }
  std::unique_ptr<Answer> Handle(Exchange& exchange) override {
    seen.push_back(exchange.request());
    if (handle) return handle(exchange);
    const HttpRequest& request = exchange.request();
    exchange.Respond({.content_type = "text/plain",
                      .body = request.method + " " + request.path + " " + request.body});
    return nullptr;
  }
  HttpResponse Malformed(const HttpRequest&, int status, std::string_view what) override {
    return {.status = status, .content_type = "text/plain", .body = std::string(what)};
  }
};

struct Response {
  int status = 0;  // 0: none came
  std::string head = {};
  std::string body = {};

  std::string Field(std::string_view name) const {
    const size_t at = head.find("\r\n" + std::string(name) + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class HttpTest;

// A client of bare bytes.
class Peer {
 public:
  Peer(HttpTest& test, int fd) : test_(&test), fd_(fd) {}
  Peer(Peer&& other) noexcept
      : test_(other.test_), fd_(std::exchange(other.fd_, -1)), bytes_(std::move(other.bytes_)) {}
  ~Peer() { Close(); }

  int fd() const { return fd_; }
  bool Send(std::string_view bytes);  // while the loop runs; false if not all could be sent
  void EndInput() { ::shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void Reset() {
    const linger at_once{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    Close();
  }

  // The next response; its body by its length, by its chunks, or to the end.
  Response Read(bool has_body = true);
  std::string ReadAll();                  // to the end of input
  bool ReadUntil(std::string_view text);  // it has come; what came stays in bytes()
  bool IsClosed();                        // by the server, in time, and nothing more came
  bool IsReset() const { return was_reset_; }
  const std::string& bytes() const { return bytes_; }
  bool Pull();  // what has come; false at the end

 private:
  HttpTest* test_;
  int fd_;
  std::string bytes_;
  bool is_at_end_ = false;
  bool was_reset_ = false;
};

class HttpTest : public testing::Test {
 protected:
  friend class Peer;

  void Listen(server::ListenAddress address = {.host = "127.0.0.1"}) {
    listener = std::make_unique<server::HttpListener>(loop, address, limits, handler, counters);
    listener->Start();
  }

  Peer Connect(int receive_buffer = 0) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << std::generic_category().message(errno);
    return {*this, fd};
  }

  Response Ask(std::string_view request) {
    Peer peer = Connect();
    peer.Send(request);
    return peer.Read();
  }

  // Runs the loop until it is so; false when it is not within ten seconds.
  bool Until(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_so()) {
      if (std::chrono::steady_clock::now() > end) return false;
      loop.restart();
      loop.run_one_for(milliseconds(1));
      loop.poll();
    }
    return true;
  }
  void RunFor(milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      loop.restart();
      loop.run_one_for(milliseconds(1));
    }
  }

  // A Handler that begins a stream, and keeps the exchange and what became of it.
  void Stream() {
    handler.handle = [this](Exchange& exchange) {
      exchange_ = &exchange;
      exchange.Begin({.content_type = "text/event-stream"});
      return std::make_unique<LoggedAnswer>(log);
    };
  }

  boost::asio::io_context loop;
  HttpLimits limits;
  server::HttpCounters counters;
  EchoHandler handler;
  AnswerLog log;
  Exchange* exchange_ = nullptr;
  std::unique_ptr<server::HttpListener> listener;
};

inline bool Peer::Pull() {
  char buffer[65536];
  const ssize_t size = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
  if (size > 0) bytes_.append(buffer, static_cast<size_t>(size));
  if (size < 0 && errno != EAGAIN) was_reset_ = true;
  is_at_end_ |= size == 0 || was_reset_;
  return !is_at_end_;
}

inline bool Peer::Send(std::string_view bytes) {
  EXPECT_TRUE(test_->Until([&] {
    const ssize_t size = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
    return bytes.empty() || (size < 0 && errno != EAGAIN);
  }));
  return bytes.empty();
}

inline std::string Peer::ReadAll() {
  EXPECT_TRUE(test_->Until([&] { return !Pull(); })) << "still open; so far: " << bytes_;
  return std::exchange(bytes_, {});
}

inline bool Peer::ReadUntil(std::string_view text) {
  return test_->Until([&] { return bytes_.find(text) != std::string::npos || (!Pull() && false); });
}

inline bool Peer::IsClosed() {
  return test_->Until([&] { return !Pull(); }) && bytes_.empty();
}

inline Response Peer::Read(bool has_body) {
  Response response;
  const auto come = [&](size_t size) {
    return test_->Until([&] { return bytes_.size() >= size || !Pull(); }) && bytes_.size() >= size;
  };
  const auto line = [&](std::string_view end, size_t from) {
    size_t at = std::string::npos;
    (void)test_->Until([&] {
      at = bytes_.find(end, from);
      return at != std::string::npos || !Pull();
    });
    return bytes_.find(end, from);
  };
  const size_t end = line("\r\n\r\n", 0);
  if (end == std::string::npos) return response;
  response.head = bytes_.substr(0, end + 2);
  bytes_.erase(0, end + 4);
  std::from_chars(response.head.data() + 9, response.head.data() + 12, response.status);
  if (!has_body || response.status == 100 || response.status == 204) return response;
  if (const std::string length = response.Field("Content-Length"); !length.empty()) {
    const size_t size = std::stoul(length);
    if (!come(size)) return {};
    response.body = bytes_.substr(0, size);
    bytes_.erase(0, size);
  } else if (response.Field("Transfer-Encoding") == "chunked") {
    for (size_t size = 1; size > 0;) {
      const size_t eol = line("\r\n", 0);
      if (eol == std::string::npos) return {};
      size = std::stoul(bytes_.substr(0, eol), nullptr, 16);
      if (!come(eol + 2 + size + 2)) return {};
      response.body += bytes_.substr(eol + 2, size);
      bytes_.erase(0, eol + 2 + size + 2);
    }
  } else {
    response.body = ReadAll();
  }
  return response;
}

}  // namespace sluice::test
