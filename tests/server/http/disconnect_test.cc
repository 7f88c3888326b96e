// Peers that leave, at any moment: the Answer is destroyed, once, and never inside a call of it.
#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

const std::string kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

class HttpDisconnect : public HttpTest {
 protected:
  Peer BeginStream() {
    Stream();
    exchange_ = nullptr;
    Peer peer = Connect();
    peer.Send(kRequest);
    EXPECT_TRUE(Until([&] { return exchange_ != nullptr; }));
    return peer;
  }
  bool IsOver(int answers = 1) {
    return Until([&] { return log.destroyed == answers && listener->connections() == 0; });
  }
};

TEST_F(HttpDisconnect, IsSeenBeforeAnythingIsWritten) {
  Listen();
  for (int i = 1; i <= 2; ++i) {
    Peer peer = BeginStream();
    i == 1 ? peer.Close() : peer.Reset();
    EXPECT_TRUE(IsOver(i));
  }
  EXPECT_EQ(counters.disconnects, 2);
}

TEST_F(HttpDisconnect, IsSeenOfOneThatWaitsForAWholeResponse) {
  Listen();
  bool has_come = false;
  handler.handle = [&](Exchange&) {
    has_come = true;
    return std::make_unique<LoggedAnswer>(log);
  };
  Peer peer = Connect();
  peer.Send(kRequest);
  ASSERT_TRUE(Until([&] { return has_come; }));
  peer.Close();
  EXPECT_TRUE(IsOver());
}

TEST_F(HttpDisconnect, IsSeenBehindPipelinedBytes) {
  Listen();
  Peer peer = BeginStream();
  peer.Send(kRequest + kRequest);
  peer.Close();
  EXPECT_TRUE(IsOver());
  EXPECT_EQ(handler.seen.size(), 1u);
}

TEST_F(HttpDisconnect, IsNoDisconnectBetweenRequests) {
  Listen();
  Peer peer = Connect();
  peer.Send(kRequest);
  EXPECT_EQ(peer.Read().status, 200);
  peer.Close();
  EXPECT_TRUE(Until([&] { return listener->connections() == 0; }));
  EXPECT_EQ(counters.disconnects, 0);
}

TEST_F(HttpDisconnect, FoundByFlushWaitsForTheLoop) {
  Listen();
  Peer peer = BeginStream();
  peer.Reset();
  for (int i = 0; i < 100; ++i) {
    exchange_->stream() += "data";
    exchange_->Flush();
    ASSERT_EQ(log.destroyed, 0);
  }
  exchange_->End();
  EXPECT_EQ(log.destroyed, 0);
  EXPECT_TRUE(IsOver());
}

TEST_F(HttpDisconnect, WhileTheLastBytesAreSent) {
  Listen();
  Peer peer = BeginStream();
  exchange_->stream().append(size_t{8} << 20, 'x');
  exchange_->End();
  EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
  EXPECT_EQ(listener->connections(), 1);
  peer.Reset();
  EXPECT_TRUE(IsOver());
  EXPECT_EQ(counters.disconnects, 1);
}

TEST_F(HttpDisconnect, InsideOfHandle) {
  Listen();
  Peer* leaving = nullptr;
  handler.handle = [&](Exchange& exchange) {
    leaving->Reset();
    exchange.Begin({});
    for (int i = 0; i < 3; ++i) {
      exchange.stream() += "data";
      exchange.Flush();
    }
    return std::make_unique<LoggedAnswer>(log);
  };
  Peer peer = Connect();
  leaving = &peer;
  peer.Send(kRequest);
  EXPECT_TRUE(IsOver());
}

TEST_F(HttpDisconnect, OfAHalfIsOneByDefault) {
  Listen();
  Peer peer = BeginStream();
  peer.EndInput();
  EXPECT_TRUE(IsOver());
}

TEST_F(HttpDisconnect, OfAHalfIsNoneWhereItIsAllowed) {
  limits.allows_half_close = true;
  Listen();
  Peer peer = BeginStream();
  peer.EndInput();
  RunFor(milliseconds(20));
  exchange_->stream() += "still here";
  exchange_->End();
  EXPECT_EQ(peer.Read().body, "still here");
  EXPECT_TRUE(IsOver());
  EXPECT_EQ(counters.disconnects, 0);

  // And then the other half: without a write.
  Peer other = BeginStream();
  other.EndInput();
  RunFor(milliseconds(20));
  EXPECT_EQ(log.destroyed, 1);
  other.Reset();
  EXPECT_TRUE(IsOver(2));
}

TEST_F(HttpDisconnect, OfAHalfLeavesWhatWasPipelined) {
  limits.allows_half_close = true;
  Listen();
  Peer peer = Connect();
  peer.Send(kRequest + kRequest);
  peer.EndInput();
  EXPECT_EQ(peer.Read().status, 200);
  EXPECT_EQ(peer.Read().status, 200);
  EXPECT_TRUE(peer.IsClosed());
}

TEST_F(HttpDisconnect, OfAThousandAtOnce) {
  Listen();
  Stream();
  std::vector<Exchange*> exchanges;
  handler.handle = [&](Exchange& exchange) {
    exchange.Begin({});
    exchanges.push_back(&exchange);
    return std::make_unique<LoggedAnswer>(log);
  };
  std::vector<Peer> peers;
  for (int i = 0; i < 1000; ++i) {
    peers.push_back(Connect());
    peers.back().Send(kRequest);
  }
  ASSERT_TRUE(Until([&] { return exchanges.size() == 1000; }));
  for (size_t i = 0; i < 1000; ++i) {
    i % 2 == 0 ? peers[i].Close() : peers[i].Reset();
  }
  for (Exchange* const exchange : exchanges) {  // the step that comes in between
    exchange->stream() += "token";
    exchange->Flush();
  }
  EXPECT_EQ(log.destroyed, 0);
  EXPECT_TRUE(IsOver(1000));
  EXPECT_EQ(counters.connections, 0);
  EXPECT_EQ(counters.disconnects, 1000);
}

TEST_F(HttpDisconnect, OfTheServer) {
  Listen();
  Peer peer = BeginStream();
  Peer idle = Connect();
  EXPECT_TRUE(Until([&] { return listener->connections() == 2; }));
  listener->CloseAll();
  EXPECT_EQ(log.destroyed, 1);
  EXPECT_EQ(listener->connections(), 0);
  EXPECT_FALSE(Until([&] { return !peer.Pull(); }) && !peer.IsReset());

  Peer other = BeginStream();
  exchange_->stream() += "last words";
  exchange_->Flush();
  listener.reset();
  EXPECT_EQ(log.destroyed, 2);
  EXPECT_EQ(counters.connections, 0);
  RunFor(milliseconds(10));  // what comes back finds nothing
}

}  // namespace
}  // namespace sluice::test
