// The link thread: frames in and commands out, batches of steps in and frames out.
//
// A peer is an open connection; after hello it has a client, until it says bye or hello again, is
// reset, or its connection closes. What a peer without a client sends is dropped, and the answer to
// the first such message is that it should say hello.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "link/frontend/client_link.h"
#include "link/frontend/router.h"
#include "link/log_limit.h"
#include "link/mailbox.h"
#include "link/wire/wire.h"
#include "sluice/engine_server.hpp"

namespace sluice::link {

class LinkLoop {
 public:
  // Binds.
  LinkLoop(const EngineServerOptions& options, EngineInfo info, int32_t max_clients,
           Mailbox& mailbox);

  const std::string& endpoint() const { return router_.endpoint(); }
  void Run();  // until the mailbox says that it is over

  LinkCounters counters() const;  // from any thread

 private:
  struct Peer {
    std::string address;
    int fd = -1;
    ClientLink* client = nullptr;
    bool was_notified = false;  // since it last said hello, that it must
  };

  // Input.
  Router::Ready Wait();
  void TakeClosed();
  void TakeMessages();
  Peer* PeerOf(const Router::Message& message);
  void TakeFrame(Peer& peer, const Router::Message& message);
  void TakeHello(Peer& peer);
  void TakeOf(Peer& peer);
  void TakeAdd(Peer& peer);

  // The results of steps.
  void TakeBatches();
  ClientLink* ClientOf(const LinkId& link);
  void Deliver(const StepBatch& batch);
  void EndAll(const StepBatch& batch);
  void ReportOwnEnd(const char* reason) noexcept;
  void SendStep(ClientLink& client, const StepBatch& batch);
  void HoldStep(ClientLink& client, const StepBatch& batch);
  void SendHeld(ClientLink& client);

  // Peers come and go.
  void Reset(Peer& peer, std::string_view reason);
  void RemoveClient(Peer& peer, std::string_view why);
  void RemovePeer(const std::string& address, std::string_view why);
  void RemoveLost();

  FrameHead NextHead(FrameType type, ClientLink& client) const;
  void SendFrame(const std::string& address);  // what frame_ has
  void Log(const ClientLink& client, std::string_view what, std::string_view why = {});
  void Publish();

  const EngineServerOptions options_;
  Ready ready_;
  const uint64_t epoch_;
  Mailbox& mailbox_;
  Router router_;
  LogLimit log_;

  std::unordered_map<std::string, Peer> peers_;
  std::unordered_map<int, std::string> address_of_fd_;
  std::vector<std::unique_ptr<ClientLink>> clients_;  // by place
  uint64_t serial_ = 0;
  std::vector<std::string> lost_;  // peers that nothing could be sent to
  std::string ended_;              // the engine, for this reason

  FrontendFrame read_;
  std::string frame_;
  std::vector<int32_t> touched_;
  int64_t step_ = 0;
  int64_t time_ns_ = 0;

  LinkCounters counters_;
  mutable std::mutex mutex_;
  LinkCounters published_;
};

}  // namespace sluice::link
