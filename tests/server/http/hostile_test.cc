// Peers that send what they should not: over a real connection, each gets its status, the
// connection ends behind it, and nothing behind it is taken for a request.
#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

class HttpHostile : public HttpTest {
 protected:
  // The one response, behind which the connection is closed.
  int LastStatus(std::string_view bytes) {
    Peer peer = Connect();
    peer.Send(bytes);
    const Response response = peer.Read();
    EXPECT_EQ(response.Field("Connection"), "close") << bytes.substr(0, 200);
    EXPECT_FALSE(response.body.empty());
    EXPECT_TRUE(peer.IsClosed()) << bytes.substr(0, 200);
    return response.status;
  }
};

const std::string kNext = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpHostile, GetsAStatusAndNothingElse) {
  Listen();
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(
      LastStatus(post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + kNext),
      400);
  EXPECT_EQ(LastStatus(post + "Content-Length: 0\r\nContent-Length: 37\r\n\r\n" + kNext), 400);
  EXPECT_EQ(LastStatus(post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + kNext), 400);
  EXPECT_EQ(LastStatus(post + "Transfer-Encoding: gzip\r\n\r\n" + kNext), 501);
  EXPECT_EQ(LastStatus("GET / HTTP/3.0\r\nHost: x\r\n\r\n" + kNext), 505);
  EXPECT_EQ(LastStatus("GET /" + std::string(9000, 'a')), 414);
  EXPECT_EQ(LastStatus("GET / HTTP/1.1\r\nA: " + std::string(33 << 10, 'a')), 431);
  EXPECT_EQ(LastStatus(post + "Expect: wonders\r\n\r\n" + kNext), 417);
  EXPECT_EQ(LastStatus(post + "Content-Length: 34603008\r\n\r\n"), 413);  // 33 MiB
  EXPECT_EQ(counters.malformed_requests, 9);
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 100; ++i) many += "A: b\r\n";
  EXPECT_EQ(LastStatus(many + "\r\n" + kNext), 431);
  EXPECT_TRUE(handler.seen.empty());
  EXPECT_TRUE(Until([&] { return listener->connections() == 0; }));
}

TEST_F(HttpHostile, IsCutOffInALongChunkedBody) {
  limits.body_bytes = 1 << 20;
  Listen();
  Peer peer = Connect();
  peer.Send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'a') + "\r\n";
  for (int i = 0; i < 20; ++i) peer.Send(chunk);
  EXPECT_EQ(peer.Read().status, 413);
  EXPECT_TRUE(peer.IsClosed());
  EXPECT_TRUE(handler.seen.empty());
}

TEST_F(HttpHostile, GetsItsStatusAlsoWhileItSends) {
  // What is unread when a connection is closed makes the kernel reset it, and a reset takes the
  // response with it: so the rest is read and thrown away for a while.
  limits.body_bytes = 1000;
  Listen();
  Peer peer = Connect();
  peer.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n");
  peer.Send(std::string(8'000'000, 'a'));
  EXPECT_EQ(peer.Read().status, 413);
  EXPECT_TRUE(peer.IsClosed());
  EXPECT_FALSE(peer.IsReset());
}

TEST_F(HttpHostile, MayNotPipelineTooMuch) {
  Listen();
  Stream();
  Peer peer = Connect();
  peer.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  peer.Send(std::string(limits.pipelined_bytes, '\n'));
  RunFor(milliseconds(20));
  EXPECT_EQ(log.destroyed, 0);
  peer.Send("\n");
  EXPECT_TRUE(Until([&] { return log.destroyed == 1 && listener->connections() == 0; }));
}

TEST_F(HttpHostile, MayNotSendTooSlowly) {
  limits.header_timeout = milliseconds(60);
  limits.body_bytes_per_second = 1000;  // 60 in that time
  Listen();
  for (const std::string request :
       {"G", "GET / HTTP/1.1\r\nHost: ",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"}) {
    Peer peer = Connect();
    peer.Send(request);
    EXPECT_TRUE(Until([&] {
      ::send(peer.fd(), "a", 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // a few of them in 60 ms
      RunFor(milliseconds(9));
      return !peer.Pull() || !peer.bytes().empty();
    }));
    EXPECT_EQ(peer.Read().status, 408) << request;
  }
  EXPECT_EQ(counters.timeouts, 3);
  EXPECT_TRUE(handler.seen.empty());
}

TEST_F(HttpHostile, ThatIsFastAtFirstMayNotStopLater) {
  limits.header_timeout = milliseconds(60);
  Listen();
  Peer peer = Connect();
  peer.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" +
            std::string(1000000, 'a'));
  EXPECT_EQ(peer.Read().status, 408);  // on average it is fast enough for a quarter of an hour
}

TEST_F(HttpHostile, LeavesBodiesAloneThatAreFastEnough) {
  limits.header_timeout = milliseconds(250);
  Listen();
  Peer peer = Connect();
  peer.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 10; ++i) {
    peer.Send(std::string(100'000, 'a'));
    RunFor(milliseconds(80));
  }
  EXPECT_EQ(peer.Read().status, 200);
}

TEST_F(HttpHostile, IsNotKeptWithoutARequest) {
  limits.idle_timeout = milliseconds(60);
  Listen();
  Peer silent = Connect();
  Peer kept = Connect();
  kept.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(kept.Read().status, 200);
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_TRUE(kept.IsClosed());
  EXPECT_EQ(listener->connections(), 0);
}

TEST_F(HttpHostile, WaitsForAnAnswerAsLongAsItTakes) {
  limits.idle_timeout = limits.header_timeout = limits.write_timeout = milliseconds(30);
  Listen();
  Stream();
  Peer peer = Connect();
  peer.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(Until([&] { return exchange_ != nullptr; }));
  RunFor(milliseconds(200));
  exchange_->stream() += "at last";
  exchange_->End();
  EXPECT_EQ(peer.Read().body, "at last");
}

TEST_F(HttpHostile, ByThousandsDoesNotKeepOthersFromBeingServed) {
  limits.header_timeout = milliseconds(300);
  Listen();
  std::vector<Peer> slow;
  for (int i = 0; i < 2000; ++i) {
    slow.push_back(Connect());
    slow.back().Send("G");
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  for (Peer& peer : slow) ASSERT_EQ(peer.Read().status, 408);
  EXPECT_EQ(counters.timeouts, 2000);
}

}  // namespace
}  // namespace sluice::test
