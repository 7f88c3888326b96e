// Chooses the requests of the next step, and the number of tokens of each.
//
// Those that decode come first, one row each. The tokens that the step has left go to prompts, in
// chunks: all of them where no row decodes or where EngineOptions::step_tokens bounds a step; else
// as many as rows that decode, or 32 where these are fewer. So where a step takes time by its
// tokens, a prompt makes the gaps of 32 streams and more at most twice as long; those of fewer are
// as long as a step of 32 tokens more. They go group by group as Turns has it, and of each group to
// the prompts that have begun, then to the requests that wait, while there are slots, and pages for
// them and for what the others take meanwhile. No request of a group overtakes, and where one waits
// for pages, of other groups only those without a running request do: so none starves. When the
// pages run out, the youngest request of the group with the most gives its own back and is the next
// of its group and priority; it keeps its slot, because the slot has the sampler's state, and its
// rows bring all its tokens again.
//
// What a request has read stays in the cache after its end while there is room, for requests that
// begin with the same tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/live_request.h"
#include "engine/prefix_cache.h"
#include "engine/turns.h"
#include "sluice/engine.hpp"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

// A plan with its memory, and the requests of its rows.
struct PlannedStep {
  void Reserve(size_t slots, size_t prefixes);
  void Clear();
  bool IsEmpty() const;
  StepPlan view() const { return {kept, ended, preempted, begun, shared, trimmed, rows}; }

  std::vector<KeptPrefix> kept;
  std::vector<int32_t> ended;
  std::vector<int32_t> preempted;
  std::vector<RunnerRequest> begun;
  std::vector<SharedPrefix> shared;
  std::vector<TrimmedPrefix> trimmed;
  std::vector<StepRow> rows;
  std::vector<LiveRequest*> requests;  // of the rows
};

// Requests that were never admitted.
struct Waiting {
  int64_t requests = 0;
  int64_t tokens = 0;  // of their prompts
};

class Schedule {
 public:
  Schedule(const RunnerInfo& info, const EngineOptions& options);

  int64_t slots() const { return slots_; }
  // Pages of a request with so many tokens of prompt and output, at its end.
  int64_t MostPages(int64_t prompt_size, int64_t room) const;

  void Add(LiveRequest& request);
  // Waits, but is not served until Release adds it.
  void Hold(LiveRequest& request);
  void Release(LiveRequest& request);
  LiveRequest* first_held() const { return first_held_; }
  // A request that ended: its slot is among the ended ones of the next plan.
  void Remove(LiveRequest& request);

  // Forgets those that ended: they may be freed.
  void DropEnded();

  // Fills a step that was reserved for slots(). Takes no memory; O(groups) for each request that
  // begins or has a chunk, and O(requests that run).
  void Plan(PlannedStep& step);

  int64_t running() const { return std::ssize(running_) - ended_running_; }
  int64_t waiting() const { return waiting_ + held_; }
  int64_t held() const { return held_; }
  const Waiting& new_waiting() const { return new_waiting_; }
  const Waiting& new_waiting(ClientId client) const {
    return new_waiting_of_[static_cast<size_t>(client.slot)];
  }
  int64_t free_pages() const { return free_pages_; }  // that no request has
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t preemptions() const { return preemptions_; }
  bool HasWork() const { return running() + waiting() > 0 || !freed_slots_.empty(); }

  // One of the live requests, until there are none.
  LiveRequest* AnyLive();

 private:
  int64_t PagesFor(int64_t tokens) const;
  void Enqueue(LiveRequest& request, bool is_first);
  void Unlink(LiveRequest& request);
  void UnlinkHeld(LiveRequest& request);
  void CountNew(const LiveRequest& request, int64_t sign);
  bool Decodes(const LiveRequest& request) const;
  int64_t LengthWithDraws(const LiveRequest& request) const;  // at most
  void PlanDecoding(PlannedStep& step);
  void CountFilling();
  void PlanPrompts(PlannedStep& step);
  LiveRequest& NextFilling(Group& group);
  static bool KeepsShare(const Group& group);    // that is kept for groups that have none
  int64_t PromptTokens(int64_t decoding) const;  // of a step with so many rows that decode
  bool MayBegin(const Group& group) const;
  bool Admit(LiveRequest& request, PlannedStep& step);
  int64_t PagesToGrow(int64_t each);
  bool TakePages(size_t& place, int64_t pages, PlannedStep& step);
  size_t ToPreempt(size_t place) const;
  void Preempt(size_t place, PlannedStep& step);
  void GivePages(LiveRequest& request);
  int64_t ChunkSize(const LiveRequest& request, int64_t to_bring) const;
  void AddChunk(LiveRequest& request, PlannedStep& step);
  void AddRow(LiveRequest& request, const StepRow& row, PlannedStep& step);

  bool bounds_prompts_;  // by the rows that decode
  int64_t step_tokens_;
  int64_t slots_;  // so few that a step has room for a token of each
  int64_t kept_slots_;
  int64_t kept_pages_;
  int64_t context_;
  int64_t page_tokens_;
  int64_t given_tokens_;  // of a row, at most
  int64_t steps_in_flight_;
  int64_t prompt_entries_;  // of lists of prompt tokens in a step
  // The state of the step that is planned:
  int64_t budget_ = 0;
  int64_t entry_budget_ = 0;
  int64_t grown_each_ = 0, to_grow_ = 0;  // pages, of one and of all running requests
  bool lacks_pages_ = false;              // for a request that waits
  int64_t filling_groups_ = 0;            // with prompts that have begun and no chunk in it yet

  Turns turns_;
  std::vector<LiveRequest*> running_;  // in the order in which they were admitted
  int64_t ended_running_ = 0;
  std::vector<int32_t> free_slots_;
  std::vector<int32_t> freed_slots_;  // not yet reported to the runner
  int64_t free_pages_;  // that no request has: prefixes give theirs back when they are needed
  PrefixCache prefixes_;
  int64_t cached_tokens_ = 0;  // that requests began with, or went on
  int64_t waiting_ = 0;
  LiveRequest* first_held_ = nullptr;
  int64_t held_ = 0;
  Waiting new_waiting_;
  std::vector<Waiting> new_waiting_of_;  // by the slot of the client
  int64_t preemptions_ = 0;
};

}  // namespace sluice::engine
