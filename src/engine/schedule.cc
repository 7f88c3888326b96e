#include "engine/schedule.h"

#include <algorithm>

#include "engine/prompt_entries.h"

namespace sluice::engine {
namespace {

constexpr int32_t kPatience = 32;  // steps in which a request may be overtaken for lack of pages
constexpr int kMostRefusals = 8;   // requests that are looked at in a step and do not fit
constexpr int64_t kKeptShare = 8;  // of slots and pages, one part is for groups that have none
constexpr int64_t kLeastPromptTokens = 32;  // of a step, whatever decodes: fewer read too slowly

}  // namespace

void PlannedStep::Reserve(size_t slots, size_t prefixes) {
  shared.reserve(slots);
  trimmed.reserve(prefixes);
  ended.reserve(slots);
  preempted.reserve(slots);
  begun.reserve(slots);
  rows.reserve(slots);
  requests.reserve(slots);
}

void PlannedStep::Clear() {
  kept.clear();
  shared.clear();
  trimmed.clear();
  ended.clear();
  preempted.clear();
  begun.clear();
  rows.clear();
  requests.clear();
}

bool PlannedStep::IsEmpty() const {
  return ended.empty() && preempted.empty() && begun.empty() && rows.empty() && trimmed.empty();
}

Schedule::Schedule(const RunnerInfo& info, const EngineOptions& options)
    : bounds_prompts_(options.step_tokens == 0),
      step_tokens_(bounds_prompts_ ? info.max_step_tokens
                                   : std::min(info.max_step_tokens, options.step_tokens)),
      slots_(std::min<int64_t>(info.max_requests, step_tokens_)),
      kept_slots_(slots_ / kKeptShare),
      kept_pages_(info.pages / kKeptShare),
      context_(info.context),
      page_tokens_(info.page_tokens),
      given_tokens_(info.max_given_tokens),
      steps_in_flight_(options.steps_in_flight),
      prompt_entries_(MostPromptEntries(info)),
      turns_(options.max_clients),
      free_pages_(info.pages),
      prefixes_(info.max_prefixes, info.page_tokens),
      new_waiting_of_(static_cast<size_t>(options.max_clients)) {
  const auto slots = static_cast<size_t>(slots_);
  running_.reserve(slots);
  freed_slots_.reserve(slots);
  free_slots_.reserve(slots);
  for (int64_t slot = slots_ - 1; slot >= 0; --slot) {
    free_slots_.push_back(static_cast<int32_t>(slot));
  }
}

int64_t Schedule::PagesFor(int64_t tokens) const {
  return (tokens + page_tokens_ - 1) / page_tokens_;
}

// The last token is never read. The number of tokens of a row in flight is not known; where it may
// be too many for the context, none is planned after it.
int64_t Schedule::MostPages(int64_t prompt_size, int64_t room) const {
  const int64_t tokens = prompt_size + room - 1 + steps_in_flight_ * (given_tokens_ - 1);
  return PagesFor(std::min(tokens, context_));
}

void Schedule::Add(LiveRequest& request) {
  turns_.Join(request);
  Enqueue(request, false);
  CountNew(request, 1);
}

void Schedule::Hold(LiveRequest& request) {
  turns_.Join(request);
  request.phase = RequestPhase::kHeld;
  request.next = first_held_;
  if (first_held_ != nullptr) first_held_->previous = &request;
  first_held_ = &request;
  ++held_;
  CountNew(request, 1);
}

void Schedule::UnlinkHeld(LiveRequest& request) {
  (request.previous != nullptr ? request.previous->next : first_held_) = request.next;
  if (request.next != nullptr) request.next->previous = request.previous;
  request.next = request.previous = nullptr;
  --held_;
}

void Schedule::Release(LiveRequest& request) {
  UnlinkHeld(request);
  Enqueue(request, false);
}

void Schedule::CountNew(const LiveRequest& request, int64_t sign) {
  for (Waiting* const count :
       {&new_waiting_, &new_waiting_of_[static_cast<size_t>(request.client.slot)]}) {
    count->requests += sign;
    count->tokens += sign * request.prompt_size;
  }
}

void Schedule::Enqueue(LiveRequest& request, bool is_first) {
  request.phase = RequestPhase::kWaiting;
  turns_.Enqueue(request, is_first);
  ++waiting_;
}

void Schedule::Unlink(LiveRequest& request) {
  Turns::Unlink(request);
  --waiting_;
  if (!request.was_admitted) CountNew(request, -1);
}

void Schedule::Remove(LiveRequest& request) {
  if (request.phase == RequestPhase::kWaiting) Unlink(request);
  if (request.phase == RequestPhase::kHeld) {
    UnlinkHeld(request);
    CountNew(request, -1);
  }
  if (request.phase == RequestPhase::kRunning) {
    ++ended_running_;
    --request.group->running;
  }
  request.phase = RequestPhase::kEnded;
  turns_.Leave(request);
  prefixes_.Keep(request, request.computed / page_tokens_);
  GivePages(request);
  if (request.slot < 0) return;
  freed_slots_.push_back(request.slot);
  free_slots_.push_back(request.slot);
}

LiveRequest* Schedule::AnyLive() {
  while (!running_.empty() && running_.back()->phase != RequestPhase::kRunning) {
    running_.pop_back();
    --ended_running_;
  }
  if (!running_.empty()) return running_.back();
  LiveRequest* const waiting = turns_.AnyWaiting();
  return waiting != nullptr ? waiting : first_held_;
}

void Schedule::DropEnded() {
  if (ended_running_ == 0) return;
  std::erase_if(running_, [](const LiveRequest* request) {
    return request->phase != RequestPhase::kRunning;
  });
  ended_running_ = 0;
}

void Schedule::Plan(PlannedStep& step) {
  step.Clear();
  step.ended.swap(freed_slots_);
  DropEnded();
  budget_ = step_tokens_;
  entry_budget_ = prompt_entries_;
  PlanDecoding(step);
  PlanPrompts(step);
  prefixes_.ShrinkTo(free_pages_);
  prefixes_.Emit(step.kept, step.trimmed);
}

// Whether it has a row without tokens in this step.
bool Schedule::Decodes(const LiveRequest& request) const {
  if (request.IsFilling()) return false;
  // Each draw gives at least one token, so what is on its way may fill the room.
  if (request.output_size() + request.draws_in_flight >= request.room) return false;
  // Until it has been read what the row in flight gave.
  return LengthWithDraws(request) <= context_;
}

int64_t Schedule::LengthWithDraws(const LiveRequest& request) const {
  return std::ssize(request.tokens) + given_tokens_ * int64_t{request.draws_in_flight};
}

void Schedule::PlanDecoding(PlannedStep& step) {
  for (size_t i = 0; i < running_.size();) {
    const LiveRequest& request = *running_[i];
    const bool has_pages =
        !Decodes(request) || TakePages(i, PagesFor(LengthWithDraws(request)), step);
    if (has_pages) ++i;  // else the next one has its place
  }
  for (LiveRequest* const request : running_) {
    if (Decodes(*request)) AddRow(*request, {.slot = request->slot}, step);
  }
}

void Schedule::CountFilling() {
  turns_.BeginStep();
  filling_groups_ = 0;
  for (LiveRequest* const request : running_) {
    if (request->IsFilling() && ++request->group->filling == 1) ++filling_groups_;
  }
}

void Schedule::PlanPrompts(PlannedStep& step) {
  budget_ = std::min(budget_, PromptTokens(std::ssize(step.rows)));
  if (budget_ == 0) return;
  CountFilling();
  grown_each_ = to_grow_ = 0;
  lacks_pages_ = false;
  // After a preemption no request is admitted: running requests took the pages that it gave back,
  // or still lack some.
  int refusals = step.preempted.empty() ? 0 : kMostRefusals;
  while (budget_ > 0) {
    Group* const group =
        turns_.Next([&](const Group& its) { return refusals < kMostRefusals && MayBegin(its); });
    if (group == nullptr) return;
    turns_.Serve(*group);
    if (group->filling > 0) {
      AddChunk(NextFilling(*group), step);
      continue;
    }
    LiveRequest& first = *group->first_waiting;
    if (Admit(first, step)) continue;
    group->is_passed = true;
    ++refusals;
    // Those that need few pages would take them for ever.
    if (++first.refusals >= kPatience) refusals = kMostRefusals;
  }
}

int64_t Schedule::PromptTokens(int64_t decoding) const {
  const int64_t left = step_tokens_ - decoding;
  if (decoding == 0 || !bounds_prompts_) return left;
  return std::min(left, std::max(kLeastPromptTokens, decoding));
}

bool Schedule::KeepsShare(const Group& group) { return group.is_named && group.running > 0; }

// As far as that takes no look at its tokens.
bool Schedule::MayBegin(const Group& group) const {
  const bool needs_slot = group.first_waiting->slot < 0;
  const int64_t share = turns_.groups() > 1 ? kept_slots_ : (kept_slots_ + 1) / 2;
  const int64_t kept = KeepsShare(group) ? share : 0;
  if (needs_slot && std::ssize(free_slots_) <= kept) return false;
  return !lacks_pages_ || group.running == 0;
}

LiveRequest& Schedule::NextFilling(Group& group) {
  if (--group.filling == 0) --filling_groups_;
  for (;; ++group.next_filling) {
    LiveRequest& request = *running_[group.next_filling];
    if (request.group != &group || !request.IsFilling()) continue;
    ++group.next_filling;
    return request;
  }
}

// Pages that running requests may take, at most `each` of them.
int64_t Schedule::PagesToGrow(int64_t each) {
  // That changes with a prompt that is longer than the budget.
  if (each == grown_each_) return to_grow_;
  grown_each_ = each;
  to_grow_ = 0;
  for (const LiveRequest* const request : running_) {
    to_grow_ += std::min(each, request->most_pages - request->pages);
  }
  return to_grow_;
}

// Pages for the whole prompt, and for what the others may need until it is there and one token has
// been drawn: a request that is preempted before has cost a pass over its tokens for nothing. One
// that is alone always fits.
bool Schedule::Admit(LiveRequest& request, PlannedStep& step) {
  const int64_t to_bring = request.tokens_to_read();
  // Tokens that are scored have to be read.
  PrefixCache::Match match;
  if (request.prompt_logprob_width == 0) {
    match = prefixes_.Find(request.tokens, (to_bring - 1) / page_tokens_);
  }
  const int64_t pages = PagesFor(to_bring);
  const int64_t taken = pages - match.pages + prefixes_.PagesWithoutRequest(match);
  const int64_t free_pages = free_pages_ - (KeepsShare(*request.group) ? kept_pages_ : 0);
  if (taken > free_pages) {
    lacks_pages_ = true;
    return false;
  }
  const int64_t cached = match.pages * page_tokens_;
  const int64_t chunk = ChunkSize(request, to_bring - cached);
  if (chunk == 0) return false;
  // Each row that decodes takes a token of a step's budget, and prompts of other groups that have
  // begun have their turns; all others before it are read after this step.
  const int64_t later = to_bring - cached - chunk;
  int64_t each_step = std::max<int64_t>(1, PromptTokens(running()) / (1 + filling_groups_));
  if (request.next_scored < request.prompt_size) {
    each_step = std::min(each_step, prompt_entries_ / request.prompt_logprob_width);
  }
  const int64_t steps = 1 + (later + each_step - 1) / each_step;
  // A token a step, as far as that is known: drafts may be wrong, and those of the last step have
  // room in any case.
  const int64_t each = PagesFor(steps + given_tokens_ - 1);
  if (taken + PagesToGrow(each) > free_pages) {
    lacks_pages_ = true;
    return false;
  }
  if (match.pages > 0 && !prefixes_.Share(match, request)) return false;
  Unlink(request);
  request.phase = RequestPhase::kRunning;
  running_.push_back(&request);
  ++request.group->running;
  request.to_bring = to_bring;
  request.brought = request.shared = cached;
  request.pages = pages;
  free_pages_ -= taken;
  cached_tokens_ += cached;
  to_grow_ += std::min(each, request.most_pages - pages);
  if (!request.was_admitted) {
    request.was_admitted = true;
    request.cached = cached;
    request.slot = free_slots_.back();
    free_slots_.pop_back();
    step.begun.push_back({.slot = request.slot,
                          .params = &request.params,
                          .prompt = request.tokens,
                          .choice = request.choice,
                          .max_tokens = request.room,
                          .prompt_logprob_width = request.prompt_logprob_width,
                          .mask = request.mask()});
  }
  if (cached > 0) {
    step.shared.push_back({.slot = request.slot, .prefix = match.prefix, .tokens = cached});
  }
  AddChunk(request, step);
  return true;
}

// Of the running request at this place, which moves when one before it is preempted. False: it was
// preempted itself.
bool Schedule::TakePages(size_t& place, int64_t pages, PlannedStep& step) {
  LiveRequest& request = *running_[place];
  const int64_t more = pages - request.pages;
  if (more <= 0) return true;
  while (more > free_pages_) {
    const size_t preempted = ToPreempt(place);
    Preempt(preempted, step);
    if (preempted == place) return false;
    if (preempted < place) --place;
  }
  request.pages = pages;
  free_pages_ -= more;
  return true;
}

// The youngest of a group with the most running requests, of those that have given a token since
// they were admitted: so that every pass over a prompt is followed by one. The one that needs pages
// is among them.
size_t Schedule::ToPreempt(size_t place) const {
  size_t found = place;
  int64_t most = 0;
  for (size_t i = running_.size(); i > 0; --i) {
    const LiveRequest& request = *running_[i - 1];
    if (request.IsFilling() || request.group->running <= most) continue;
    most = request.group->running;
    found = i - 1;
  }
  return found;
}

void Schedule::Preempt(size_t place, PlannedStep& step) {
  LiveRequest& request = *running_[place];
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(place));
  --request.group->running;
  step.preempted.push_back(request.slot);
  GivePages(request);
  request.brought = request.to_bring = request.computed = request.shared = 0;
  Enqueue(request, true);
  ++preemptions_;
}

