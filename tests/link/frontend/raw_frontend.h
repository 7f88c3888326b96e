// A frontend that speaks frames and nothing more: it says what a test wants said.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "link/wire/wire.h"

namespace sluice::test {

class RawFrontend {
 public:
  // More than any test takes: on a slow machine every token may come in a frame of its own.
  static constexpr int64_t kCredits = link::kMostCredits;

  explicit RawFrontend(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, 0);
    socket_.set(zmq::sockopt::rcvhwm, 0);
    socket_.set(zmq::sockopt::reconnect_ivl, 10);
    socket_.connect(endpoint);
  }

  // --- what it says

  void SendBytes(std::string_view bytes) {
    socket_.send(zmq::const_buffer(bytes.data(), bytes.size()), zmq::send_flags::none);
  }
  void SendParts(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      socket_.send(zmq::const_buffer(parts[i].data(), parts[i].size()),
                   i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  void SayHello(int64_t credits = kCredits) {
    number_ = 0;
    link::WriteHello({link::FrameType::kHello, 0, number_++},
                     {.name = "raw", .pid = 42, .credits = credits}, frame_);
    SendBytes(frame_);
  }
  void Add(const EngineRequest& request) {
    link::WriteAdd(Head(link::FrameType::kAdd), request, frame_);
    SendBytes(frame_);
  }
  void Abort(RequestAddress address) {
    link::WriteAbort(Head(link::FrameType::kAbort), {&address, 1}, frame_);
    SendBytes(frame_);
  }
  void Grant(int64_t credits) {
    link::WriteCredit(Head(link::FrameType::kCredit), credits, frame_);
    SendBytes(frame_);
  }
  void Say(link::FrameType type) {
    link::WriteEmpty(Head(type), frame_);
    SendBytes(frame_);
  }
  link::FrameHead Head(link::FrameType type) { return {type, epoch_, number_++}; }
  uint64_t epoch() const { return epoch_; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

  // --- what it hears

  // Null when nothing comes.
  const link::EngineFrame* Receive(
      std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000)) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(timeout.count()));
    zmq::message_t message;
    if (!socket_.recv(message)) return nullptr;
    const std::string failure = link::ReadEngineFrame(message.to_string_view(), read_);
    EXPECT_EQ(failure, "");
    heard_.push_back(read_.head);
    return failure.empty() ? &read_ : nullptr;
  }
  bool HearsNothing(std::chrono::milliseconds time = std::chrono::milliseconds(100)) {
    return Receive(time) == nullptr;
  }
  // The next frame, which must be of that type.
  const link::EngineFrame& Expect(link::FrameType type) {
    const link::EngineFrame* const frame = Receive();
    if (frame == nullptr || frame->head.type != type) {
      ADD_FAILURE() << Name(type) << " expected, "
                    << (frame == nullptr ? "nothing" : Name(frame->head.type)) << " came";
    }
    return read_;
  }
  // Says hello and takes the READY.
  link::Ready Connect(int64_t credits = kCredits) {
    SayHello(credits);
    const link::EngineFrame& frame = Expect(link::FrameType::kReady);
    epoch_ = frame.head.epoch;
    EXPECT_EQ(frame.head.number, 0u);
    return frame.ready;
  }

  struct Output {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::vector<float> prompt_logprobs;
    int ends = 0;
    GenerationEnd end = GenerationEnd::kNone;
    std::string message;
    ErrorCode code = ErrorCode::kInvalidValue;
    std::string parameter;
  };
  // Takes OUTPUTs until `ends` requests have ended or another frame comes, and gives its head.
  std::optional<link::FrameHead> Collect(int64_t ends) {
    for (int64_t ended = 0; ended < ends;) {
      const link::EngineFrame* const frame = Receive();
      if (frame == nullptr) {
        ADD_FAILURE() << ended << " of " << ends << " requests ended, and nothing came any more";
        return std::nullopt;
      }
      if (frame->head.type != link::FrameType::kOutput) return frame->head;
      ended += Take(*frame);
    }
    return std::nullopt;
  }
  // How many requests ended in it.
  int64_t Take(const link::EngineFrame& frame) {
    int64_t ends = 0;
    for (const OutputRow& row : frame.rows) {
      Output& output = outputs[{row.address.slot, row.address.generation}];
      EXPECT_EQ(row.first_token, std::ssize(output.ids)) << "of slot " << row.address.slot;
      EXPECT_EQ(output.ends, 0) << "a row behind the end";
      output.ids.insert(output.ids.end(), row.ids.begin(), row.ids.end());
      output.logprobs.insert(output.logprobs.end(), row.logprobs.begin(), row.logprobs.end());
      if (!row.prompt.IsEmpty()) {
        EXPECT_TRUE(output.ids.size() == row.ids.size()) << "the prompt's behind a token";
        EXPECT_EQ(row.prompt.first_token, 1 + std::ssize(output.prompt_logprobs));
        output.prompt_logprobs.insert(output.prompt_logprobs.end(), row.prompt.logprobs.begin(),
                                      row.prompt.logprobs.end());
      }
      if (row.end == GenerationEnd::kNone) continue;
      ++output.ends;
      ++ends;
      output.end = row.end;
      output.message = row.message;
      output.code = row.code;
      output.parameter = row.parameter;
    }
    return ends;
  }
  // The numbers of the frames of this link follow each other.
  void ExpectAllNumbers() const {
    for (size_t i = 0; i < heard_.size(); ++i) EXPECT_EQ(heard_[i].number, i);
  }

  std::map<std::pair<int32_t, uint32_t>, Output> outputs;  // by slot and generation

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
  uint64_t epoch_ = 0;
  uint64_t number_ = 0;
  std::string frame_;
  link::EngineFrame read_;
  std::vector<link::FrameHead> heard_;
};

}  // namespace sluice::test
