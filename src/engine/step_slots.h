// A runner's record of its slots: the request of each, and how much of it the cache holds. A plan
// is checked against it as a whole, before the runner changes anything.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sluice/step_runner.hpp"

namespace sluice::engine {

struct StepSlot {
  bool is_taken = false;
  bool has_failed = false;  // its rows are not computed any more
  bool has_row = false;     // in the plan at hand
  int64_t tokens = 0;       // of the prompt and of the output so far,
  int64_t cached = 0;       // of these in the cache,
  int64_t shared = 0;       // and of these in pages of a prefix
  int64_t given = 0;        // by its last row: what a row without tokens reads
  int64_t prompt = 0;       // its tokens, and the width of their lists
  int32_t prompt_logprob_width = 0;
};

class StepSlots {
 public:
  // The runner with the limits of the plans must outlive it.
  explicit StepSlots(const RunnerInfo& info);

  // Throws Error when the plan does not fit, and nothing has changed then. Else the slots are as
  // after the plan, but for what its rows give. Returns how many inputs the rows are.
  int64_t Apply(const StepPlan& plan);

  const StepSlot& At(int32_t slot) const { return slots_[static_cast<size_t>(slot)]; }
  void Give(int32_t slot, int64_t tokens);
  void Fail(int32_t slot) { slots_[static_cast<size_t>(slot)].has_failed = true; }

 private:
  StepSlot& Taken(std::string_view list, int32_t slot);
  int64_t& Prefix(std::string_view list, int32_t prefix, int64_t tokens);
  void Keep(const KeptPrefix& kept);
  void Share(const SharedPrefix& shared);
  int64_t AddRow(const StepRow& row);  // how many inputs it is
  void CheckScored(const StepRow& row, const StepSlot& slot, int64_t cached_before);
  void CheckPages() const;

  const RunnerInfo& info_;
  std::vector<StepSlot> slots_;
  std::vector<StepSlot> planned_;
  std::vector<int64_t> prefixes_;  // their tokens; 0: a free place
  std::vector<int64_t> planned_prefixes_;
  int64_t prompt_entries_ = 0;  // of the plan at hand
};

}  // namespace sluice::engine
