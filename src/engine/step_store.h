// Results of steps, kept for as long as a runner promises: while those of one step are read, two
// more may be on their way.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/token_columns.h"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

inline constexpr size_t kMostFailureBytes = 256;  // of a row's; the rest is left out

// As much of it as is kept: whole characters.
inline std::string_view KeptFailure(std::string_view failure) {
  if (failure.size() <= kMostFailureBytes) return failure;
  size_t size = kMostFailureBytes;
  const auto goes_on = [&] { return (static_cast<uint8_t>(failure[size]) & 0xc0) == 0x80; };
  while (size > kMostFailureBytes - 3 && goes_on()) --size;
  return failure.substr(0, size);
}

// The results of one step. Memory for as many as a step can have is reserved.
class StepStore {
 public:
  explicit StepStore(const RunnerInfo& info);

  void Clear();
  void Add(const StepRowResult& row);  // copies what it points to
  void Finish(const StepTimes& times, const StepDrafts& drafts = {});
  const StepResults& results() const { return results_; }

 private:
  std::vector<StepRowResult> rows_;
  std::vector<TokenResult> tokens_;
  LogprobColumns lists_;  // of the tokens
  LogprobColumns prompt_;
  std::vector<char> failures_;
  StepResults results_;
};

// The steps of a runner, by number.
class StepRing {
 public:
  explicit StepRing(const RunnerInfo& info)
      : stores_{StepStore(info), StepStore(info), StepStore(info)} {}

  StepStore& At(int64_t step) { return stores_[static_cast<size_t>(step) % stores_.size()]; }
  int64_t launched() const { return launched_; }
  int64_t awaited() const { return awaited_; }

  void CheckLaunch() const;  // throws Error when two steps are on their way
  int64_t Launch() { return launched_++; }
  void CheckAwait() const;  // throws Error when none is
  int64_t Await() { return awaited_++; }

 private:
  std::array<StepStore, 3> stores_;
  int64_t launched_ = 0;
  int64_t awaited_ = 0;
};

}  // namespace sluice::engine
