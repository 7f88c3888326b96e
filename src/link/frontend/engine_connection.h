// A client's way to one engine, whatever that one speaks: EngineLink to Sluice's own, VllmLink to
// vLLM's. What comes goes into the client's table.
#pragma once

#include <chrono>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "sluice/client.hpp"

namespace sluice::link {

class EngineConnection {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~EngineConnection() = default;
  EngineConnection(const EngineConnection&) = delete;
  EngineConnection& operator=(const EngineConnection&) = delete;

  virtual const std::string& endpoint() const = 0;
  virtual EngineHealth health() const = 0;
  // Why it is not ready, if that is known; of one that is, what else there is to say, if anything.
  virtual const std::string& reason() const = 0;
  // As EngineState has them.
  virtual GrammarCounters grammars() const { return {}; }

  // Takes what has come into the table, and does what is due. True: there is more. Where it throws
  // std::bad_alloc, nothing is lost: the next one goes on.
  virtual bool Turn(Clock::time_point now) = 0;
  // When Turn has something to do although nothing comes.
  virtual Clock::time_point Deadline() const = 0;

  // Throws Error for one that the engine would not take.
  virtual void SendRequest(const EngineRequest& request, Clock::time_point now) = 0;
  // Input without memory for it waits for the next call.
  virtual void SendAborts() = 0;

  // Whether something can be read now; polls ZeroMQ, so that its file descriptors report what comes
  // from here on.
  virtual bool HasInput() = 0;
  virtual void AppendPollItems(std::vector<zmq_pollitem_t>& items) = 0;

 protected:
  EngineConnection() = default;
};

}  // namespace sluice::link
