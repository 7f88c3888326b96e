// The ports where the clients of one process wait for engines of vLLM.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <zmq.hpp>

#include "link/vllm/vllm_port.h"
#include "sluice/client.hpp"
#include "support/check.h"

namespace sluice {

class VllmPorts {
 public:
  explicit VllmPorts(int32_t clients)
      : context_(std::make_shared<zmq::context_t>(kIoThreads)), clients_(clients) {
    zmq_ctx_set(context_->handle(), ZMQ_MAX_SOCKETS, kMostSockets);
  }

  // The first client's call makes it, the others get the same one. Throws Error.
  std::shared_ptr<link::VllmPort> Open(const link::VllmEndpoint& endpoint, int32_t client,
                                       std::chrono::milliseconds stall_timeout, int epoll_fd) {
    CheckInRange("vllm_client", client, 0, clients_ - 1);
    const std::lock_guard lock(mutex_);
    std::weak_ptr<link::VllmPort>& known = ports_[endpoint.name];
    std::shared_ptr<link::VllmPort> port = known.lock();
    if (client == 0) {
      port =
          std::make_shared<link::VllmPort>(context_, endpoint, clients_, stall_timeout, epoll_fd);
      known = port;
    }
    if (port == nullptr) {
      ThrowInvalid("vllm_client", ToText(int64_t{client}), "0 for the first client of an endpoint");
    }
    return port;
  }

 private:
  static constexpr int kIoThreads = 1;
  static constexpr int kMostSockets = 1 << 15;

  const std::shared_ptr<zmq::context_t> context_;
  const int32_t clients_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<link::VllmPort>> ports_;
};

}  // namespace sluice
