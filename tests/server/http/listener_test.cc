// Where it listens, how many it takes, and how it ends.
#include "server/http/listener.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sluice/error.hpp"
#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

using server::HttpListener;
using server::ListenAddress;

const std::string kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

class HttpListenerTest : public HttpTest {
 protected:
  std::unique_ptr<HttpListener> Another(const ListenAddress& address,
                                        const HttpListener* first = nullptr) {
    return std::make_unique<HttpListener>(loop, address, limits, handler, counters, first);
  }
  std::string ParameterOf(const ListenAddress& address) {
    try {
      Another(address);
    } catch (const Error& error) {
      return error.parameter();
    }
    return "";
  }
  Peer ConnectTo(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0) << path;
    return {*this, fd};
  }
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-http-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST_F(HttpListenerTest, NamesWhatItCannotListenOn) {
  Listen();
  EXPECT_EQ(ParameterOf({.host = "127.0.0.1", .port = listener->port()}), "port");
  EXPECT_EQ(ParameterOf({.host = "192.0.2.1"}), "host");
  EXPECT_EQ(ParameterOf({.host = "no such host.invalid"}), "host");
  EXPECT_EQ(ParameterOf({.host = ""}), "host");
  EXPECT_EQ(ParameterOf({.unix_socket = "/no/such/folder/socket"}), "unix_socket");
  EXPECT_EQ(ParameterOf({.unix_socket = "/tmp/" + std::string(200, 'a')}), "unix_socket");
}

TEST_F(HttpListenerTest, SharesItsPortWithOtherThreadsOfTheProgram) {
  Listen();
  const auto other = Another({.host = "127.0.0.1"}, listener.get());
  other->Start();
  EXPECT_EQ(other->port(), listener->port());
  std::vector<Peer> peers;
  for (int i = 0; i < 64; ++i) {
    peers.push_back(Connect());
    peers.back().Send(kRequest);
    EXPECT_EQ(peers.back().Read().status, 200);
  }
  EXPECT_EQ(listener->connections() + other->connections(), 64);
  EXPECT_GT(listener->connections(), 0);  // by a hash of the ports: 2^-64 that it is none
  EXPECT_GT(other->connections(), 0);
}

TEST_F(HttpListenerTest, TakesAPortAgainAtOnce) {
  Listen();
  const uint16_t port = listener->port();
  EXPECT_EQ(Ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").status, 200);
  listener.reset();
  Listen({.host = "127.0.0.1", .port = port});
  EXPECT_EQ(Ask(kRequest).status, 200);
}

TEST_F(HttpListenerTest, ListensOnIpv6) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    GTEST_SKIP() << "this machine has no IPv6";
  }
  Peer peer(*this, fd);
  Listen({.host = "::1"});
  address.sin6_port = htons(listener->port());
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  peer.Send(kRequest);
  EXPECT_EQ(peer.Read().status, 200);
}

TEST_F(HttpListenerTest, ListensAtAPathForItsGroup) {
  const TemporaryFolder folder;
  const std::string path = folder / "socket";
  Listen({.unix_socket = path});
  struct stat status{};
  ASSERT_EQ(::lstat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  Peer peer = ConnectTo(path);
  peer.Send(kRequest);
  EXPECT_EQ(peer.Read().status, 200);

  EXPECT_EQ(ParameterOf({.unix_socket = path}), "unix_socket");  // somebody answers
  ASSERT_EQ(::lstat(path.c_str(), &status), 0);

  auto other = Another({.unix_socket = path}, listener.get());
  other->Start();
  other.reset();
  ASSERT_EQ(::lstat(path.c_str(), &status), 0);  // it is the first one's
  Peer next = ConnectTo(path);
  next.Send(kRequest);
  EXPECT_EQ(next.Read().status, 200);

  listener->StopAccepting();
  EXPECT_NE(::lstat(path.c_str(), &status), 0);
}

TEST_F(HttpListenerTest, ReplacesASocketThatNobodyHas) {
  const TemporaryFolder folder;
  const std::string path = folder / "socket";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  ::close(fd);  // as one that was killed
  Listen({.unix_socket = path});
  Peer peer = ConnectTo(path);
  peer.Send(kRequest);
  EXPECT_EQ(peer.Read().status, 200);

  const std::string file = folder / "file";
  std::ofstream(file) << "precious";
  EXPECT_EQ(ParameterOf({.unix_socket = file}), "unix_socket");
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(HttpListenerTest, RefusesConnectionsBeyondTheLimit) {
  limits.connections = 2;
  Listen();
  Peer first = Connect();
  {
    Peer second = Connect();
    ASSERT_TRUE(Until([&] { return listener->connections() == 2; }));
    Peer third = Connect();
    const Response response = third.Read();
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.Field("Connection"), "close");
    EXPECT_TRUE(third.IsClosed());
    EXPECT_EQ(counters.refused_connections, 1);
  }
  ASSERT_TRUE(Until([&] { return listener->connections() == 1; }));
  EXPECT_EQ(Ask(kRequest).status, 200);
}

TEST_F(HttpListenerTest, PausesWithoutDescriptorsAndRecovers) {
  Listen();
  Stream();
  Peer live = Connect();
  live.Send(kRequest);
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  handler.handle = {};

  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  const int spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<int> taken;
  for (int fd = ::dup(spare); fd >= 0; fd = ::dup(spare)) taken.push_back(fd);
  ::close(spare);
  const auto begin = std::chrono::steady_clock::now();  // before the first pause
  Peer waiting = Connect();                             // has the last one

  ASSERT_TRUE(Until([&] { return counters.accept_pauses >= 2; }));
  exchange_->stream() += "goes on";
  exchange_->Flush();
  EXPECT_TRUE(live.ReadUntil("goes on"));
  const auto passed =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  EXPECT_LE(counters.accept_pauses, passed / milliseconds(100) + 1);  // no busy loop
  EXPECT_EQ(counters.connections, 1);

  for (const int fd : taken) ::close(fd);
  waiting.Send(kRequest);
  EXPECT_EQ(waiting.Read().status, 200);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(HttpListenerTest, StopsWhenTheExchangesAreOver) {
  Listen();
  Peer idle = Connect();
  idle.Send(kRequest);
  EXPECT_EQ(idle.Read().status, 200);
  Peer half = Connect();
  half.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo");
  Stream();
  Peer live = Connect();
  live.Send(kRequest + kRequest);  // the second one comes too late
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  handler.handle = {};

  listener->StopAccepting();
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(listener->connections(), 2);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(listener->port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);

  half.Send("dy");
  const Response response = half.Read();
  EXPECT_EQ(response.body, "POST / body");
  EXPECT_EQ(response.Field("Connection"), "close");
  EXPECT_TRUE(half.IsClosed());

  exchange_->stream() += "the end";
  exchange_->End();
  EXPECT_EQ(live.Read().body, "the end");
  EXPECT_TRUE(live.IsClosed());
  EXPECT_EQ(handler.seen.size(), 3u);
  half.Close();
  live.Close();
  EXPECT_TRUE(Until([&] { return listener->connections() == 0; }));
}

TEST_F(HttpListenerTest, EndsInAnyState) {
  {
    auto never_started = Another({.host = "127.0.0.1"});
  }
  Listen();
  Peer waiting = Connect();  // in the kernel
  listener.reset();
  Listen();
  Peer taken = Connect();
  ASSERT_TRUE(Until([&] { return listener->connections() == 1; }));
  listener->StopAccepting();
  listener->StopAccepting();
  listener->CloseAll();
  listener.reset();
  EXPECT_EQ(counters.connections, 0);
}

}  // namespace
}  // namespace sluice::test
