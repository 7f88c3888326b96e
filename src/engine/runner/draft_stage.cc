#include "engine/runner/draft_stage.h"

#include <algorithm>

namespace sluice::engine {

DraftStage::DraftStage(int64_t most, int32_t max_requests, int64_t dim, int64_t vocab,
                       int32_t widest)
    : most_(most),
      dim_(static_cast<size_t>(dim)),
      mask_words_((static_cast<size_t>(vocab) + 31) / 32) {
  if (most_ == 0) return;
  constexpr auto kRows = static_cast<size_t>(kMostRows);
  paces_.resize(static_cast<size_t>(max_requests));
  rows_.reserve(kRows);
  slots_.reserve(kRows);
  hidden_rows_.reserve(kRows);
  first_.reserve(kRows);
  given_.reserve(kRows);
  row_masks_.reserve(kRows);
  masks_.resize(kRows * mask_words_);
  inputs_.reserve(kRows);
  hidden_.resize(kRows * dim_);
  ids_.reserve(kRows * static_cast<size_t>(widest));
  values_.reserve(kRows * static_cast<size_t>(widest));
}

void DraftStage::BeginStep(int64_t rows) {
  free_rows_ = kMostRows - rows;
  rows_.clear();
  slots_.clear();
  hidden_rows_.clear();
  first_.clear();
  given_.clear();
  row_masks_.clear();
  inputs_.clear();
}

std::span<const int32_t> DraftStage::Add(const DraftRequest& request) {
  if (most_ == 0 || free_rows_ <= 0 || request.params->draft_mode != DraftMode::kMatch) return {};
  // One token comes without a draft.
  const int64_t room = request.most_tokens - std::ssize(request.known) - 1;
  const int64_t open = request.mask == nullptr ? INT64_MAX : request.mask->open_draws();
  const int64_t unmasked = open > 0 ? open - 1 : most_;
  const int64_t most = std::min({room, free_rows_, most_, unmasked});
  const int64_t length = paces_[static_cast<size_t>(request.slot)].Next(most);
  std::span<const int32_t> drafts = LookUp(request.known, length);
  if (open == 0 && !drafts.empty()) drafts = AllowedOf(drafts, *request.mask);
  if (drafts.empty()) return {};
  const size_t first = inputs_.size();
  inputs_.push_back(request.known.back());
  inputs_.insert(inputs_.end(), drafts.begin(), drafts.end());
  const std::span<const int32_t> inputs = std::span(inputs_).subspan(first);
  rows_.push_back(
      {.request = request.request, .params = request.params, .drafts = inputs.subspan(1)});
  if (open == 0) {
    rows_.back().bitmask =
        std::span(masks_).subspan(first * mask_words_, inputs.size() * mask_words_);
  }
  row_masks_.push_back(request.mask);
  slots_.push_back(request.slot);
  hidden_rows_.push_back(request.hidden_row);
  first_.push_back(first);
  free_rows_ -= std::ssize(drafts);
  return inputs;
}

// As many as may come, with their masks among those of all rows.
std::span<const int32_t> DraftStage::AllowedOf(std::span<const int32_t> drafts, DrawMask& mask) {
  const std::span<int32_t> words =
      std::span(masks_).subspan(inputs_.size() * mask_words_, (drafts.size() + 1) * mask_words_);
  return drafts.first(static_cast<size_t>(mask.AwaitDrafts(drafts, words)));
}

void DraftStage::NoteDrawn(const HeadStage& head) {
  DrawMask* drawn = nullptr;
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (row_masks_[row] == nullptr) continue;
    for (size_t i = 0; i < static_cast<size_t>(given_[row]); ++i) {
      row_masks_[row]->Drew(head.verified().tokens[first_[row] + i].id);
    }
    if (row_masks_[row]->makes_masks()) drawn = row_masks_[row];
  }
  if (drawn != nullptr) drawn->Flush();
}

void DraftStage::Verify(std::span<const float> hidden, HeadStage& head, Sampler& sampler,
                        GenerationStats& stats) {
  if (rows_.empty()) return;
  for (size_t row = 0; row < rows_.size(); ++row) {
    const auto states =
        hidden.subspan(hidden_rows_[row] * dim_, (rows_[row].drafts.size() + 1) * dim_);
    std::ranges::copy(states, std::span(hidden_).subspan(first_[row] * dim_).begin());
  }
  const auto dim = static_cast<int64_t>(dim_);
  head.Verify({hidden_.data(), std::ssize(inputs_), dim, dim}, rows_, sampler, stats);
  for (size_t row = 0; row < rows_.size(); ++row) {
    given_.push_back(head.emitted(row));
    paces_[static_cast<size_t>(slots_[row])].Take(drafted(row), accepted(row));
    stats.draft_tokens += drafted(row);
    stats.accepted_draft_tokens += accepted(row);
  }
  NoteDrawn(head);
}

// Lists of the widest row's width become lists of the row's own.
StepRowResult DraftStage::Result(size_t row, const HeadStage& head, int32_t logprob_width) {
  const HeadResults& results = head.verified();
  const std::span<const TokenResult> tokens =
      std::span(results.tokens).subspan(first_[row], rows_[row].drafts.size() + 1);
  const auto given = static_cast<size_t>(given_[row]);
  const bool has_status = given < tokens.size() && tokens[given].status != RowStatus::kOk;
  const size_t count = given + (has_status ? 1 : 0);
  const auto width = static_cast<size_t>(logprob_width);
  const auto widest = static_cast<size_t>(results.logprob_width);
  ids_.clear();
  values_.clear();
  for (size_t i = first_[row]; i < first_[row] + count; ++i) {
    const auto ids = std::span(results.logprob_ids).subspan(i * widest, width);
    const auto values = std::span(results.logprob_values).subspan(i * widest, width);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    values_.insert(values_.end(), values.begin(), values.end());
  }
  return {.tokens = tokens.first(count),
          .logprob_width = logprob_width,
          .logprob_ids = ids_,
          .logprob_values = values_};
}

}  // namespace sluice::engine
