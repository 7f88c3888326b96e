// What Explain says of every token of the demonstration, by stage and by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/demo/demo_report.h"
#include "semantics/select_row.h"
#include "sluice/explain.hpp"

namespace sluice::cli {

// explanations: of every token, by id. Stages without an effect under these parameters go to `off`.
std::vector<AdjustStage> AdjustStages(std::span<const Explanation> explanations,
                                      const SamplingParams& params, std::vector<std::string>& off);

std::vector<FilterStage> FilterStages(const Explanation& explanation, const SamplingParams& params,
                                      std::vector<std::string>& off);

// The first `count` tokens by the logits as they came, and what became of each.
std::vector<CandidateRow> TraceCandidates(std::span<const Explanation> explanations, size_t count);

// Every kept token by the total order, with the score that the Gumbel draw gives it.
std::vector<DrawScore> ScoreKept(const semantics::SelectedRow& row, const SelectParams& params,
                                 const NoiseKey& key);

}  // namespace sluice::cli
