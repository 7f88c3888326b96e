// One thread of a server: its event loop, its client of the engines, its listening socket and
// connections, and the completions between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "server/admission/encode_pool.h"
#include "server/http/listener.h"
#include "server/server_state.h"
#include "sluice/client.hpp"

namespace sluice::server {

class Loop {
 public:
  // Listens. `state` and `pool` outlive it; `number` is its place among the loops, `first` the
  // first of them, which shares its port.
  Loop(ServerState& state, EncodePool& pool, size_t number, const ListenAddress& address,
       std::unique_ptr<Client> client, const Loop* first);
  ~Loop();

  uint16_t port() const;

  // On one thread: until a Drain or an EndAll is through. What it throws has ended all its
  // requests. `all`: every loop of the server, for /metrics.
  void Run(std::span<const std::unique_ptr<Loop>> all);

  // From any thread.
  void Drain();                  // no new connections; Run returns when the last one is over
  void EndAll(std::string why);  // ends all requests, and Run returns at once
  void Report(std::function<void()> then);  // to the board; `then` on this loop's thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::server
