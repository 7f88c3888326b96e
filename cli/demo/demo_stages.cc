#include "cli/demo/demo_stages.h"

#include <algorithm>

#include "cli/demo/demo_row.h"
#include "cli/inspect/stage_text.h"
#include "cli/text.h"
#include "semantics/draw/noise.h"

namespace sluice::cli {
namespace {

std::string QuotedWords(std::span<const std::vector<int32_t>> words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + Quoted(DemoText(word));
  return text;
}

// The temperature at which the filters weigh tokens.
std::string TemperatureText(const SelectParams& params) {
  const std::string temperature = "temperature " + Number(params.temperature);
  const bool is_last = params.profile.temperature_stage == TemperatureStage::kLast;
  return is_last ? "temperature 1, in the draw " + Number(params.temperature) : temperature;
}

}  // namespace

std::vector<AdjustStage> AdjustStages(std::span<const Explanation> explanations,
                                      const SamplingParams& params, std::vector<std::string>& off) {
  std::vector<AdjustStage> stages;
  for (size_t s = 0; s <= static_cast<size_t>(Stage::kDry); ++s) {
    const auto stage = static_cast<Stage>(s);
    if (stage == Stage::kLogits || stage == Stage::kBitmask) continue;  // no parameters
    if (!explanations.front()[stage].is_on) {
      off.emplace_back(Name(stage));
      continue;
    }
    std::vector<LogitChange> changes;
    for (const Explanation& e : explanations) {
      const StageReport& report = e[stage];
      if (report.before != report.after) changes.push_back({e.id, report.before, report.after});
    }
    const std::string parameter = stage == Stage::kBadWords
                                      ? QuotedWords(params.bad_words)
                                      : ParameterOf(stage, params, explanations.front());
    stages.push_back({std::string(Name(stage)), parameter, std::move(changes)});
  }
  return stages;
}

std::vector<FilterStage> FilterStages(const Explanation& explanation, const SamplingParams& params,
                                      std::vector<std::string>& off) {
  std::vector<FilterStage> stages = {{"adjusted row", TemperatureText(params.Select()),
                                      explanation[Stage::kForced].tokens_left, 1.0}};
  for (auto s = static_cast<size_t>(Stage::kGreedy); s <= static_cast<size_t>(Stage::kXtc); ++s) {
    const auto stage = static_cast<Stage>(s);
    const StageReport& report = explanation[stage];
    if (report.is_on) {
      stages.push_back({std::string(Name(stage)), ParameterOf(stage, params, explanation),
                        report.tokens_left, report.mass_left});
      continue;
    }
    // Min-p stands at one of two places; it is off when it is at neither.
    const bool is_elsewhere =
        stage == Stage::kMinPLast || (stage == Stage::kMinP && explanation[Stage::kMinPLast].is_on);
    if (!is_elsewhere) off.emplace_back(Name(stage));
  }
  return stages;
}

std::vector<CandidateRow> TraceCandidates(std::span<const Explanation> explanations, size_t count) {
  std::vector<const Explanation*> order;
  for (const Explanation& e : explanations) order.push_back(&e);
  std::sort(order.begin(), order.end(), [](const Explanation* a, const Explanation* b) {
    return semantics::Before({a->logit, a->id}, {b->logit, b->id});
  });
  order.resize(std::min(count, order.size()));
  std::vector<CandidateRow> candidates;
  for (const Explanation* e : order) {
    candidates.push_back({e->id, e->logit, e->adjusted, e->probability, e->is_kept, FateOf(*e)});
  }
  return candidates;
}

std::vector<DrawScore> ScoreKept(const semantics::SelectedRow& row, const SelectParams& params,
                                 const NoiseKey& key) {
  const float scale = semantics::ScalesOf(params).draw;
  const semantics::Interval kept = row.kept;
  const auto total = static_cast<double>(semantics::MassOf(row.sorted, kept, scale));
  std::vector<DrawScore> scores;
  for (int64_t i = kept.begin; i < kept.end; ++i) {
    const semantics::Token& token = row.sorted.tokens[i];
    const float t = semantics::LogWeight(token.x, row.sorted.Max(), scale);
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, token.id));
    scores.push_back(
        {token.id, static_cast<double>(semantics::WeightOf(t)) / total, t, g, t + g, 0});
  }
  return scores;
}

}  // namespace sluice::cli
