// An engine made of a bare socket, which says whatever a test wants: what a frontend makes of good
// and of bad frames is tested with it. It acts in Pump alone, so a test says when.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/wire/wire.h"
#include "tests/link/frontend/frontend.h"
#include "tests/link/row_script.h"

namespace sluice::test {

// One link of a frontend.
struct Peer {
  std::string address;
  uint64_t number_in = 0;
  uint64_t number_out = 0;
  link::Hello hello = {};
  std::vector<EngineRequest> requests;
  std::vector<RequestAddress> aborted;
  int64_t credits = 0;  // granted, behind those of hello
  int pings = 0;
  bool said_bye = false;
};

class FakeEngine {
 public:
  explicit FakeEngine(const EngineInfo& engine_info, std::string endpoint = "tcp://127.0.0.1:*")
      : info(engine_info), endpoint_(std::move(endpoint)) {
    Start();
  }

  // Another life at the same endpoint. Dies as a process does that is killed: at once, and silent.
  void Kill() { socket_.reset(); }
  void Start() {
    socket_ = std::make_unique<zmq::socket_t>(context_, zmq::socket_type::router);
    socket_->set(zmq::sockopt::linger, 0);
    socket_->set(zmq::sockopt::sndhwm, 0);
    socket_->set(zmq::sockopt::rcvhwm, 0);
    for (int tries = 0;; ++tries) {  // the port of an earlier life becomes free in a moment
      try {
        socket_->bind(endpoint_);
        break;
      } catch (const zmq::error_t&) {
        if (tries > 500) throw;
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
    endpoint_ = socket_->get(zmq::sockopt::last_endpoint);
    ++epoch;
    peers_.clear();
  }
  const std::string& endpoint() const { return endpoint_; }

  // Takes what has come, and answers HELLO and PING, unless it shall not.
  void Pump() {
    zmq::message_t address;
    zmq::message_t message;
    while (socket_ != nullptr && socket_->recv(address, zmq::recv_flags::dontwait)) {
      EXPECT_TRUE(socket_->recv(message));
      EXPECT_FALSE(message.more());
      Take(address.to_string(), message.to_string());
    }
  }

  // The last one that said hello, or an earlier one.
  Peer& peer(size_t back = 0) { return *peers_[peers_.size() - 1 - back]; }
  size_t peers() const { return peers_.size(); }

  link::FrameHead NextHead(link::FrameType type, Peer& to) {
    return {.type = type, .epoch = epoch, .number = to.number_out++};
  }
  void Send(Peer& to, std::string_view frame) {
    socket_->send(zmq::buffer(to.address), zmq::send_flags::sndmore);
    socket_->send(zmq::buffer(frame));
  }
  void SendRows(Peer& to, std::span<const OutputRow> rows) {
    Send(to, Output(NextHead(link::FrameType::kOutput, to), rows));
  }
  void SendRow(Peer& to, const OutputRow& row) { SendRows(to, {&row, 1}); }
  void SendText(Peer& to, const EngineRequest& request, int64_t first, std::string_view letters,
                GenerationEnd end = GenerationEnd::kNone) {
    const std::vector<int32_t> ids = Ids(letters);
    SendRow(to, {.address = request.address, .first_token = first, .ids = ids, .end = end});
  }
  void SendReason(Peer& to, link::FrameType type, std::string_view reason) {
    std::string frame;
    link::WriteReason(NextHead(type, to), reason, frame);
    Send(to, frame);
  }
  static std::string Output(const link::FrameHead& head, std::span<const OutputRow> rows) {
    std::string frame;
    link::WriteOutput(head, 0, 0, rows, frame);
    return frame;
  }

  EngineInfo info;
  uint64_t epoch = 100;
  bool answers_hello = true;
  bool answers_ping = true;
  GrammarCounters grammars;  // that it answers with
  uint32_t protocol = link::kProtocol;

 private:
  Peer* Find(const std::string& address) {
    for (const auto& known : peers_) {
      if (known->address == address && !known->said_bye) return known.get();
    }
    return nullptr;
  }

  void Take(const std::string& address, const std::string& bytes) {
    link::FrontendFrame frame;
    ASSERT_EQ(link::ReadFrontendFrame(bytes, frame), "");
    if (frame.head.type == link::FrameType::kHello) {
      EXPECT_EQ(Find(address), nullptr) << "a second HELLO on one link";
      EXPECT_EQ(frame.head.epoch, 0u);
      peers_.push_back(std::make_unique<Peer>());
      peer().address = address;
      peer().hello = frame.hello;
    }
    Peer* const from = Find(address);
    ASSERT_NE(from, nullptr) << "a frame in front of HELLO: " << Name(frame.head.type);
    EXPECT_EQ(frame.head.number, from->number_in++) << Name(frame.head.type);
    std::string answer;
    switch (frame.head.type) {
      case link::FrameType::kHello:
        if (!answers_hello) return;
        WriteReady(NextHead(link::FrameType::kReady, *from), {protocol, info}, answer);
        Send(*from, answer);
        return;
      case link::FrameType::kAdd:
        from->requests.push_back(frame.request);
        break;
      case link::FrameType::kAbort:
        from->aborted.insert(from->aborted.end(), frame.aborted.begin(), frame.aborted.end());
        break;
      case link::FrameType::kCredit:
        from->credits += frame.credits;
        break;
      case link::FrameType::kPing:
        ++from->pings;
        if (!answers_ping) break;
        WritePong(NextHead(link::FrameType::kPong, *from), grammars, answer);
        Send(*from, answer);
        break;
      case link::FrameType::kBye:
        from->said_bye = true;
        break;
      default:
        ADD_FAILURE() << "a frame of an engine";
    }
    EXPECT_EQ(frame.head.epoch, epoch) << Name(frame.head.type);
  }

  zmq::context_t context_;
  std::string endpoint_;
  std::unique_ptr<zmq::socket_t> socket_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

using Frontend = FrontendOf<FakeEngine>;

}  // namespace sluice::test
