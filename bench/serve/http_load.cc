#include "bench/serve/http_load.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>

#include "bench/serve/http_stream.h"

namespace sluice::bench {
namespace {

float Milliseconds(int64_t ns) { return static_cast<float>(static_cast<double>(ns) * 1e-6); }

// The text after the field of this name, wherever it is; empty without it.
std::string_view AfterField(std::string_view json, std::string_view name) {
  const size_t at = json.find(name);
  if (at == std::string_view::npos) return {};
  const size_t value = json.find_first_not_of(": ", at + name.size());
  return value == std::string_view::npos ? std::string_view() : json.substr(value);
}

// -1 without it.
int64_t Field(std::string_view json, std::string_view name) {
  const std::string_view rest = AfterField(json, name);
  int64_t value = -1;
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value;
}

bool HasText(std::string_view json) {
  for (const std::string_view name : {R"("text")", R"("content")"}) {
    const std::string_view text = AfterField(json, name);
    if (text.starts_with('"') && !text.starts_with(R"("")")) return true;
  }
  return false;
}

// A connection and the request that is on it.
struct Caller {
  int fd = -1;
  bool is_connected = false;
  HttpStream stream;
  std::string out;
  size_t sent = 0;

  int64_t request = -1;
  int64_t begin = 0;
  int64_t first = 0;
  int64_t last = 0;
  int64_t texts = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  bool is_done = false;  // [DONE] has come
  std::string error;
};

class Load {
 public:
  explicit Load(const LoadOptions& options)
      : options_(options), epoll_(epoll_create1(EPOLL_CLOEXEC)), random_(options.seed) {
    if (epoll_ < 0) throw std::runtime_error(std::strerror(errno));
  }
  ~Load() {
    for (const auto& caller : callers_) {
      if (caller->fd >= 0) close(caller->fd);
    }
    close(epoll_);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  LoadResult Run() {
    start_ = MonotonicNs();
    next_arrival_ = start_;
    const auto end = start_ + static_cast<int64_t>(options_.timeout_seconds * 1e9);
    while (result_.completed + result_.failed < options_.requests) {
      int64_t now = MonotonicNs();
      Arrive(now);
      if (now > end) throw std::runtime_error("the load took longer than its time-out");
      Wait(now);
    }
    result_.seconds = static_cast<double>(MonotonicNs() - start_) * 1e-9;
    return std::move(result_);
  }

 private:
  void Arrive(int64_t now) {
    while (arrived_ < options_.requests && next_arrival_ <= now) {
      waiting_.push_back(next_arrival_);
      ++arrived_;
      if (options_.rate > 0) {
        std::exponential_distribution<double> gap(options_.rate);
        next_arrival_ += static_cast<int64_t>(gap(random_) * 1e9);
      }
    }
    while (!waiting_.empty() && (options_.concurrency == 0 || live_ < options_.concurrency)) {
      // A connection that waits here has not sent its request yet.
      Begin(options_.concurrency == 0 ? waiting_.front() : now);
      waiting_.pop_front();
    }
  }

  void Begin(int64_t begin) {
    Caller* caller = nullptr;
    if (!idle_.empty()) {
      caller = idle_.back();
      idle_.pop_back();
    } else {
      callers_.push_back(std::make_unique<Caller>());
      caller = callers_.back().get();
      Open(*caller);
    }
    caller->request = begun_++;
    caller->begin = begin;
    caller->first = caller->last = 0;
    caller->texts = caller->prompt_tokens = caller->output_tokens = 0;
    caller->is_done = false;
    caller->error.clear();
    caller->stream.Reset();
    const std::string body = options_.body(caller->request);
    caller->out =
        "POST " + options_.path + " HTTP/1.1\r\nHost: " + options_.server.host +
        "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size());
    if (!options_.api_key.empty()) caller->out += "\r\nAuthorization: Bearer " + options_.api_key;
    caller->out += "\r\n\r\n" + body;
    caller->sent = 0;
    ++live_;
    if (caller->is_connected) Send(*caller);
  }

  void Open(Caller& caller) {
    caller.fd = Connect(options_.server);
    if (caller.fd < 0) throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
    caller.is_connected = false;
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = &caller}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, caller.fd, &event);
  }

  void Send(Caller& caller) {
    while (caller.sent < caller.out.size()) {
      const ssize_t size = send(caller.fd, caller.out.data() + caller.sent,
                                caller.out.size() - caller.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size <= 0) return;  // what is wrong is seen by the next read
      caller.sent += static_cast<size_t>(size);
    }
  }

