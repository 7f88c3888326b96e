// A frontend's connection to one engine: hello, frames with their numbers, credits, silence, and
// beginning again after whatever ended it.
//
//   closed -> connecting -> greeting -> ready      and from each of them back to closed
//
// Each try has a socket of its own, so nothing of an earlier one can be on its way in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/frontend/engine_connection.h"
#include "link/frontend/request_table.h"
#include "link/wire/wire.h"
#include "sluice/client.hpp"

namespace sluice::link {

struct EngineLinkOptions {
  std::string endpoint;
  int32_t engine = 0;  // in the table
  int32_t credits = 0;
  std::chrono::milliseconds hello_timeout = {};
  std::chrono::milliseconds stall_timeout = {};
  uint64_t tokenizer_hash = 0;
  int epoll_fd = -1;  // gets what becomes readable when something has come
};

class EngineLink final : public EngineConnection {
 public:
  // Begins to connect. Throws Error for an endpoint that is none.
  EngineLink(zmq::context_t& context, EngineLinkOptions options, RequestTable& table);
  ~EngineLink() override;  // says BYE

  const std::string& endpoint() const override { return options_.endpoint; }
  EngineHealth health() const override;
  const std::string& reason() const override { return reason_; }
  GrammarCounters grammars() const override { return grammars_; }

  bool Turn(Clock::time_point now) override;
  Clock::time_point Deadline() const override;
  void SendRequest(const EngineRequest& request, Clock::time_point now) override;
  void SendAborts() override;
  bool HasInput() override;
  void AppendPollItems(std::vector<zmq_pollitem_t>& items) override;

 private:
  enum class Phase : uint8_t { kClosed, kConnecting, kGreeting, kReady, kGivenUp };

  struct Connection {
    zmq::socket_t socket;
    zmq::socket_t monitor;
  };

  void Open();
  void Reopen(Clock::time_point now);
  void Close(bool says_bye);
  // Restarts after the end of a connection: its requests are lost, and it is tried again.
  void Restart(std::string_view reason, bool says_bye, Clock::time_point now);
  void Reset(std::string_view reason, Clock::time_point now);
  void GiveUp(std::string_view reason);

  struct Events {
    bool has_connected = false;
    bool has_disconnected = false;
  };
  Events ReadEvents();
  bool ReadFrames(Clock::time_point now);
  void TakeFrame(std::string_view bytes, Clock::time_point now);
  void TakeNumbered(Clock::time_point now);
  void TakeOutput();
  void TakeReady(Clock::time_point now);
  void CheckSilence(Clock::time_point now);
  Clock::time_point SilenceDeadline() const;
  void MeasureRoundTrip(Clock::time_point now);
  void Ping(Clock::time_point now);
  void TakePong(Clock::time_point now);
  bool Waits() const;

  FrameHead NextHead(FrameType type) const;
  void Send();

  zmq::context_t& context_;
  EngineLinkOptions options_;
  RequestTable& table_;

  Phase phase_ = Phase::kClosed;
  std::optional<Connection> connection_;
  Clock::time_point retry_at_ = {};    // of kClosed
  Clock::time_point greeted_at_ = {};  // of kGreeting
  int failures_ = 0;                   // since an engine last said something useful
  int64_t tries_ = 0;
  std::string reason_;

  uint64_t epoch_ = 0;
  uint64_t number_out_ = 0;
  uint64_t number_in_ = 0;
  int32_t credits_owed_ = 0;

  // Time without a call does not count as silence.
  Clock::time_point quiet_since_ = {};
  Clock::time_point last_turn_ = {};
  int pings_ = 0;  // since then
  bool is_stalled_ = false;
  int pongs_owed_ = 0;
  GrammarCounters grammars_;                    // of the last one
  std::optional<Clock::time_point> pinged_at_;  // while the first of these is owed
  Clock::time_point measure_at_ = {};           // the next round trip

  zmq::message_t message_;
  bool has_message_ = false;       // that is not taken yet
  bool has_disconnected_ = false;  // the monitor has reported it, and it is not acted upon
  EngineFrame frame_;
  std::string out_;
};

}  // namespace sluice::link
