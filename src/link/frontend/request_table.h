// A frontend's requests: the places they have at engines, the state of each, and what comes out of
// it. Every row of an engine goes through here, so nothing of one request can reach another.
//
// A place is free, or has a request that was submitted, that streams, or that has ended here (a
// stop was found, the user aborted it, it is lost) or at the engine. It is taken again when its end
// has been output and the engine's last row for it has come, or the engine is gone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "link/frontend/request_output.h"
#include "sluice/client.hpp"
#include "sluice/engine_messages.hpp"
#include "sluice/stop.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::link {

// Checks a client's request and completes it: a seed, the end tokens, which side searches for
// stops. An engine without text leaves them to the frontend. Its address is still to come.
EngineRequest CompleteRequest(ClientRequest&& request, const EngineInfo& info, StopAt stop_at);

class RequestTable {
 public:
  static constexpr int32_t kMostSlots = 1 << 24;  // of an engine
  static constexpr int32_t kMostEngines = 127;

  RequestTable(Tokenizer tokenizer, StopAt stop_at)
      : tokenizer_(std::move(tokenizer)), stop_at_(stop_at) {}

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // Engines are numbered from 0.
  int32_t AddEngine();
  // A life of it begins; nothing of an earlier one lives.
  void SetInfo(int32_t engine, const EngineInfo& info);
  const EngineInfo& info(int32_t engine) const { return At(engine).info; }

  bool HasFreeSlot(int32_t engine) const;
  int32_t taken_slots(int32_t engine) const { return At(engine).taken; }
  int64_t live_requests() const { return live_; }

  // Throws Error. Then the engine gets TakeRequest(id), or Withdraw(id): as if Add had not been
  // called.
  RequestId Add(int32_t engine, ClientRequest&& request);
  const EngineRequest& request(RequestId id) { return Find(id)->request; }
  EngineRequest TakeRequest(RequestId id) { return std::exchange(Find(id)->request, {}); }
  void Withdraw(RequestId id);

  // Its end comes with the next Outputs after a Release, and outputs that the caller reads stay as
  // they are. False: there is no such request that lives.
  bool Abort(RequestId id);
  uint64_t Seed(RequestId id) const;  // throws Error for one that does not live

  // The engine's number of the step that gives the next rows.
  void SetStep(int32_t engine, int64_t step) { At(engine).step = step; }
  // Takes no memory but for its request's output; where there is none, that request is lost, alone.
  void Take(int32_t engine, const OutputRow& row);
  // All requests there end with kEngineLost. The engine is gone: no row of them can come any more.
  void Lose(int32_t engine, std::string_view message);
  // The engine exists, but the client no longer waits for it.
  void GiveUp(int32_t engine, std::string_view message);

  // Requests that have ended here alone, since this was last called for that engine.
  std::span<const RequestAddress> TakeAborts(int32_t engine);
  // The last of these, which could not be sent: the next TakeAborts has them again.
  void KeepAborts(int32_t engine, std::span<const RequestAddress> aborts);
  bool HasAborts(int32_t engine) const { return !At(engine).aborts.empty(); }

  bool HasOutputs() const { return !due_.empty() || !aborted_.empty(); }
  // One output for each request that has news. Valid until Release, which comes before anything
  // else is taken.
  std::span<const ClientOutput> Outputs();
  void Release();

  ClientCounters counters = {};

 private:
  enum class State : uint8_t { kFree, kSubmitted, kStreaming, kEndedHere, kEnded };

  struct Slot {
    RequestAddress address = {};
    int32_t engine = 0;
    State state = State::kFree;
    bool is_due = false;       // in due_
    bool is_reported = false;  // its end
    int32_t next_free = -1;
    bool is_found = false;   // with kEndedHere, that is because a stop was
    int64_t aborted_at = 0;  // the engine's step when the abort was sent
    int64_t held_bytes = 0;  // as counters have them
    int64_t invalid_bytes = 0;
    uint64_t seed = 0;
    EngineRequest request = {};  // until the engine has got it
    RequestOutput output;

    bool IsLive() const { return state == State::kSubmitted || state == State::kStreaming; }
  };

  struct Engine {
    EngineInfo info = {};
    int64_t step = 0;  // the last one that is known
    int32_t slot_count = 0;
    int32_t taken = 0;
    std::vector<std::unique_ptr<Slot>> slots;  // as many as were ever taken
    int32_t first_free = -1;  // of these, a list that starts with the one that was taken last
    int32_t last_free = -1;
    std::vector<RequestAddress> aborts;
    std::vector<RequestAddress> given_aborts;
  };

  Engine& At(int32_t engine) { return engines_[static_cast<size_t>(engine)]; }
  const Engine& At(int32_t engine) const { return engines_[static_cast<size_t>(engine)]; }
  Slot* Find(int32_t engine, int32_t slot);
  Slot* Find(RequestId id);
  Slot& TakeSlot(int32_t engine);
  Slot* PopFree(Engine& engine);
  static void PushFree(Slot& slot, Engine& engine);
  void ReserveFor(size_t slots, Engine& engine);
  void TakeAfterEnd(const OutputRow& row);
  void TakeStale(Slot& slot, const OutputRow& row);
  void TakeLive(Slot& slot, const OutputRow& row);
  const char* WhyBad(const Slot& slot, const OutputRow& row);
  void QueueAbort(Slot& slot);
  void CountBytes(Slot& slot);
  void EndHere(Slot& slot, GenerationEnd end, std::string_view message, bool is_over_there);
  void SetState(Slot& slot, State state);
  void MakeDue(Slot& slot);
  void FreeIfDone(Slot& slot);

  Tokenizer tokenizer_;
  StopAt stop_at_;
  StopListCache stop_lists_;
  std::deque<Engine> engines_;
  int64_t live_ = 0;             // with an end that is not output
  std::vector<Slot*> due_;       // with news for the caller
  std::vector<Slot*> reported_;  // with outputs that the caller reads
  std::vector<Slot*> aborted_;   // by the user, since the last Release
  std::vector<ClientOutput> outputs_;
};

}  // namespace sluice::link
