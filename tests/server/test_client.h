// An HTTP client of one connection, which waits, and reads no faster than a test asks it to.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::test {

struct TestResponse {
  int status = 0;                                  // 0: there was none
  std::map<std::string, std::string> fields = {};  // names in small letters
  std::string body = {};

  std::string operator[](const std::string& name) const {
    const auto found = fields.find(name);
    return found == fields.end() ? "" : found->second;
  }
};

class TestClient {
 public:
  // Not connected (false) when nobody listens.
  explicit TestClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
  }
  ~TestClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  TestClient(TestClient&& from) noexcept
      : fd_(std::exchange(from.fd_, -1)),
        is_connected_(from.is_connected_),
        input_(std::move(from.input_)) {}
  TestClient& operator=(TestClient&&) = delete;

  explicit operator bool() const { return is_connected_; }
  int fd() const { return fd_; }

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // fields: lines with their ends.
  static std::string Request(std::string_view method, std::string_view path,
                             std::string_view body = "", std::string_view fields = "") {
    std::string text =
        std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n";
    text.append(fields);
    if (!body.empty()) {
      text += "Content-Type: application/json\r\n";
      text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    return text.append("\r\n").append(body);
  }
  TestResponse Get(std::string_view path, std::string_view fields = "") {
    Send(Request("GET", path, "", fields));
    return Read();
  }
  TestResponse Post(std::string_view path, std::string_view body, std::string_view fields = "") {
    Send(Request("POST", path, body, fields));
    return Read();
  }

  // A whole response, that of a stream to its end; `is_head`: one without a body.
  TestResponse Read(bool is_head = false) {
    TestResponse response = ReadHead();
    if (response.status == 0 || response.status == 204 || is_head) return response;
    if (response["transfer-encoding"] == "chunked") {
      while (ReadChunk(response.body)) {
      }
    } else if (!response["content-length"].empty()) {
      const size_t size = std::strtoul(response["content-length"].c_str(), nullptr, 10);
      while (input_.size() < size && Receive()) {
      }
      EXPECT_GE(input_.size(), size) << "a body that broke off";
      response.body = input_.substr(0, size);
      input_.erase(0, size);
    } else {
      while (Receive()) {
      }
      response.body = std::exchange(input_, {});
    }
    return response;
  }
  TestResponse ReadHead() {
    TestResponse response;
    size_t end = 0;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive()) return response;
    }
    const std::string head = input_.substr(0, end + 2);
    input_.erase(0, end + 4);
    EXPECT_TRUE(head.starts_with("HTTP/1.1 ")) << head;
    response.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n") + 2; at < head.size();) {
      const size_t line_end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      response.fields[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    return response;
  }
  // Appends the next piece of a stream; false: that was its end.
  bool ReadChunk(std::string& body) {
    size_t end = 0;
    while ((end = input_.find("\r\n")) == std::string::npos) {
      if (!Receive()) return Broke();
    }
    const size_t size = std::strtoul(input_.c_str(), nullptr, 16);
    while (input_.size() < end + 2 + size + 2) {
      if (!Receive()) return Broke();
    }
    body.append(input_, end + 2, size);
    input_.erase(0, end + 2 + size + 2);
    return size > 0;
  }
  // Whether the server closes the connection, and says nothing more; then this side closes it too.
  bool IsClosed() {
    while (Receive()) {
    }
    ::close(std::exchange(fd_, -1));
    return !has_timed_out_ && input_.empty();
  }
  // Goes away in the middle of whatever it is.
  void Reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(fd_, -1));
  }

 private:
  static bool Broke() {
    ADD_FAILURE() << "a stream that broke off";
    return false;
  }
  // More input; false: the other side is done, or has been silent for ten seconds.
  bool Receive() {
    pollfd waits{fd_, POLLIN, 0};
    has_timed_out_ = ::poll(&waits, 1, 10'000) == 0;
    EXPECT_FALSE(has_timed_out_) << "nothing came";
    if (has_timed_out_) return false;
    char bytes[65536];
    const ssize_t size = ::recv(fd_, bytes, sizeof bytes, 0);
    if (size <= 0) return false;
    input_.append(bytes, static_cast<size_t>(size));
    return true;
  }

  int fd_;
  bool is_connected_ = false;
  bool has_timed_out_ = false;
  std::string input_;
};

}  // namespace sluice::test
