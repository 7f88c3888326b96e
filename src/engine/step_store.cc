#include "engine/step_store.h"

#include <algorithm>
#include <span>

#include "engine/prompt_entries.h"
#include "support/check.h"

namespace sluice::engine {
namespace {

constexpr int64_t kMostOnTheirWay = 2;

template <typename T>
void Append(std::span<const T> from, std::vector<T>& to) {
  to.insert(to.end(), from.begin(), from.end());
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
  logprob_ids_.reserve(tokens * static_cast<size_t>(1 + listed));
  logprob_values_.reserve(tokens * static_cast<size_t>(1 + listed));
  const int64_t most_entries = MostPromptEntries(info);
  const int64_t scored = std::min(most_entries, info.max_step_tokens);
  const auto entries = static_cast<size_t>(std::min(most_entries, scored * (1 + listed)));
  prompt_logprobs_.reserve(static_cast<size_t>(scored));
  prompt_ranks_.reserve(static_cast<size_t>(scored));
  prompt_ids_.reserve(entries);
  prompt_values_.reserve(entries);
  failures_.reserve(rows * kMostFailureBytes);
}

void StepStore::Clear() {
  rows_.clear();
  tokens_.clear();
  logprob_ids_.clear();
  logprob_values_.clear();
  prompt_logprobs_.clear();
  prompt_ranks_.clear();
  prompt_ids_.clear();
  prompt_values_.clear();
  failures_.clear();
}

void StepStore::Add(const StepRowResult& row) {
  rows_.push_back(row);
  rows_.back().failure = KeptFailure(row.failure);
  Append(row.tokens, tokens_);
  Append(row.logprob_ids, logprob_ids_);
  Append(row.logprob_values, logprob_values_);
  Append(row.prompt.logprobs, prompt_logprobs_);
  Append(row.prompt.ranks, prompt_ranks_);
  Append(row.prompt.ids, prompt_ids_);
  Append(row.prompt.values, prompt_values_);
  Append<char>(rows_.back().failure, failures_);
}

void StepStore::Finish(const StepTimes& times) {
  size_t token = 0, id = 0, value = 0, failure = 0;
  size_t scored = 0, ranked = 0, prompt_id = 0, prompt_value = 0;
  for (StepRowResult& row : rows_) {
    row.tokens = Next(tokens_, token, row.tokens.size());
    row.logprob_ids = Next(logprob_ids_, id, row.logprob_ids.size());
    row.logprob_values = Next(logprob_values_, value, row.logprob_values.size());
    PromptLogprobs& prompt = row.prompt;
    prompt.logprobs = Next(prompt_logprobs_, scored, prompt.logprobs.size());
    prompt.ranks = Next(prompt_ranks_, ranked, prompt.ranks.size());
    prompt.ids = Next(prompt_ids_, prompt_id, prompt.ids.size());
    prompt.values = Next(prompt_values_, prompt_value, prompt.values.size());
    const std::span<const char> text = Next(failures_, failure, row.failure.size());
    row.failure = {text.data(), text.size()};
  }
  results_ = {.rows = rows_, .times = times};
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
