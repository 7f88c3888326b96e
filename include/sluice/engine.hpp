// Continuous batching: requests come and go between steps, and every step computes one batch of
// what there is: a token for each request that decodes, and chunks of the prompts of others.
//
// The output of a request depends on the request alone: not on the batch, the order, the size of
// chunks, a preemption, or whether a step is in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "sluice/engine_messages.hpp"
#include "sluice/grammar_service.hpp"
#include "sluice/step_runner.hpp"
#include "sluice/stop.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

struct EngineOptions {
  // 0: a step is planned when the one before it has been read. 1: while it is computed, from ids
  // that the engine has not seen; a request that turns out to have ended has one token too many,
  // which is discarded and counted.
  int32_t steps_in_flight = 0;
  int32_t max_clients = 64;
  int32_t max_client_requests = 4096;  // running and waiting
  // For all clients together; one more is rejected. Half of the places are first come, first
  // served. The other half is divided equally among the connected clients; requests that a client
  // already has waiting count against its share.
  int64_t max_waiting = 16384;
  int64_t max_waiting_tokens = 1 << 26;  // of their prompts together, shared alike
  int64_t step_tokens = 0;               // inputs of a step at most; 0: the runner's (schedule.h)
  StopLimits stops = {};
  // Compiles the grammars of requests, and fills the masks of their draws; it must outlive the
  // Engine. None: requests with a grammar are rejected.
  GrammarService* grammars = nullptr;
};

struct ClientId {
  int32_t slot = -1;
  uint32_t generation = 0;

  friend bool operator==(const ClientId&, const ClientId&) = default;
};

struct EngineOutput {
  ClientId client = {};
  OutputRow row = {};
};

// One thread at a time may call an Engine. It has no threads.
class Engine {
 public:
  // Allocates what steps need. Without a tokenizer it has no text: it rejects requests with stops
  // that it would have to search for. `runner` must outlive it.
  Engine(StepRunner& runner, std::optional<Tokenizer> tokenizer, const EngineOptions& options = {});
  ~Engine();  // awaits every step on its way, unless the runner has thrown
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const EngineOptions& options() const;
  const RunnerInfo& runner_info() const;

  ClientId AddClient();  // throws Error with kExhausted when there are max_clients
  // Aborts all its requests; no output of them comes any more. An id that is not there is ignored.
  void RemoveClient(ClientId client);

  // Each request ends in exactly one output, whatever it says: one that cannot be taken ends with
  // kRejected in the next Step. Throws Error for a client that does not exist, a slot outside
  // max_client_requests, or one that is taken: what a client must not do; and std::bad_alloc
  // without memory for even a rejection. Nothing has changed then.
  void Submit(ClientId client, EngineRequest request);

  // The request ends in the next Step: with kCancelled, or with the stop string that ends in what
  // its text held back. One that has ended, or never was, is counted and ignored.
  void Abort(ClientId client, RequestAddress address);

  // Whether Step has anything to do.
  bool HasWork() const;

  // With nothing to compute but grammars that are being compiled, Step waits a millisecond for
  // them.
  //
  // Plans and launches a step, and reads the oldest one that is due. Valid until the next call of
  // anything that is not const. Takes no memory for a request that decodes (but for the list of its
  // tokens, each time that it has doubled beyond 65536). An exception of the runner leaves it, and
  // so does Error for results that break the runner's contract. Then the engine is lost: it plans
  // no step any more, and the next call of Fail gives what this Step had to give, and the end of
  // every other request. The next Step does so too, with the message of that exception.
  std::span<const EngineOutput> Step();

  // For a runner that is no more: ends every request with kEngineLost and this message, and rejects
  // all that come. Does not wait for a step on its way; the destructor still does.
  std::span<const EngineOutput> Fail(std::string_view message);

  const EngineCounters& counters() const;

 private:
  class Impl;
  Impl& Get() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
