// Peers that read slowly, or not at all: nothing is lost, memory is bounded, and others go on.
#include "tests/server/http/http_test.h"

namespace sluice::test {
namespace {

const std::string kRequest = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

class HttpSlowReader : public HttpTest {
 protected:
  Peer BeginStream() {
    Stream();
    exchange_ = nullptr;
    Peer peer = Connect(4096);
    peer.Send(kRequest);
    EXPECT_TRUE(Until([&] { return exchange_ != nullptr; }));
    return peer;
  }
  // Pieces until the Answer has to hold back.
  void Fill(std::string& sent) {
    while (exchange_->unsent() <= limits.coalesce_bytes) {
      const std::string piece = std::to_string(sent.size()) + ";" + std::string(1000, '.');
      exchange_->stream() += piece;
      exchange_->Flush();
      sent += piece;
    }
  }
};

TEST_F(HttpSlowReader, IsToldOfRoomAndLosesNothing) {
  limits.coalesce_bytes = 20'000;
  Listen();
  Peer peer = BeginStream();
  std::string sent;
  log.on_room = [&] {
    EXPECT_LE(exchange_->unsent(), limits.coalesce_bytes);
    if (log.rooms < 4) {
      Fill(sent);  // as one who has held back: at once, inside of OnRoom
    } else {
      exchange_->End();
      EXPECT_EQ(log.destroyed, 0);
    }
  };
  Fill(sent);
  RunFor(milliseconds(20));
  EXPECT_EQ(log.rooms, 0);  // nobody reads
  EXPECT_EQ(peer.Read().body, sent);
  EXPECT_EQ(log.rooms, 4);
  EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
  EXPECT_EQ(counters.slow_readers, 0);
}

TEST_F(HttpSlowReader, ThatTakesAFewBytesAtATimeGetsAll) {
  limits.write_timeout = milliseconds(3000);  // it makes progress all the time
  Listen();
  Peer peer = BeginStream();
  std::string sent;
  Fill(sent);
  exchange_->End();
  std::string come;
  char bytes[13];
  ASSERT_TRUE(Until([&] {
    for (int i = 0; i < 100; ++i) {
      const ssize_t size = ::recv(peer.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (size > 0) come.append(bytes, static_cast<size_t>(size));
    }
    return come.ends_with("\r\n0\r\n\r\n");
  }));
  std::string body;
  size_t at = come.find("\r\n\r\n") + 4;
  while (const size_t size = std::stoul(come.substr(at, 8), nullptr, 16)) {
    body += come.substr(at + 10, size);
    at += 10 + size + 2;
    if (come.compare(at, 5, "0\r\n\r\n") == 0) break;
  }
  EXPECT_EQ(body, sent);
}

TEST_F(HttpSlowReader, ThatTakesNothingIsGivenUp) {
  limits.write_timeout = milliseconds(100);
  Listen();
  Peer peer = BeginStream();
  std::string sent;
  Fill(sent);
  EXPECT_TRUE(Until([&] { return log.destroyed == 1 && listener->connections() == 0; }));
  EXPECT_EQ(log.rooms, 0);
  EXPECT_EQ(counters.slow_readers, 1);
  EXPECT_EQ(counters.disconnects, 0);
  EXPECT_TRUE(Until([&] { return !peer.Pull(); }));
  EXPECT_TRUE(peer.IsReset());
}

TEST_F(HttpSlowReader, ThatLeavesAWholeResponseIsGivenUp) {
  limits.write_timeout = milliseconds(100);
  Listen();
  handler.handle = [](Exchange& exchange) {
    exchange.Respond({.body = std::string(8 << 20, 'x')});
    return nullptr;
  };
  Peer peer = Connect(4096);
  peer.Send(kRequest);
  EXPECT_TRUE(Until([&] { return counters.slow_readers == 1 && listener->connections() == 0; }));
}

TEST_F(HttpSlowReader, IsGivenUpWhereTheAnswerDoesNotHoldBack) {
  limits.unsent_bytes = 200'000;
  Listen();
  Peer peer = BeginStream();
  size_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    exchange_->stream().append(1000, 'x');
    exchange_->Flush();
    most = std::max(most, exchange_->unsent());
  }
  EXPECT_GT(most, 200'000u);
  EXPECT_LT(most, 203'000u);
  EXPECT_EQ(log.destroyed, 0);
  EXPECT_TRUE(Until([&] { return log.destroyed == 1; }));
  EXPECT_EQ(counters.slow_readers, 1);
}

TEST_F(HttpSlowReader, GetsOnePieceHoweverLarge) {
  Listen();
  Peer peer = BeginStream();
  exchange_->stream().append(4 * limits.unsent_bytes, 'x');
  exchange_->Flush();
  EXPECT_TRUE(Until([&] {
    peer.Pull();
    return exchange_->unsent() == 0;
  }));
  exchange_->End();
  EXPECT_EQ(peer.Read().body.size(), 4 * limits.unsent_bytes);
}

TEST_F(HttpSlowReader, DoesNotHoldUpOthers) {
  Listen();
  Peer slow = BeginStream();
  std::string sent;
  Fill(sent);
  Peer quick = BeginStream();
  for (int i = 0; i < 1000; ++i) {
    exchange_->stream() += "token";
    exchange_->Flush();
    ASSERT_TRUE(quick.ReadUntil("token"));
    while (quick.bytes().size() < 6) quick.Pull();
    const_cast<std::string&>(quick.bytes()).clear();
  }
}

}  // namespace
}  // namespace sluice::test
