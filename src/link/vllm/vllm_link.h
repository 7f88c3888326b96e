// A client's connection to one vLLM engine, which comes by itself: it says hello at a VllmPort when
// it starts, and again whenever it is started again.
//
//   listening --HELLO--> loading --READY--> pinged --answer--> ready --> ending --> pinged
//
// and from each of them to listening. An engine is in use when it has answered a ping that was sent
// since both of its connections were made: what it says counts, not what a socket still takes. One
// of them that ends, or that another takes the place of, is most often an engine that has ended:
// what it said before that is read, and then its requests end. Where it was the network, the engine
// connects again by itself and gets another ping. Each life of an engine has sockets of its own, so
// nothing of an earlier one can be on its way in them. An engine says nothing of an abort: a
// request's place is free as soon as it is sent, and what still comes for it is of an address that
// is not known any more. Where that goes on, the abort was lost, and is sent again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/frontend/engine_connection.h"
#include "link/frontend/request_table.h"
#include "link/vllm/engine_core_outputs.h"
#include "link/vllm/engine_core_request.h"
#include "link/vllm/output_translation.h"
#include "link/vllm/vllm_port.h"

namespace sluice::link {

struct VllmLinkOptions {
  std::string endpoint;  // as logs and metrics have it
  std::shared_ptr<VllmPort> port;
  int32_t rank = 0;
  int32_t client = 0;  // the first one reads what comes to the port, by its link of rank 0
  int32_t engine = 0;  // in the table
  std::chrono::milliseconds stall_timeout = {};
  std::chrono::milliseconds last_outputs = {};  // as RemoteClientOptions has it
  std::vector<int32_t> end_tokens;              // of the model, which the engine does not report
  int64_t vocab = 0;                            // the same: it has so many tokens
  int32_t max_logprobs = 20;                    // the same; -1: all of these
  std::vector<LoraAdapter> adapters;
  int epoll_fd = -1;  // gets what becomes readable when something has come
};

class VllmLink final : public EngineConnection {
 public:
  VllmLink(VllmLinkOptions options, RequestTable& table);
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
  enum class Phase : uint8_t { kLoading, kPinged, kReady, kEnding };

  // The life of one engine process.
  struct Life {
    VllmSockets sockets;
    Phase phase = Phase::kLoading;
    bool is_unreachable = false;     // as a message could not be sent
    int64_t pinged_from = 0;         // answers to pings after this one count
    Clock::time_point ends_at = {};  // of kEnding
  };

  int news_fd() const { return options_.port->news_fd(options_.rank, options_.client); }
  bool reads_port() const { return options_.rank == 0 && options_.client == 0; }
  void TakeNews(Clock::time_point now);
  void EndLife(std::string_view reason);
  void ReadEvents(Clock::time_point now);
  void BeginEnding(Clock::time_point now);
  void EndConnection(Clock::time_point now);
  void ReadInput();
  void TakeFacts(zmq::message_t& facts);
  bool ReadOutputs(Clock::time_point now);
  void TakeMessage(Clock::time_point now);
  void TakeAnswer();
  void TakeOutputs();
  void TakeOutput(const vllm::EngineCoreOutput& output);
  void NoteOrphan(std::string_view request_id);
  void Hear(Clock::time_point now);
  bool IsIn(Phase phase) const { return life_.has_value() && life_->phase == phase; }
  template <typename Visit>
  void ForEachSocket(Visit visit);
  bool Waits() const;
  void Ping();
  void CheckSilence(Clock::time_point now);
  Clock::time_point SilenceDeadline() const;
  Clock::time_point LifeDeadline() const;
  void LeaveThere(std::span<const RequestAddress> aborts);
  void EndThere(const RequestAddress& address);
  vllm::WrittenAdapter AdapterOf(const EngineRequest& request) const;
  void SendOrphans();
  // A message of the kind, with out_. False: the engine is not connected.
  bool Send(std::string_view kind);

  VllmLinkOptions options_;
  RequestTable& table_;
  std::string identity_;
  bool has_adapters_ = false;  // it was started with --enable-lora
  std::optional<Life> life_;
  std::string reason_;
  std::string remark_;  // of a ready one: its version, or that another one said hello in vain

  vllm::OutputTranslation translation_{0};
  std::vector<RequestAddress> left_there_;  // that have ended here, and are to be aborted there
  std::vector<std::string> orphans_;        // ids of no request here, to be aborted there too
  Clock::time_point orphans_from_ = {};     // when they are taken for such
  Clock::time_point orphan_at_ = {};        // when the last output of one came
  std::vector<zmq::message_t> frames_;      // of a message that is not taken yet
  bool has_message_ = false;
  size_t taken_outputs_ = 0;  // of it
  vllm::EngineCoreOutputs outputs_;
  std::string out_;

  // Time without a call does not count as silence.
  Clock::time_point quiet_since_ = {};
  Clock::time_point last_turn_ = {};
  int pings_ = 0;                   // since then
  int64_t pinged_ = 0;              // pings ever
  Clock::time_point ping_at_ = {};  // of Phase::kPinged
  bool is_stalled_ = false;
};

}  // namespace sluice::link
