// What a watch knows of the connections of a socket, whenever it looks.
#include "link/vllm/peer_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace sluice::test {
namespace {

using link::PeerWatch;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{60'000};

bool Until(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

struct Bound {
  explicit Bound(PeerWatch::Peers peers) : watch(context, Listening(), "inproc://watch", peers) {}

  zmq::socket_t& Listening() {
    socket.bind("tcp://127.0.0.1:*");
    return socket;
  }
  std::unique_ptr<zmq::socket_t> Connect() {
    auto peer = std::make_unique<zmq::socket_t>(context, zmq::socket_type::push);
    peer->set(zmq::sockopt::linger, 0);
    peer->connect(socket.get(zmq::sockopt::last_endpoint));
    return peer;
  }
  // Of a message of the peer.
  int32_t Hear(zmq::socket_t& peer) {
    peer.send(zmq::str_buffer("here"));
    zmq::message_t message;
    EXPECT_TRUE(socket.recv(message));
    return link::ConnectionOf(message);
  }

  zmq::context_t context;
  zmq::socket_t socket{context, zmq::socket_type::pull};
  PeerWatch watch;
};

TEST(PeerWatch, DoesNotUseAConnectionThatHasEnded) {
  Bound bound(PeerWatch::Peers::kMany);
  auto peer = bound.Connect();
  const int32_t connection = bound.Hear(*peer);
  EXPECT_FALSE(bound.watch.has_connection());
  EXPECT_TRUE(bound.watch.Use(connection));
  EXPECT_TRUE(bound.watch.has_connection());
  EXPECT_FALSE(bound.watch.TakeChange());
  peer.reset();
  ASSERT_TRUE(Until([&] { return bound.watch.TakeChange(); }));
  EXPECT_FALSE(bound.watch.has_connection());
  EXPECT_FALSE(bound.watch.Use(connection));
  EXPECT_FALSE(bound.watch.TakeChange());  // it is told once
}

// The kernel gives the next one the number that has just become free.
TEST(PeerWatch, TellsOfAnEndThoughAnotherHasItsNumberByNow) {
  for (const auto peers : {PeerWatch::Peers::kMany, PeerWatch::Peers::kOne}) {
    Bound bound(peers);
    for (int round = 0; round < 10; ++round) {
      auto peer = bound.Connect();
      EXPECT_TRUE(bound.watch.Use(bound.Hear(*peer)));
      bound.watch.TakeChange();
      peer.reset();
      auto next = bound.Connect();
      bound.Hear(*next);
      ASSERT_TRUE(Until([&] { return bound.watch.TakeChange(); }));
    }
  }
}

TEST(PeerWatch, OfOneThePeerThatComesTakesThePlace) {
  Bound bound(PeerWatch::Peers::kOne);
  const auto first = bound.Connect();
  EXPECT_TRUE(bound.watch.Use(bound.Hear(*first)));
  bound.watch.TakeChange();
  auto second = bound.Connect();
  bound.Hear(*second);
  ASSERT_TRUE(Until([&] { return bound.watch.TakeChange(); }));
  EXPECT_TRUE(bound.watch.has_connection());
  second.reset();
  ASSERT_TRUE(Until([&] { return bound.watch.TakeChange(); }));
  EXPECT_FALSE(bound.watch.has_connection());  // the first one's does not count any more
}

TEST(PeerWatch, OfManyOthersMayComeAndGo) {
  Bound bound(PeerWatch::Peers::kMany);
  const auto named = bound.Connect();
  EXPECT_TRUE(bound.watch.Use(bound.Hear(*named)));
  for (int i = 0; i < 10; ++i) {
    const auto other = bound.Connect();
    bound.Hear(*other);
    EXPECT_FALSE(bound.watch.TakeChange());
  }
  EXPECT_TRUE(bound.watch.has_connection());
}

}  // namespace
}  // namespace sluice::test
