// The port where engines of vLLM say hello, for all links to them: one engine for each rank, and
// each has a link for each client of this process. A client is a thread of a server, say.
//
// Each life of an engine has sockets of its own, two for each client, and an engine sends a client
// what belongs to that client's requests. The links of the first client read what comes to the
// port; every link takes its sockets on its own thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "link/file_descriptor.h"
#include "link/vllm/peer_watch.h"
#include "link/vllm/vllm_endpoint.h"
#include "sluice/client.hpp"

namespace sluice::link {

// Of one life of an engine, to one client.
struct VllmSockets {
  zmq::socket_t input;  // from here to there
  zmq::socket_t output;
  PeerWatch input_watch;
  PeerWatch output_watch;
};

class VllmPort {
 public:
  using Clock = std::chrono::steady_clock;

  // Begins to listen; the first client's `epoll_fd` gets what becomes readable. Throws Error for
  // an endpoint that is taken.
  VllmPort(std::shared_ptr<zmq::context_t> context, VllmEndpoint endpoint, int32_t clients,
           std::chrono::milliseconds stall_timeout, int epoll_fd);

  int32_t clients() const { return clients_; }

  // What a link has to know.
  struct News {
    bool is_started = false;                    // an engine has said hello: an earlier one is over
    std::unique_ptr<VllmSockets> sockets = {};  // of it; they may come later
    std::string reason = {};                    // why they have not, or what else has become of it
    bool is_refusal = false;  // of an engine that is none of these: that is the reason
  };
  // From any thread. Readable from the next news on until they are taken.
  int news_fd(int32_t rank, int32_t client) const { return At(rank, client).event.get(); }
  bool Take(int32_t rank, int32_t client, News& news);

  // Of the first client alone. True: there is more.
  bool Turn(Clock::time_point now, ClientCounters& counters);
  Clock::time_point Deadline() const;
  bool HasInput();
  void AppendPollItems(std::vector<zmq_pollitem_t>& items);

 private:
  struct Place {
    FileDescriptor event;
    std::optional<News> news;
  };
  struct Rank {
    bool is_greeted = false;  // and has no sockets yet
    bool is_loading = false;  // as long as its first connection stands
    int32_t connection = -1;
    Clock::time_point greeted_again_at = {};
  };
  struct SocketKind {
    zmq::socket_type type;
    bool is_small = false;  // what comes is a few short messages
  };
  size_t Index(int32_t rank, int32_t client) const {
    return static_cast<size_t>(rank) * static_cast<size_t>(clients_) + static_cast<size_t>(client);
  }
  const Place& At(int32_t rank, int32_t client) const { return places_[Index(rank, client)]; }
  zmq::socket_t Bind(SocketKind kind, const std::string& address) const;
  void Listen(int epoll_fd);
  VllmSockets Open(int32_t rank, int32_t client);
  void TakeGreeting(std::vector<zmq::message_t>& parts, Clock::time_point now,
                    ClientCounters& counters);
  void RefuseHello(std::string_view identity, bool is_headless);
  void Begin(int32_t rank, Clock::time_point now);
  void OpenAll(int32_t rank);
  void Post(int32_t rank, int32_t client, News news);
  void PostAll(int32_t rank, const News& news);

  const std::shared_ptr<zmq::context_t> context_;  // before the sockets in it
  const VllmEndpoint endpoint_;
  const int32_t clients_;
  const std::chrono::milliseconds stall_timeout_;
  zmq::socket_t handshake_;
  std::optional<PeerWatch> watch_;
  std::vector<Rank> ranks_;
  int64_t lives_ = 0;
  std::string addresses_;
  std::mutex mutex_;  // of what follows
  std::vector<Place> places_;
};

}  // namespace sluice::link
