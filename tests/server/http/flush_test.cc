// What a token of a stream takes: one send() and no memory, whether or not its peer reads.
#include <algorithm>

#include "tests/server/http/http_test.h"
#include "tests/support/counting_allocator.h"

namespace sluice::test {
namespace {

class HttpFlush : public HttpTest {
 protected:
  Peer BeginStream() {
    Listen();
    Stream();
    Peer peer = Connect();
    peer.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(Until([&] { return exchange_ != nullptr; }));
    return peer;
  }
  void Write(size_t size) {
    exchange_->stream().append(size, 'x');
    exchange_->Flush();
  }
};

TEST_F(HttpFlush, TakesNoMemoryForATokenThatIsSent) {
  Peer peer = BeginStream();
  char bytes[4096];
  for (int i = 0; i < 20; ++i) Write(300);  // what the buffer grows to
  const int64_t before = AllocationCount();
  for (int i = 0; i < 1000; ++i) {
    Write(300);
    while (::recv(peer.fd(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) continue;
  }
  EXPECT_EQ(AllocationCount(), before);
}

TEST_F(HttpFlush, TakesNoMemoryToWaitForAReader) {
  Peer peer = BeginStream();
  // The buffer grows to what a reader may leave lying; Asio's own queues grow too.
  const auto fill = [&] {
    while (exchange_->unsent() < 30'000) Write(300);
    while (exchange_->unsent() > 0) {
      peer.Pull();
      const_cast<std::string&>(peer.bytes()).clear();
      loop.restart();
      loop.poll();
    }
  };
  fill();
  // Kept empty it would be given back; a little in it, and it stays.
  int64_t in_flush = 0;
  for (int round = 0; round < 5; ++round) {
    while (exchange_->unsent() == 0) Write(300);
    const int64_t before = AllocationCount();
    Write(300);
    in_flush += AllocationCount() - before;
    fill();
  }
  EXPECT_EQ(in_flush, 0);
}

TEST_F(HttpFlush, IsOneSendForItsHeadAndItsChunk) {
  Peer peer = BeginStream();
  for (int i = 0; i < 100; ++i) Write(300);
  exchange_->End();
  EXPECT_EQ(peer.Read().body.size(), 30'000u);
  EXPECT_EQ(counters.writes, 101);
  EXPECT_GT(counters.bytes_out, 100 * (300 + 12));
}

}  // namespace
}  // namespace sluice::test