  void Wait(int64_t now) {
    int timeout = 100;
    if (arrived_ < options_.requests) {
      const int64_t gap = (next_arrival_ - now) / 1'000'000;
      timeout = static_cast<int>(std::clamp<int64_t>(gap, 0, timeout));
    }
    epoll_event events[512];
    const int count = epoll_wait(epoll_, events, 512, timeout);
    for (int i = 0; i < count; ++i) {
      Caller& caller = *static_cast<Caller*>(events[i].data.ptr);
      if ((events[i].events & EPOLLOUT) != 0) {
        caller.is_connected = true;
        Send(caller);
      }
      if ((events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) Read(caller);
    }
  }

  void Read(Caller& caller) {
    static thread_local char buffer[1 << 16];
    for (;;) {
      const ssize_t size = recv(caller.fd, buffer, sizeof buffer, 0);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      const int64_t now = MonotonicNs();
      if (size <= 0) {
        const std::string why = size < 0 ? std::strerror(errno) : "closed in the middle";
        const bool is_whole = size == 0 && caller.stream.Close();
        if (caller.request >= 0) End(caller, now, is_whole ? "" : why);
        Drop(caller);
        return;
      }
      result_.bytes += size;
      const bool is_whole =
          caller.stream.Read(std::string_view(buffer, static_cast<size_t>(size)),
                             [&](std::string_view data) { Take(caller, data, now); });
      if (is_whole && caller.request >= 0) {
        End(caller, now, "");
        if (!caller.stream.keeps_alive()) {
          Drop(caller);
          return;
        }
        idle_.push_back(&caller);
      }
      if (static_cast<size_t>(size) < sizeof buffer) return;
    }
  }

  void Take(Caller& caller, std::string_view data, int64_t now) {
    ++result_.events;
    if (data == "[DONE]") {
      caller.is_done = true;
      return;
    }
    if (data.starts_with(R"({"error")")) caller.error = std::string(data.substr(0, 200));
    if (const int64_t tokens = Field(data, R"("completion_tokens")"); tokens >= 0) {
      caller.output_tokens = tokens;
      caller.prompt_tokens = std::max<int64_t>(Field(data, R"("prompt_tokens")"), 0);
    }
    if (!HasText(data)) return;
    if (options_.on_text) {
      const int64_t tokens = std::max(caller.output_tokens, caller.texts + 1);
      options_.on_text(caller.request, tokens, now);
    }
    if (caller.texts == 0) {
      caller.first = now;
      result_.first_token.push_back(Milliseconds(now - caller.begin));
    } else {
      result_.between_events.push_back(Milliseconds(now - caller.last));
    }
    caller.last = now;
    ++caller.texts;
  }

  void End(Caller& caller, int64_t now, const std::string& why) {
    std::string wrong = why;
    if (wrong.empty() && caller.stream.status() != 200) {
      wrong = "status " + std::to_string(caller.stream.status()) + ": " +
              caller.stream.body().substr(0, 200);
    }
    if (wrong.empty()) wrong = caller.error;
    if (wrong.empty() && !caller.is_done) wrong = "the stream ended without [DONE]";
    if (wrong.empty()) {
      ++result_.completed;
      const int64_t tokens = caller.output_tokens > 0 ? caller.output_tokens : caller.texts;
      result_.output_tokens += tokens;
      result_.prompt_tokens += caller.prompt_tokens;
      result_.end_to_end.push_back(Milliseconds(now - caller.begin));
      if (tokens > 1 && caller.texts > 1) {
        result_.time_per_token.push_back(Milliseconds(caller.last - caller.first) /
                                         static_cast<float>(tokens - 1));
      }
    } else {
      ++result_.failed;
      ++result_.failures[wrong];
    }
    caller.request = -1;
    --live_;
    if (options_.on_progress) options_.on_progress(result_.completed + result_.failed);
  }

  void Drop(Caller& caller) {
    std::erase(idle_, &caller);
    close(caller.fd);
    caller.fd = -1;
    std::erase_if(callers_, [&](const auto& other) { return other.get() == &caller; });
  }

  const LoadOptions& options_;
  const int epoll_;
  std::mt19937_64 random_;
  LoadResult result_;
  std::deque<std::unique_ptr<Caller>> callers_;
  std::vector<Caller*> idle_;  // connected, without a request
  std::deque<int64_t> waiting_;
  int64_t start_ = 0;
  int64_t next_arrival_ = 0;
  int64_t arrived_ = 0;
  int64_t begun_ = 0;
  int64_t live_ = 0;
};

}  // namespace

LoadResult RunLoad(const LoadOptions& options) { return Load(options).Run(); }

namespace {

HttpStream Get(const Endpoint& server, const std::string& path) {
  HttpStream http;
  const int fd = Connect(server);
  if (fd < 0) return http;
  pollfd file{fd, POLLOUT, 0};
  poll(&file, 1, 1000);
  const std::string request =
      "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  char buffer[4096];
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    file.events = POLLIN;
    while (poll(&file, 1, 1000) == 1) {
      const ssize_t size = recv(fd, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      const std::string_view bytes(buffer, static_cast<size_t>(size));
      if (http.Read(bytes, [](std::string_view) {})) break;
    }
  }
  close(fd);
  return http;
}

}  // namespace

std::string GetBody(const Endpoint& server, const std::string& path) {
  const HttpStream http = Get(server, path);
  if (http.status() == 200) return http.body();
  throw std::runtime_error("GET " + path + ": status " + std::to_string(http.status()));
}

int GetStatus(const Endpoint& server, const std::string& path) {
  const HttpStream http = Get(server, path);
  return http.status() == 0 ? -1 : http.status();
}

int64_t MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
}

int Connect(const Endpoint& server) {
  const addrinfo hints{.ai_flags = AI_NUMERICSERV,
                       .ai_family = AF_UNSPEC,
                       .ai_socktype = SOCK_STREAM,
                       .ai_protocol = 0,
                       .ai_addrlen = 0,
                       .ai_addr = nullptr,
                       .ai_canonname = nullptr,
                       .ai_next = nullptr};
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &hints, &found);
      error != 0) {
    throw std::runtime_error(server.host + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

}  // namespace sluice::bench
