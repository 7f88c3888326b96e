#include "engine/step_store.h"

#include <algorithm>
#include <span>

#include "engine/prompt_entries.h"
#include "support/check.h"

namespace sluice::engine {
namespace {

constexpr int64_t kMostOnTheirWay = 2;

// The results themselves have the values and ranks.
LogprobView ListsOf(const StepRowResult& row) {
  return {.width = row.logprob_width, .ids = row.logprob_ids, .values = row.logprob_values};
}

// The next elements of those that the rows have copied, one row after the other.
template <typename T>
std::span<const T> Next(const std::vector<T>& all, size_t& begin, size_t size) {
  const std::span<const T> next = std::span(all).subspan(begin, size);
  begin += size;
  return next;
}

}  // namespace

StepStore::StepStore(const RunnerInfo& info) {
  const auto rows = static_cast<size_t>(info.max_requests);
  const size_t tokens = rows * static_cast<size_t>(info.max_given_tokens);
  const int64_t listed = info.max_logprobs < 0 ? info.vocab : info.max_logprobs;
  rows_.reserve(rows);
  tokens_.reserve(tokens);
  lists_.Reserve(0, tokens * static_cast<size_t>(1 + listed));
  const int64_t most_entries = MostPromptEntries(info);
  const int64_t scored = std::min(most_entries, info.max_step_tokens);
  const auto entries = static_cast<size_t>(std::min(most_entries, scored * (1 + listed)));
  prompt_.Reserve(static_cast<size_t>(scored), entries);
  failures_.reserve(rows * kMostFailureBytes);
}

void StepStore::Clear() {
  rows_.clear();
  tokens_.clear();
  lists_.Clear();
  prompt_.Clear();
  failures_.clear();
}

void StepStore::Add(const StepRowResult& row) {
  rows_.push_back(row);
  rows_.back().failure = KeptFailure(row.failure);
  AppendTo(tokens_, row.tokens);
  lists_.Append(ListsOf(row));
  prompt_.Append(LogprobsOf(row.prompt));
  AppendTo(failures_, std::span<const char>(rows_.back().failure));
}

void StepStore::Finish(const StepTimes& times, const StepDrafts& drafts) {
  size_t token = 0, failure = 0;
  LogprobCursor lists(lists_), prompt(prompt_);
  for (StepRowResult& row : rows_) {
    row.tokens = Next(tokens_, token, row.tokens.size());
    const LogprobView listed = lists.Next(ListsOf(row));
    row.logprob_ids = listed.ids;
    row.logprob_values = listed.values;
    SetLogprobs(row.prompt, prompt.Next(LogprobsOf(row.prompt)));
    const std::span<const char> text = Next(failures_, failure, row.failure.size());
    row.failure = {text.data(), text.size()};
  }
  results_ = {.rows = rows_, .times = times, .drafts = drafts};
}

void StepRing::CheckLaunch() const {
  if (launched_ - awaited_ < kMostOnTheirWay) return;
  ThrowInvalid("steps", "a third one on its way", "at most two until the oldest is awaited");
}

void StepRing::CheckAwait() const {
  if (launched_ > awaited_) return;
  ThrowInvalid("steps", "none on its way", "one that was launched");
}

}  // namespace sluice::engine
