// Peers that vanish without a word: no FIN, no RST, nothing is acknowledged any more.
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

const std::string kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr int kNoNamespace = 77;

// The loopback device of this network namespace.
bool SetLoopback(bool is_up) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = is_up ? IFF_UP : 0;
  const bool is_set = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  ::close(fd);
  return is_set;
}

class Vanishing : public HttpTest {
 public:
  void TestBody() override {}

  // Nothing is unsent, as after most tokens: no write waits that a deadline could end.
  void Run() {
    limits.write_timeout = milliseconds(500);
    Listen();
    Stream();
    const Peer peer = Connect();
    ASSERT_EQ(::send(peer.fd(), kRequest.data(), kRequest.size(), 0), std::ssize(kRequest));
    ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
    ASSERT_TRUE(SetLoopback(false));
    exchange_->stream() += "a token";
    exchange_->Flush();
    EXPECT_EQ(exchange_->unsent(), 0u);
    EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
    EXPECT_EQ(counters.disconnects, 1);
    EXPECT_EQ(listener->connections(), 0);
  }
};

// In a process and a network of its own, so that no other test loses its peers.
TEST(HttpVanished, PeersAreNoticedByWhatTheyDoNotAcknowledge) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !SetLoopback(true)) ::_exit(kNoNamespace);
    {
      Vanishing test;
      test.Run();
    }
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no network namespaces for this user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

class HttpVanishedOption : public HttpTest {};

TEST_F(HttpVanishedOption, IsThatOfEveryConnection) {
  limits.write_timeout = milliseconds(12'345);
  Listen();
  Stream();
  Peer peer = Connect();
  peer.Send(kRequest);
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  sockaddr_in here{};
  socklen_t size = sizeof here;
  ASSERT_EQ(::getsockname(peer.fd(), reinterpret_cast<sockaddr*>(&here), &size), 0);
  int found = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in there{};
    size = sizeof there;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) != 0) continue;
    if (there.sin_port != here.sin_port) continue;
    ++found;
    int timeout = 0;
    size = sizeof timeout;
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &size), 0);
    EXPECT_EQ(timeout, 12'345);
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace sluice::test