void Schedule::GivePages(LiveRequest& request) {
  free_pages_ += request.pages - std::ssize(request.shared_pages) + prefixes_.Unshare(request);
  request.pages = 0;
}

// The room of the step: inputs, and lists of the tokens that follow them.
int64_t Schedule::ChunkSize(const LiveRequest& request, int64_t to_bring) const {
  const int64_t size = std::min(budget_, to_bring - request.brought);
  if (request.next_scored >= request.prompt_size) return size;
  const int64_t read_again = request.next_scored - 1 - request.brought;
  return std::min(size, read_again + entry_budget_ / request.prompt_logprob_width);
}

void Schedule::AddChunk(LiveRequest& request, PlannedStep& step) {
  const int64_t size = ChunkSize(request, request.to_bring);
  if (size == 0) {
    budget_ = 0;
    return;
  }
  const auto chunk = std::span<const int32_t>(request.tokens)
                         .subspan(static_cast<size_t>(request.brought), static_cast<size_t>(size));
  request.brought += size;
  StepRow row{.slot = request.slot,
              .tokens = chunk,
              .samples = !request.IsFilling() && request.room > 0,
              .first_scored = request.next_scored};
  const int64_t behind = std::min(request.brought + 1, request.prompt_size);
  row.scored = std::max<int64_t>(0, behind - request.next_scored);
  request.next_scored += row.scored;
  entry_budget_ -= row.scored * request.prompt_logprob_width;
  AddRow(request, row, step);
  if (request.IsFilling()) budget_ = 0;  // none overtakes, where lists and not inputs are many
}

void Schedule::AddRow(LiveRequest& request, const StepRow& row, PlannedStep& step) {
  const int64_t inputs = row.tokens.empty() ? 1 : std::ssize(row.tokens);
  budget_ -= inputs;
  request.group->served += inputs;
  ++request.rows_in_flight;
  if (row.samples) ++request.draws_in_flight;
  step.rows.push_back(row);
  step.requests.push_back(&request);
}

}  // namespace sluice::engine
