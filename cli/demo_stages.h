// The stages of the pipeline one by one, by the scalar definition, so that each can be shown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/demo_report.h"
#include "semantics/select_row.h"

namespace sluice::cli {

struct RequestTokens {
  std::vector<int32_t> ids;  // prompt, then output
  size_t prompt_length;
};

// Adjusts the logits in place. Stages without an effect under these parameters go to `off`.
std::vector<AdjustStage> AdjustStageByStage(std::span<float> logits, const SamplingParams& params,
                                            const RequestTokens& tokens,
                                            std::vector<std::string>& off);

std::vector<FilterStage> FilterStages(const semantics::SelectedRow& row,
                                      const SamplingParams& params, const NoiseKey& key,
                                      std::vector<std::string>& off);

// The first `count` tokens by the logits as they came, and what became of each.
std::vector<CandidateRow> TraceCandidates(std::span<const float> logits,
                                          std::span<const float> adjusted,
                                          const semantics::SelectedRow& row,
                                          const SelectParams& params,
                                          std::span<const AdjustStage> adjustments, size_t count);

// Every kept token by the total order, with the score that the Gumbel draw gives it.
std::vector<DrawScore> ScoreKept(const semantics::SelectedRow& row, const SelectParams& params,
                                 const NoiseKey& key);

}  // namespace sluice::cli
