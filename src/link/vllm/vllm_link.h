// A frontend's connection to one vLLM engine, which comes by itself: it is told this address, and
// says hello there when it starts, and again whenever it is started again.
//
//   listening --HELLO--> loading --READY--> ready <--> lost      and from each of them to listening
//
// A connection that ends is most often an engine that has: its requests end at once. Where it was
// the network, the engine connects again by itself, and is in use when it has answered a ping. Each
// life of an engine has sockets of its own, so nothing of an earlier one can be on its way in
// them. An engine says nothing of an abort: a request's place is free as soon as it is sent, and
// what still comes for it is of an address that is not known any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/engine_connection.h"
#include "link/request_table.h"
#include "link/vllm/engine_core_outputs.h"
#include "link/vllm/output_translation.h"

namespace sluice::link {

struct VllmLinkOptions {
  std::string endpoint;  // vllm+tcp://ADDRESS:PORT
  int32_t engine = 0;    // in the table
  std::chrono::milliseconds stall_timeout = {};
  std::vector<int32_t> end_tokens;  // of the model, which the engine does not tell
  int epoll_fd = -1;                // gets what becomes readable when something has come
};

class VllmLink final : public EngineConnection {
 public:
  // Begins to listen. Throws Error for an endpoint that is none, or is taken.
  VllmLink(zmq::context_t& context, VllmLinkOptions options, RequestTable& table);
  ~VllmLink() override;  // aborts what the engine still has

  const std::string& endpoint() const override { return options_.endpoint; }
  EngineHealth health() const override;
  const std::string& reason() const override { return reason_; }

  bool Turn(Clock::time_point now) override;
  Clock::time_point Deadline() const override;
  void SendRequest(const EngineRequest& request, Clock::time_point now) override;
  void SendAborts() override;
  bool HasInput() override;
  void AppendPollItems(std::vector<zmq_pollitem_t>& items) override;

 private:
  enum class Phase : uint8_t { kLoading, kReady, kLost };

  // Of one engine process.
  struct Life {
    zmq::socket_t input;  // from here to there
    zmq::socket_t monitor;
    zmq::socket_t output;
    Phase phase = Phase::kLoading;
    int connection = -1;   // the input's file descriptor, once that is known
    int accepted = -1;     // the same of whoever came last
    bool is_gone = false;  // that one has ended, and it was not acted upon
    int64_t lost_at = 0;   // the number of the last ping then
  };

  zmq::socket_t Bind(zmq::socket_type type, const std::string& address) const;
  void Listen();
  void ReadGreetings(Clock::time_point now);
  void BeginLife();
  void EndLife(std::string_view reason);
  void LoseConnection(Clock::time_point now);
  void ReadEvents(Clock::time_point now);
  void ReadInput(Clock::time_point now);
  void TakeFacts(std::string_view bytes, Clock::time_point now);
  bool ReadOutputs(Clock::time_point now);
  void TakeMessage(Clock::time_point now);
  void TakeOutputs();
  void TakeOutput(const vllm::EngineCoreOutput& output);
  void Hear(Clock::time_point now);
  bool IsIn(Phase phase) const { return life_.has_value() && life_->phase == phase; }
  bool Waits() const;
  void Ping();
  void CheckSilence(Clock::time_point now);
  Clock::time_point SilenceDeadline() const;
  void LeaveThere(std::span<const RequestAddress> aborts);
  void EndThere(const RequestAddress& address);
  // A message of the kind, with out_.
  void Send(std::string_view kind);

  zmq::context_t& context_;
  VllmLinkOptions options_;
  RequestTable& table_;
  std::string host_;  // "tcp://ADDRESS"

  zmq::socket_t handshake_;
  std::optional<Life> life_;
  int64_t lives_ = 0;
  std::string reason_;

  vllm::OutputTranslation translation_;
  std::vector<RequestAddress> left_there_;  // that have ended here, and are to be aborted there
  std::vector<zmq::message_t> frames_;      // of a message that is not taken yet
  bool has_message_ = false;
  size_t taken_outputs_ = 0;  // of it
  vllm::EngineCoreOutputs outputs_;
  std::string out_;

  // Time when nobody called does not count as silence.
  Clock::time_point quiet_since_ = {};
  Clock::time_point last_turn_ = {};
  int pings_ = 0;                   // since then
  int64_t pinged_ = 0;              // pings ever
  Clock::time_point ping_at_ = {};  // of Phase::kLost
  bool is_stalled_ = false;
};

}  // namespace sluice::link
