#include "sampler/request_state.h"

#include <algorithm>
#include <utility>

#include "semantics/temperature.h"

namespace sluice {

using semantics::TokenCount;

RequestState::RequestState(const Request& request, int64_t vocab, uint64_t seed)
    : params_(request.params),
      select_(request.params.Select()),
      processors_(request.processors.begin(), request.processors.end()),
      prompt_length_(request.prompt.size()),
      seed_(seed),
      choice_(request.choice) {
  if (params_.allowed_token_ids.has_value()) {
    allowed_ids_ = *params_.allowed_token_ids;
    std::sort(allowed_ids_.begin(), allowed_ids_.end());
    allowed_ids_.erase(std::unique(allowed_ids_.begin(), allowed_ids_.end()), allowed_ids_.end());
  }
  bias_ = params_.logit_bias;
  std::stable_sort(bias_.begin(), bias_.end(),
                   [](const BiasEntry& a, const BiasEntry& b) { return a.id < b.id; });
  std::sort(params_.dry_sequence_breakers.begin(), params_.dry_sequence_breakers.end());
  bad_word_offsets_.push_back(0);
  for (const auto& word : params_.bad_words) {
    bad_word_ids_.insert(bad_word_ids_.end(), word.begin(), word.end());
    bad_word_offsets_.push_back(static_cast<int32_t>(bad_word_ids_.size()));
  }

  // "Unlimited" arrives as a very large number; memory for it is not.
  constexpr int32_t kLargestReservation = 1 << 20;
  const size_t longest =
      prompt_length_ + static_cast<size_t>(std::min(request.max_new_tokens, kLargestReservation));
  tokens_.reserve(longest);
  tokens_.assign(request.prompt.begin(), request.prompt.end());
  // A list of the whole vocabulary is not full: Grow would take memory for one more.
  counts_.reserve(std::min(longest, static_cast<size_t>(vocab) + 1));
  if (params_.dry_multiplier != 0.0f) dry_workspace_.resize(longest);
  // Counting a sorted copy keeps admission at n log n: entries are then appended, never inserted.
  std::vector<int32_t> sorted(tokens_);
  std::sort(sorted.begin(), sorted.end());
  for (const int32_t token : sorted) Count(token, true);
}

semantics::AdjustInput RequestState::Adjustments(const int32_t* bitmask) {
  semantics::AdjustInput in;
  in.bitmask = bitmask;
  in.has_allowed_ids = params_.allowed_token_ids.has_value();
  in.allowed_ids = allowed_ids_;
  in.bad_words = {bad_word_ids_, bad_word_offsets_};
  in.stop_ids = params_.stop_token_ids;
  in.min_tokens = params_.min_tokens;
  in.bias = bias_;
  in.penalties = {params_.repetition_penalty, params_.frequency_penalty, params_.presence_penalty};
  in.penalty_scope = params_.profile.penalty_scope;
  in.dry = {params_.dry_multiplier, params_.dry_base, params_.dry_allowed_length, params_.dry_range,
            params_.dry_sequence_breakers};
  in.tokens = tokens_;
  in.prompt_length = prompt_length_;
  in.counts = counts_;
  in.dry_workspace = dry_workspace_;
  return in;
}

bool RequestState::RunsProcessors() const {
  return std::any_of(processors_.begin(), processors_.end(), [&](const LogitsProcessor& p) {
    return !(p.argmax_invariant && semantics::IsGreedy(select_));
  });
}

bool ChangesLogits(const SamplingParams& params, int64_t output_length) {
  const bool masks = params.allowed_token_ids.has_value() || !params.bad_words.empty() ||
                     output_length < params.min_tokens;
  const bool penalties = params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
                         params.presence_penalty != 0.0f || params.dry_multiplier != 0.0f;
  return masks || penalties || !params.logit_bias.empty();
}

bool RequestState::HasAdjustments() const {
  return ChangesLogits(params_, static_cast<int64_t>(output_length())) || RunsProcessors();
}

void RequestState::Count(int32_t token, bool in_prompt) {
  const size_t at = semantics::LowerBound(counts_, token);
  if (at == counts_.size() || counts_[at].id != token) {
    counts_.insert(counts_.begin() + static_cast<std::ptrdiff_t>(at), TokenCount{token, 0, 0, 0});
  }
  in_prompt ? ++counts_[at].in_prompt : ++counts_[at].in_output;
}

// Room for one more token everywhere, before anything changes. The old tokens stay alive until the
// next growth, because a step's drafts may be a part of them.
void RequestState::Grow() {
  if (tokens_.size() == tokens_.capacity()) {
    std::vector<int32_t> larger;
    larger.reserve(2 * tokens_.capacity() + 64);
    larger.assign(tokens_.begin(), tokens_.end());
    outgrown_ = std::exchange(tokens_, std::move(larger));
  }
  if (counts_.size() == counts_.capacity()) counts_.reserve(2 * counts_.capacity() + 64);
  if (params_.dry_multiplier != 0.0f && dry_workspace_.size() <= tokens_.size()) {
    dry_workspace_.resize(tokens_.capacity());
  }
}

void RequestState::Accept(int32_t token) {
  Grow();
  tokens_.push_back(token);
  Count(token, false);
}

void RequestState::Rollback(size_t count) {
  for (; count > 0; --count) {
    const size_t at = semantics::LowerBound(counts_, tokens_.back());
    TokenCount& entry = counts_[at];
    --entry.in_output;
    if (entry.in_output == 0 && entry.in_prompt == 0) {
      counts_.erase(counts_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    tokens_.pop_back();
  }
}

}  // namespace sluice
