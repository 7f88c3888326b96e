#include "engine/step_slots.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/prompt_entries.h"
#include "support/check.h"

namespace sluice::engine {

StepSlots::StepSlots(const RunnerInfo& info)
    : info_(info),
      slots_(static_cast<size_t>(info.max_requests)),
      planned_(slots_),
      prefixes_(static_cast<size_t>(info.max_prefixes), 0),
      planned_prefixes_(prefixes_) {}

int64_t StepSlots::Apply(const StepPlan& plan) {
  planned_ = slots_;
  planned_prefixes_ = prefixes_;
  for (StepSlot& slot : planned_) slot.has_row = false;
  for (const KeptPrefix& kept : plan.kept) Keep(kept);
  for (const int32_t slot : plan.ended) Taken("ended", slot) = {};
  for (const int32_t slot : plan.preempted) {
    StepSlot& preempted = Taken("preempted", slot);
    preempted.cached = preempted.shared = 0;
    preempted.given = 0;
  }
  for (const RunnerRequest& request : plan.begun) {
    CheckInRange("begun.slot", request.slot, 0, info_.max_requests - 1);
    StepSlot& slot = planned_[static_cast<size_t>(request.slot)];
    if (slot.is_taken) {
      ThrowInvalid("begun.slot", ToText(int64_t{request.slot}) + ", which is taken", "a free slot");
    }
    slot = {.is_taken = true,
            .tokens = std::ssize(request.prompt),
            .prompt = std::ssize(request.prompt),
            .prompt_logprob_width = request.prompt_logprob_width};
  }
  for (const SharedPrefix& shared : plan.shared) Share(shared);
  for (const TrimmedPrefix& trimmed : plan.trimmed) {
    Prefix("trimmed", trimmed.prefix, trimmed.tokens) = trimmed.tokens;
  }
  int64_t inputs = 0;
  prompt_entries_ = 0;
  for (const StepRow& row : plan.rows) inputs += AddRow(row);
  CheckInRange("tokens of all rows", inputs, 0, info_.max_step_tokens);
  CheckInRange("entries of the lists of prompt tokens", prompt_entries_, 0,
               MostPromptEntries(info_));
  CheckPages();
  std::swap(slots_, planned_);
  std::swap(prefixes_, planned_prefixes_);
  return inputs;
}

StepSlot& StepSlots::Taken(std::string_view list, int32_t slot) {
  CheckInRange(MemberName(list, "slot"), slot, 0, info_.max_requests - 1);
  StepSlot& taken = planned_[static_cast<size_t>(slot)];
  if (!taken.is_taken) {
    ThrowInvalid(MemberName(list, "slot"), ToText(int64_t{slot}) + ", which is free",
                 "the slot of a request");
  }
  return taken;
}

// Returns the length of a prefix, and checks that it has at least `tokens` tokens.
int64_t& StepSlots::Prefix(std::string_view list, int32_t prefix, int64_t tokens) {
  CheckInRange(MemberName(list, "prefix"), prefix, 0, info_.max_prefixes - 1);
  int64_t& length = planned_prefixes_[static_cast<size_t>(prefix)];
  CheckInRange(MemberName(list, "tokens"), tokens, 0, length);
  if (tokens % info_.page_tokens != 0) {
    ThrowInvalid(MemberName(list, "tokens"), ToText(tokens),
                 "whole pages of " + ToText(info_.page_tokens) + " tokens");
  }
  return length;
}

void StepSlots::Keep(const KeptPrefix& kept) {
  const StepSlot& slot = Taken("kept", kept.slot);
  int64_t& length = Prefix("kept", kept.prefix, 0);
  if (length != 0) {
    ThrowInvalid("kept.prefix", ToText(int64_t{kept.prefix}) + ", which is taken", "a free place");
  }
  CheckInRange("kept.tokens", kept.tokens, info_.page_tokens, slot.cached);
  length = kept.tokens;
  Prefix("kept", kept.prefix, kept.tokens);
}

void StepSlots::Share(const SharedPrefix& shared) {
  StepSlot& slot = Taken("shared", shared.slot);
  Prefix("shared", shared.prefix, shared.tokens);
  if (slot.cached != 0) {
    ThrowInvalid("shared.slot", "one with " + ToText(slot.cached) + " tokens in its cache",
                 "one with an empty cache");
  }
  CheckInRange("shared.tokens", shared.tokens, 1, slot.tokens - 1);
  slot.cached = slot.shared = shared.tokens;
}

int64_t StepSlots::AddRow(const StepRow& row) {
  StepSlot& slot = Taken("rows", row.slot);
  const auto name = [&] { return "of slot " + ToText(int64_t{row.slot}); };
  if (slot.has_row) ThrowInvalid("rows", "two " + name(), "one of each slot");
  slot.has_row = true;
  if (slot.has_failed) return 0;
  const int64_t read = row.tokens.empty() ? slot.given : std::ssize(row.tokens);
  if (read == 0) {
    ThrowInvalid("rows.tokens", "none " + name(), "some, where the last step has given none");
  }
  slot.cached += read;
  slot.given = 0;
  if (row.scored != 0) CheckScored(row, slot, slot.cached - read);
  // The sampler draws after all tokens that it has of a request.
  if (row.samples ? slot.cached != slot.tokens : slot.cached > slot.tokens) {
    ThrowInvalid("rows.tokens", ToText(slot.cached) + " with those in the cache, " + name(),
                 std::string(row.samples ? "all " : "at most ")
                     .append(ToText(slot.tokens))
                     .append(" of prompt and output"));
  }
  if (slot.cached > info_.context) {
    ThrowInvalid("rows.tokens", ToText(slot.cached) + " with those in the cache, " + name(),
                 "at most the context, " + ToText(info_.context));
  }
  return row.tokens.empty() ? 1 : read;  // whatever a burst was, as RunnerInfo counts
}

void StepSlots::CheckScored(const StepRow& row, const StepSlot& slot, int64_t cached_before) {
  const int64_t begin = cached_before + 1;
  const int64_t end = std::min(slot.cached + 1, slot.prompt);
  const bool is_requested = slot.prompt_logprob_width > 0;
  const bool fits = row.first_scored >= begin && row.first_scored <= end && row.scored > 0 &&
                    row.scored <= end - row.first_scored;
  if (!is_requested || !fits) {
    ThrowInvalid("rows.scored",
                 ToText(row.scored) + " from place " + ToText(row.first_scored) +
                     " of the prompt of slot " + ToText(int64_t{row.slot}),
                 is_requested ? "places from " + ToText(begin) + " on, before " + ToText(end)
                              : "0 without log-probabilities of the prompt");
  }
  prompt_entries_ += row.scored * slot.prompt_logprob_width;
}

void StepSlots::CheckPages() const {
  int64_t pages = 0;
  for (const StepSlot& slot : planned_) {
    pages += (slot.cached - slot.shared + info_.page_tokens - 1) / info_.page_tokens;
  }
  if (pages > info_.pages) {
    throw Error(ErrorCode::kExhausted, "pages of all requests", ToText(pages),
                "at most " + ToText(info_.pages));
  }
}

void StepSlots::Give(int32_t slot, int64_t tokens) {
  StepSlot& to = slots_[static_cast<size_t>(slot)];
  to.tokens += tokens;
  to.given = tokens;
}

}  // namespace sluice::engine
