// Several engines behind one port, and several clients before one engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "sluice/error.hpp"
#include "tests/link/vllm/vllm_pair.h"

namespace sluice::test {
namespace {

// Two ranks, and a frontend of both.
struct Ranks {
  const std::string endpoint = FreeVllmEndpoint() + "?ranks=2";
  FakeVllm zero{endpoint};
  FakeVllm one{endpoint, std::string("\1\0", 2)};
  VllmFrontend frontend{{&zero, &one}, VllmOptions()};

  RequestId Ask() {
    const RequestId id = frontend.Submit();
    const size_t before = zero.requests.size() + one.requests.size();
    EXPECT_TRUE(
        frontend.Until([&] { return zero.requests.size() + one.requests.size() > before; }));
    return id;
  }
  EngineState State(size_t rank) { return frontend->engines().at(rank); }
};

TEST(VllmRanks, EachIsAnEngineOfItsOwn) {
  Ranks ranks;
  const std::string name = ranks.endpoint.substr(0, ranks.endpoint.find('?'));
  ASSERT_EQ(ranks.frontend->engines().size(), 2U);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.State(rank).endpoint, name + "?rank=" + std::to_string(rank));
    EXPECT_EQ(ranks.State(rank).health, EngineHealth::kReady);
  }
}

TEST(VllmRanks, ARequestGoesToTheOneWithTheFewest) {
  Ranks ranks;
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(ranks.Ask());
  EXPECT_EQ(ranks.zero.requests.size(), 3U);
  EXPECT_EQ(ranks.one.requests.size(), 3U);
  for (int i = 0; i < 2; ++i) ranks.one.SendLetters(ranks.one.requests[i].id, "done", kLength);
  const auto ended = [&] {
    return std::ranges::count_if(ids,
                                 [&](RequestId id) { return ranks.frontend.got.HasEnded(id); });
  };
  ASSERT_TRUE(ranks.frontend.Until([&] { return ended() == 2; }));
  for (int i = 0; i < 2; ++i) ranks.Ask();
  EXPECT_EQ(ranks.zero.requests.size(), 3U);
  EXPECT_EQ(ranks.one.requests.size(), 5U);
}

TEST(VllmRanks, ADeadOneLosesItsOwnRequestsAndComesBack) {
  Ranks ranks;
  const RequestId of_zero = ranks.Ask();
  const RequestId of_one = ranks.Ask();
  ASSERT_EQ(ranks.one.requests.size(), 1U);
  ranks.one.Kill();
  ASSERT_TRUE(ranks.frontend.UntilEnded(of_one));
  EXPECT_EQ(ranks.frontend.got[of_one].end, GenerationEnd::kEngineLost);
  EXPECT_NE(ranks.frontend.got[of_one].message.find("?rank=1: the connection was lost"),
            std::string::npos)
      << ranks.frontend.got[of_one].message;
  EXPECT_EQ(ranks.frontend->health(), EngineHealth::kReady);
  EXPECT_EQ(ranks.State(1).health, EngineHealth::kConnecting);
  for (int i = 0; i < 2; ++i) ranks.Ask();
  EXPECT_EQ(ranks.zero.requests.size(), 3U);
  ranks.zero.SendLetters(ranks.zero.requests[0].id, "fine", kLength);
  ASSERT_TRUE(ranks.frontend.UntilEnded(of_zero));
  EXPECT_EQ(ranks.frontend.got[of_zero].text, "fine");

  ranks.one.Start();
  ASSERT_TRUE(ranks.frontend.Until([&] { return ranks.State(1).health == EngineHealth::kReady; }));
  ranks.Ask();
  EXPECT_EQ(ranks.one.requests.size(), 1U);
}

// One that starts in place of rank 0 ends nothing of rank 1.
TEST(VllmRanks, OneIsStartedInPlaceOfItsOwnRankAlone) {
  Ranks ranks;
  const RequestId of_zero = ranks.Ask();
  const RequestId of_one = ranks.Ask();
  ranks.zero.Start();
  ASSERT_TRUE(ranks.frontend.UntilEnded(of_zero));
  EXPECT_FALSE(ranks.frontend.got.HasEnded(of_one));
  ranks.one.SendLetters(ranks.one.requests[0].id, "fine", kLength);
  ASSERT_TRUE(ranks.frontend.UntilEnded(of_one));
  EXPECT_EQ(ranks.frontend.got[of_one].text, "fine");
}

