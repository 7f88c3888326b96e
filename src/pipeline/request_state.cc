#include "pipeline/request_state.h"

#include <algorithm>

#include "semantics/temperature.h"

namespace sluice {

using semantics::TokenCount;

RequestState::RequestState(const Request& request, uint64_t seed)
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
  bad_word_offsets_.push_back(0);
  for (const auto& word : params_.bad_words) {
    bad_word_ids_.insert(bad_word_ids_.end(), word.begin(), word.end());
    bad_word_offsets_.push_back(static_cast<int32_t>(bad_word_ids_.size()));
  }

  const size_t longest = prompt_length_ + static_cast<size_t>(request.max_new_tokens);
  tokens_.reserve(longest);
  tokens_.assign(request.prompt.begin(), request.prompt.end());
  counts_.reserve(longest);
  if (params_.dry_multiplier != 0.0f) dry_workspace_.resize(longest);
  // Counting a sorted copy keeps admission at n log n: entries are then appended, never inserted.
  std::vector<int32_t> sorted(tokens_);
  std::sort(sorted.begin(), sorted.end());
  for (const int32_t token : sorted) Count(token, true);
}

semantics::AdjustInput RequestState::Adjustments(const int32_t* bitmask, int32_t forced) {
  semantics::AdjustInput in;
  in.bitmask = bitmask;
  in.has_allowed_ids = params_.allowed_token_ids.has_value();
  in.allowed_ids = allowed_ids_;
  in.bad_words = {bad_word_ids_, bad_word_offsets_};
  in.stop_ids = params_.stop_token_ids;
  in.min_tokens = params_.min_tokens;
  in.bias = params_.logit_bias;
  in.penalties = {params_.repetition_penalty, params_.frequency_penalty, params_.presence_penalty};
  in.penalty_scope = params_.profile.penalty_scope;
  in.dry = {params_.dry_multiplier, params_.dry_base, params_.dry_allowed_length, params_.dry_range,
            params_.dry_sequence_breakers};
  in.forced = forced;
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

bool RequestState::HasAdjustments() const {
  const bool masks = params_.allowed_token_ids.has_value() || !params_.bad_words.empty() ||
                     output_length() < static_cast<size_t>(params_.min_tokens);
  const bool penalties = params_.repetition_penalty != 1.0f || params_.frequency_penalty != 0.0f ||
                         params_.presence_penalty != 0.0f || params_.dry_multiplier != 0.0f;
  return masks || penalties || !params_.logit_bias.empty() || RunsProcessors();
}

void RequestState::Count(int32_t token, bool in_prompt) {
  const size_t at = semantics::LowerBound(counts_, token);
  if (at == counts_.size() || counts_[at].id != token) {
    counts_.insert(counts_.begin() + static_cast<std::ptrdiff_t>(at), TokenCount{token, 0, 0, 0});
  }
  in_prompt ? ++counts_[at].in_prompt : ++counts_[at].in_output;
}

void RequestState::Accept(int32_t token) {
  tokens_.push_back(token);
  if (params_.dry_multiplier != 0.0f && dry_workspace_.size() < tokens_.size()) {
    dry_workspace_.resize(tokens_.capacity());
  }
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
