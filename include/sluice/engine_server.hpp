// An Engine for other processes: ZeroMQ with MessagePack frames.
//
// The step loop never waits for a frontend. One that takes nothing has no credits left; then its
// tokens gather here, at most max_tokens of each request, and go out together when it comes back.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "sluice/engine.hpp"

namespace sluice {

// Counts of input from frontends that must not have come. A frame that cannot be read resets that
// frontend's link; the others do not notice.
struct LinkCounters {
  int64_t clients = 0;  // now
  int64_t clients_seen = 0;
  int64_t frames_in = 0;
  int64_t frames_out = 0;
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  int64_t tokens_out = 0;
  int64_t malformed_frames = 0;
  int64_t foreign_frames = 0;  // of another epoch or version, or from a peer that never said hello
  int64_t bad_requests = 0;    // a slot that is taken, or outside the table: resets the link
  int64_t resets = 0;
  int64_t held_tokens = 0;  // now: waiting for credits
  int64_t own_ns = 0;       // that the link thread worked
};

struct EngineServerOptions {
  // ipc://PATH, ipc://@NAME or tcp://HOST:PORT; port * takes any.
  std::string listen = "tcp://127.0.0.1:*";
  size_t max_frame_bytes = size_t{8} << 20;  // of what a frontend may send
  // A frontend that was not heard of for so long is gone; one that closed its socket at once.
  std::chrono::milliseconds client_timeout{120'000};
  // Called on the link thread, a few times a second at most; what it leaves out it counts.
  std::function<void(std::string_view line)> log = {};
  // Called on the link thread with each frame that is to be sent; what it gives to `send` is sent
  // instead: the frame changed, twice, later, or not at all. For tests of what frontends make of a
  // bad engine.
  std::function<void(std::string& frame, const std::function<void(std::string_view)>& send)>
      on_frame = {};
};

class EngineServer {
 public:
  // Binds; throws Error when it cannot. Starts the link's thread. No other thread may call the
  // engine from now on. info.max_client_requests and so on are the engine's.
  EngineServer(Engine& engine, EngineInfo info, const EngineServerOptions& options = {});
  ~EngineServer();

  const std::string& endpoint() const;  // with the port that it got

  // The step loop, on the caller's thread, until a stop is requested. Then the frontends are
  // notified, and their requests have ended. An exception of the runner then leaves Run.
  void Run(std::stop_token stop);

  LinkCounters link_counters() const;      // from any thread
  EngineCounters engine_counters() const;  // from any thread: of the last step

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
