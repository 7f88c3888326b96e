#include "link/frontend/request_table.h"

#include <algorithm>
#include <utility>

#include "engine/request_text.h"
#include "support/check.h"

namespace sluice::link {
namespace {

// An id is the engine's number and one, the slot and the generation: 7, 24 and 32 bits. No
// generation comes twice, so no id does.
RequestId IdOf(int32_t engine, RequestAddress address) {
  return {static_cast<uint64_t>(engine + 1) << 56 | static_cast<uint64_t>(address.slot) << 32 |
          address.generation};
}
int32_t EngineOf(RequestId id) { return static_cast<int32_t>(id.value >> 56) - 1; }
RequestAddress AddressOf(RequestId id) {
  return {static_cast<int32_t>(id.value >> 32 & 0xffffff), static_cast<uint32_t>(id.value)};
}

}  // namespace

int32_t RequestTable::AddEngine() {
  engines_.emplace_back();
  return static_cast<int32_t>(engines_.size()) - 1;
}

void RequestTable::SetInfo(int32_t engine, const EngineInfo& info) {
  Engine& its = At(engine);
  its.info = info;
  its.slot_count = std::min(info.max_client_requests, kMostSlots);
}

RequestTable::Slot* RequestTable::Find(int32_t engine, int32_t slot) {
  Engine& its = At(engine);
  const bool is_there = slot >= 0 && static_cast<size_t>(slot) < its.slots.size();
  return is_there ? its.slots[static_cast<size_t>(slot)].get() : nullptr;
}

RequestTable::Slot* RequestTable::Find(RequestId id) {
  const int32_t engine = EngineOf(id);
  if (engine < 0 || static_cast<size_t>(engine) >= engines_.size()) return nullptr;
  Slot* const slot = Find(engine, AddressOf(id).slot);
  const bool is_its = slot != nullptr && slot->address == AddressOf(id) && !slot->is_reported;
  return is_its && slot->state != State::kFree ? slot : nullptr;
}

// An engine that came back may have fewer slots than before.
bool RequestTable::HasFreeSlot(int32_t engine) const {
  const Engine& its = At(engine);
  if (std::ssize(its.slots) < its.slot_count) return true;
  int32_t number = its.first_free;
  while (number >= its.slot_count) number = its.slots[static_cast<size_t>(number)]->next_free;
  return number >= 0;
}

RequestTable::Slot* RequestTable::PopFree(Engine& engine) {
  if (engine.first_free < 0) return nullptr;
  Slot* const slot = engine.slots[static_cast<size_t>(engine.first_free)].get();
  engine.first_free = slot->next_free;
  if (engine.first_free < 0) engine.last_free = -1;
  return slot;
}

void RequestTable::PushFree(Slot& slot, Engine& engine) {
  const int32_t number = slot.address.slot;
  slot.next_free = -1;
  if (engine.last_free >= 0) {
    engine.slots[static_cast<size_t>(engine.last_free)]->next_free = number;
  } else {
    engine.first_free = number;
  }
  engine.last_free = number;
}

RequestTable::Slot& RequestTable::TakeSlot(int32_t engine) {
  Engine& its = At(engine);
  for (const int32_t last = its.last_free; Slot* const slot = PopFree(its);) {
    if (slot->address.slot < its.slot_count) {
      ++slot->address.generation;
      return *slot;
    }
    PushFree(*slot, its);
    if (slot->address.slot == last) break;  // that was all of them
  }
  if (std::ssize(its.slots) >= its.slot_count) {
    throw Error(ErrorCode::kExhausted, "requests", ToText(int64_t{its.taken}),
                "no more than " + ToText(int64_t{its.slot_count}) + " at once");
  }
  ReserveFor(its.slots.size() + 1, its);
  its.slots.push_back(std::make_unique<Slot>());
  Slot& slot = *its.slots.back();
  slot.engine = engine;
  slot.address = {static_cast<int32_t>(its.slots.size()) - 1, 1};
  return slot;
}

// So that what comes of requests takes no memory.
void RequestTable::ReserveFor(size_t slots, Engine& engine) {
  const auto reserve = [](auto& list, size_t size) {
    if (list.capacity() < size) list.reserve(2 * size);
  };
  reserve(engine.aborts, slots);
  reserve(engine.given_aborts, slots);
  size_t all = 1;
  for (const Engine& one : engines_) all += one.slots.size();
  reserve(due_, all);
  reserve(reported_, all);
  reserve(aborted_, all);
}

RequestId RequestTable::Add(int32_t engine, ClientRequest&& request) {
  const OutputMode mode = request.mode;
  const int64_t stream_interval = request.stream_interval;
  EngineRequest complete = CompleteRequest(std::move(request), At(engine).info, stop_at_);
  TextStream stream = engine::MakeTextStream(complete, tokenizer_, stop_lists_, StopLimits{});

  Slot& slot = TakeSlot(engine);
  const RequestId id = IdOf(engine, slot.address);
  complete.address = slot.address;
  slot.seed = *complete.params.seed;
  slot.request = std::move(complete);
  slot.is_reported = slot.is_found = false;
  slot.held_bytes = slot.invalid_bytes = 0;
  slot.output.Begin(id, slot.request, mode, stream_interval, std::move(stream));
  slot.state = State::kSubmitted;
  ++At(engine).taken;
  ++live_;
  ++counters.requests;
  ++counters.waiting;
  return id;
}

void RequestTable::Withdraw(RequestId id) {
  Slot* const slot = Find(id);
  --live_;
  --counters.requests;
  slot->is_reported = true;
  SetState(*slot, State::kEnded);
}

bool RequestTable::Abort(RequestId id) {
  Slot* const slot = Find(id);
  if (slot == nullptr || !slot->IsLive()) return false;
  SetState(*slot, State::kEndedHere);
  aborted_.push_back(slot);
  return true;
}

uint64_t RequestTable::Seed(RequestId id) const {
  const Slot* const slot = const_cast<RequestTable*>(this)->Find(id);
  if (slot == nullptr) ThrowInvalid("request", std::to_string(id.value), "one that has not ended");
  return slot->seed;
}

void RequestTable::Take(int32_t engine, const OutputRow& row) {
  Slot* const slot = Find(engine, row.address.slot);
  if (slot == nullptr || row.address.generation > slot->address.generation ||
      row.address.generation == 0) {
    ++counters.unknown_rows;
    return;
  }
  const bool is_its = row.address.generation == slot->address.generation;
  if (!is_its || slot->state == State::kFree || slot->state == State::kEnded) {
    TakeAfterEnd(row);
  } else if (slot->state == State::kEndedHere) {
    TakeStale(*slot, row);
  } else {
    TakeLive(*slot, row);
  }
}

void RequestTable::TakeAfterEnd(const OutputRow& row) {
  counters.stale_tokens += std::ssize(row.ids);
  if (row.end != GenerationEnd::kNone) {
    ++counters.repeated_ends;
  } else {
    ++counters.stale_rows;
  }
}

// Nothing is said of it but in a number: with every stop that is found here some tokens are on
// their way.
void RequestTable::TakeStale(Slot& slot, const OutputRow& row) {
  counters.stale_rows += row.ids.empty() && row.prompt.IsEmpty() ? 0 : 1;
  counters.stale_tokens += std::ssize(row.ids);
  if (slot.is_found) counters.stop_tokens += std::ssize(row.ids);
  if (row.end == GenerationEnd::kNone) return;
  counters.abort_steps.Add(At(slot.engine).step - slot.aborted_at);
  SetState(slot, State::kEnded);
}

// Why this row cannot be believed, or null.
const char* RequestTable::WhyBad(const Slot& slot, const OutputRow& row) {
  if (!slot.output.Follows(row)) {
    ++counters.gaps;
    return "the engine sent tokens that do not follow those before them";
  }
  if (!slot.output.HasRequested(row)) {
    ++counters.disagreements;
    return row.logprobs.empty() ? "the engine sent tokens without the requested log-probabilities"
                                : "the engine sent log-probabilities that were not requested";
  }
  const int64_t vocab = At(slot.engine).info.vocab;
  const auto is_foreign = [vocab](int32_t id) { return id < 0 || id >= vocab; };
  // Lists may end in ids of -1.
  const auto is_unlistable = [vocab](int32_t id) { return id < -1 || id >= vocab; };
  if (std::any_of(row.ids.begin(), row.ids.end(), is_foreign) ||
      std::any_of(row.logprob_ids.begin(), row.logprob_ids.end(), is_unlistable) ||
      std::any_of(row.prompt.ids.begin(), row.prompt.ids.end(), is_unlistable)) {
    ++counters.foreign_ids;
    return "the engine sent a token that is not in the vocabulary";
  }
  return nullptr;
}

void RequestTable::TakeLive(Slot& slot, const OutputRow& row) {
  const bool is_over_there = row.end != GenerationEnd::kNone;
  if (const char* const why = WhyBad(slot, row)) {
    EndHere(slot, GenerationEnd::kEngineLost, why, is_over_there);
    return;
  }
  if (std::exchange(slot.state, State::kStreaming) == State::kSubmitted) --counters.waiting;
  const int64_t before = slot.output.tokens();
  const RequestOutput::Verdict verdict = slot.output.Take(row);
  counters.tokens += slot.output.tokens() - before;
  counters.disagreements += slot.output.has_disagreed() ? 1 : 0;
  CountBytes(slot);
  if (slot.output.IsDue()) MakeDue(slot);
  if (verdict == RequestOutput::Verdict::kEnds) SetState(slot, State::kEnded);
  if (verdict == RequestOutput::Verdict::kEndsHere) {
    counters.stale_tokens += slot.output.surplus_tokens();
    counters.stop_tokens += slot.output.surplus_tokens();
    slot.is_found = true;
    SetState(slot, State::kEndedHere);
  }
}

void RequestTable::EndHere(Slot& slot, GenerationEnd end, std::string_view message,
                           bool is_over_there) {
  slot.output.End(end, message);
  CountBytes(slot);
  MakeDue(slot);
  SetState(slot, is_over_there ? State::kEnded : State::kEndedHere);
}

// Adds the bytes that the request's text has held or found invalid since the last call.
void RequestTable::CountBytes(Slot& slot) {
  const int64_t held = slot.output.held_bytes();
  const int64_t invalid = slot.output.invalid_bytes();
  counters.held_bytes += held - std::exchange(slot.held_bytes, held);
  counters.invalid_bytes += invalid - std::exchange(slot.invalid_bytes, invalid);
}

void RequestTable::Lose(int32_t engine, std::string_view message) {
  for (const std::unique_ptr<Slot>& slot : At(engine).slots) {
    if (slot->IsLive()) EndHere(*slot, GenerationEnd::kEngineLost, message, true);
    if (slot->state == State::kEndedHere) SetState(*slot, State::kEnded);
  }
  At(engine).aborts.clear();
}

void RequestTable::GiveUp(int32_t engine, std::string_view message) {
  for (const std::unique_ptr<Slot>& slot : At(engine).slots) {
    if (slot->IsLive()) EndHere(*slot, GenerationEnd::kEngineLost, message, false);
  }
}

// When a request has ended, the engine gets an abort, or its place may become free.
void RequestTable::SetState(Slot& slot, State state) {
  if (std::exchange(slot.state, state) == State::kSubmitted) --counters.waiting;
  if (state == State::kEndedHere) QueueAbort(slot);
  FreeIfDone(slot);
}

// There is room for one of each place. Where they could not be sent for long, some are of requests
// that the engine has ended meanwhile.
void RequestTable::QueueAbort(Slot& slot) {
  slot.aborted_at = At(slot.engine).step;
  std::vector<RequestAddress>& aborts = At(slot.engine).aborts;
  if (aborts.size() == aborts.capacity()) {
    std::erase_if(aborts, [&](const RequestAddress& address) {
      const Slot& its = *Find(slot.engine, address.slot);
      return its.address != address || its.state != State::kEndedHere;
    });
  }
  aborts.push_back(slot.address);
  ++counters.aborts;
}

void RequestTable::FreeIfDone(Slot& slot) {
  if (slot.state != State::kEnded || !slot.is_reported) return;
  slot.state = State::kFree;
  Engine& its = At(slot.engine);
  --its.taken;
  // After the last generation a place is never taken again.
  if (slot.address.generation != UINT32_MAX) PushFree(slot, its);
}

std::span<const RequestAddress> RequestTable::TakeAborts(int32_t engine) {
  Engine& its = At(engine);
  its.given_aborts.swap(its.aborts);
  its.aborts.clear();
  return its.given_aborts;
}

void RequestTable::KeepAborts(int32_t engine, std::span<const RequestAddress> aborts) {
  At(engine).aborts.assign(aborts.begin(), aborts.end());
}

void RequestTable::MakeDue(Slot& slot) {
  if (slot.is_due) return;
  slot.is_due = true;
  due_.push_back(&slot);
}

std::span<const ClientOutput> RequestTable::Outputs() {
  Release();
  outputs_.reserve(due_.size());  // or nothing has changed
  reported_.swap(due_);
  for (Slot* const slot : reported_) {
    outputs_.push_back(slot->output.NextOutput());
    slot->is_due = false;
    if (slot->output.has_ended()) --live_;
  }
  counters.outputs += std::ssize(outputs_);
  return outputs_;
}

void RequestTable::Release() {
  outputs_.clear();
  for (Slot* const slot : reported_) {
    slot->output.Forget();
    if (!slot->output.has_ended()) continue;
    slot->is_reported = true;
    FreeIfDone(*slot);
  }
  reported_.clear();
  for (Slot* const slot : aborted_) {
    slot->output.End(GenerationEnd::kCancelled, {});
    CountBytes(*slot);
    MakeDue(*slot);
  }
  aborted_.clear();
}

}  // namespace sluice::link