TEST(VllmRanks, OneBeyondTheirNumberIsNamed) {
  Ranks ranks;
  const FakeVllm two(ranks.endpoint, std::string("\2\0", 2));
  ASSERT_TRUE(ranks.frontend.Until([&] {
    return ranks.State(0).reason.find("of rank 2, and ranks are below 2") != std::string::npos;
  }));
}

// An engine with inputs and outputs of several clients: it answers each request with its prompt.
class Echo {
 public:
  explicit Echo(const std::string& endpoint) : handshake_(Open(zmq::socket_type::dealer)) {
    handshake_.connect(endpoint.substr(5));
    Say(handshake_, VllmMessage("handshake.hello")[0]);
  }

  void Pump() {
    zmq::message_t kind, body;
    if (handshake_.recv(kind, zmq::recv_flags::dontwait)) Begin(kind.to_string_view());
    for (size_t client = 0; client < inputs_.size(); ++client) {
      while (inputs_[client].recv(kind, zmq::recv_flags::dontwait)) {
        ASSERT_TRUE(inputs_[client].recv(body));
        Take(client, kind.to_string_view(), body.to_string_view());
      }
    }
  }

  // Of each client.
  std::vector<int> counts;
  size_t most_at_once = 0;  // of the requests that were there before one was answered
  size_t answers_from = 0;  // so many of them there have to be

 private:
  zmq::socket_t Open(zmq::socket_type type) {
    zmq::socket_t socket(context_, type);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, 0);
    socket.set(zmq::sockopt::rcvhwm, 0);
    if (type == zmq::socket_type::dealer) {
      socket.set(zmq::sockopt::routing_id, std::string(2, '\0'));
    }
    return socket;
  }
  static void Say(zmq::socket_t& socket, std::string_view bytes) {
    socket.send(zmq::buffer(bytes), zmq::send_flags::none);
  }
  void Begin(std::string_view bytes) {
    const auto handle = msgpack::unpack(bytes.data(), bytes.size());
    const auto all = handle.get().as<std::map<std::string, msgpack::object>>();
    const auto addresses = all.at("addresses").as<std::map<std::string, msgpack::object>>();
    for (const auto& address : addresses.at("inputs").as<std::vector<std::string>>()) {
      inputs_.push_back(Open(zmq::socket_type::dealer));
      inputs_.back().connect(address);
      Say(inputs_.back(), VllmMessage("handshake.facts")[0]);
    }
    for (const auto& address : addresses.at("outputs").as<std::vector<std::string>>()) {
      outputs_.push_back(Open(zmq::socket_type::push));
      outputs_.back().connect(address);
    }
    counts.resize(inputs_.size());
    Say(handshake_, VllmMessage("handshake.ready")[0]);
  }
  void Take(size_t client, std::string_view kind, std::string_view body) {
    const auto handle = msgpack::unpack(body.data(), body.size());
    const auto fields = handle.get().as<std::vector<msgpack::object>>();
    msgpack::sbuffer bytes;
    msgpack::packer packer(bytes);
    if (kind == "\x03") {
      ASSERT_EQ(fields.at(0).as<size_t>(), client);
      packer.pack_array(5).pack(0).pack_array(0).pack_nil().pack(2.5);
      packer.pack_array(3).pack(fields.at(1).as<int64_t>());
      packer.pack_nil().pack_array(2).pack_nil().pack(false);
      return Say(outputs_[client], {bytes.data(), bytes.size()});
    }
    ASSERT_EQ(kind, std::string_view("\0", 1));
    ASSERT_EQ(fields.at(11).as<size_t>(), client);  // client_index
    ++counts[client];
    packer.pack_array(2).pack(0).pack_array(1).pack_array(6).pack(fields.at(0).as<std::string>());
    packer.pack(fields.at(1).as<std::vector<int32_t>>());
    for (int i = 0; i < 3; ++i) packer.pack_nil();
    packer.pack(kLength);
    waiting_.emplace_back(client, std::string(bytes.data(), bytes.size()));
    most_at_once = std::max(most_at_once, waiting_.size());
    if (waiting_.size() < answers_from) return;
    answers_from = 0;
    for (const auto& [to, answer] : waiting_) Say(outputs_[to], answer);
    waiting_.clear();
  }

  zmq::context_t context_;
  zmq::socket_t handshake_;
  std::vector<zmq::socket_t> inputs_;
  std::vector<zmq::socket_t> outputs_;
  std::vector<std::pair<size_t, std::string>> waiting_;
};

