// The rows of a step that try tokens ahead: which drafts they get, and what came of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/head_stage.h"
#include "engine/runner/prompt_lookup.h"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

// What a row of a request would go on from.
struct DraftRequest {
  int32_t slot = -1;
  RequestHandle request = {};
  const SamplingParams* params = nullptr;
  std::span<const int32_t> known = {};  // prompt and output
  int64_t most_tokens = 0;              // that these may become
  size_t hidden_row = 0;                // of its first hidden state, among those of the step
  DrawMask* mask = nullptr;             // null: its draws have none
};

class DraftStage {
 public:
  // The most rows of a step with drafts, theirs included: the weights are read once for all of
  // them.
  static constexpr int64_t kMostRows = 16;

  // most: drafts of a request in a step. widest: entries of a token's list of log-probabilities.
  DraftStage(int64_t most, int32_t max_requests, int64_t dim, int64_t vocab, int32_t widest);

  void BeginStep(int64_t rows);  // that sample, drafts or not
  void BeginRequest(int32_t slot) { paces_[static_cast<size_t>(slot)] = {}; }
  // The last token and its drafts, which are the row's inputs now; empty: the row has none.
  std::span<const int32_t> Add(const DraftRequest& request);

  // hidden: all hidden states of the step, of `dim` values each. Takes the tokens of all rows.
  // The masks of the rows get their tokens.
  void Verify(std::span<const float> hidden, HeadStage& head, Sampler& sampler,
              GenerationStats& stats);
  size_t rows() const { return rows_.size(); }
  int32_t slot(size_t row) const { return slots_[row]; }
  int64_t drafted(size_t row) const { return std::ssize(rows_[row].drafts); }
  // Of the drafts, those that are the request's tokens now.
  int64_t accepted(size_t row) const { return std::max<int64_t>(given_[row] - 1, 0); }
  // The tokens of the row, and a status that ended them. Valid until the next call.
  StepRowResult Result(size_t row, const HeadStage& head, int32_t logprob_width);

 private:
  std::span<const int32_t> AllowedOf(std::span<const int32_t> drafts, DrawMask& mask);
  void NoteDrawn(const HeadStage& head);

  int64_t most_;
  size_t dim_;
  size_t mask_words_;  // of a row
  int64_t free_rows_ = 0;
  std::vector<DraftPace> paces_;  // by slot
  // By row:
  std::vector<DraftedRow> rows_;
  std::vector<int32_t> slots_;
  std::vector<size_t> hidden_rows_;  // first ones, in the step
  std::vector<size_t> first_;        // first ones, here
  std::vector<int64_t> given_;       // tokens
  std::vector<DrawMask*> row_masks_;
  // Of all rows, one after the other:
  std::vector<int32_t> inputs_;
  std::vector<float> hidden_;
  std::vector<int32_t> masks_;  // empty until a row has some
  // Of one row:
  std::vector<int32_t> ids_;
  std::vector<float> values_;
};

}  // namespace sluice::engine