// Connects, sends all of its requests at once, and has the answers of each.
void RunClient(const std::string& endpoint, const RemoteClientOptions& options, size_t requests,
               std::atomic<size_t>& right) {
  const auto client = ConnectClient({&endpoint, 1}, Letters(), options);
  Collectors got;
  std::vector<std::pair<RequestId, std::string>> texts;
  for (size_t i = 0; i < requests; ++i) {
    std::string text = std::to_string(i) + "of" + std::to_string(options.vllm_client);
    for (char& c : text) c = c >= '0' && c <= '9' ? static_cast<char>('a' + (c - '0')) : c;
    ClientRequest asked = Asks(static_cast<int>(text.size()));
    asked.prompt = Ids(text);
    const OutputMode mode = asked.mode;
    const RequestId id = client->Submit(std::move(asked));
    got.Expect(id, mode);
    texts.emplace_back(id, text);
  }
  const auto deadline = std::chrono::steady_clock::now() + 5 * kPatience;
  while (client->live_requests() > 0 && std::chrono::steady_clock::now() < deadline) {
    got.Add(client->Poll(milliseconds(20)));
  }
  for (const auto& [id, text] : texts) right += got.HasEnded(id) && got[id].text == text ? 1 : 0;
}

// As a server's threads: 4096 requests are at one engine at once.
TEST(VllmClients, ShareAnEngineFromSeveralThreads) {
  constexpr size_t kClients = 4, kRequests = 1024;
  const std::string endpoint = FreeVllmEndpoint();
  RemoteClientOptions options = VllmOptions();
  options.vllm_ports = MakeVllmPorts(kClients);
  Echo engine(endpoint);
  engine.answers_from = kClients * kRequests;
  std::atomic<size_t> right = 0;
  std::atomic<size_t> over = 0;
  std::vector<std::jthread> threads;
  std::atomic<size_t> connected = 0;
  // The first one has to listen before the others look for its port, and is polled until they end.
  const auto run = [&](size_t number) {
    RemoteClientOptions its = options;
    its.vllm_client = static_cast<int32_t>(number);
    its.engine_observer = [&connected](const EngineState& state) {
      if (state.health == EngineHealth::kReady) ++connected;
    };
    RunClient(endpoint, its, kRequests, right);
    ++over;
  };
  threads.emplace_back(run, 0);
  while (connected == 0) engine.Pump();
  for (size_t number = 1; number < kClients; ++number) threads.emplace_back(run, number);
  while (over < kClients) engine.Pump();
  threads.clear();
  EXPECT_EQ(engine.most_at_once, kClients * kRequests);
  EXPECT_EQ(engine.counts, std::vector<int>(kClients, kRequests));
  EXPECT_EQ(right, kClients * kRequests);
}

TEST(VllmClients, TheFirstOneComesFirst) {
  const std::string endpoint = FreeVllmEndpoint();
  RemoteClientOptions options = VllmOptions();
  options.vllm_ports = MakeVllmPorts(2);
  for (const int32_t number : {1, 2, -1}) {
    options.vllm_client = number;
    try {
      ConnectClient({&endpoint, 1}, Letters(), options);
      ADD_FAILURE() << number;
    } catch (const Error& error) {
      EXPECT_EQ(error.parameter(), "vllm_client");
    }
  }
}

}  // namespace
}  // namespace sluice::test
