#include "cli/demo_stages.h"

#include <algorithm>
#include <map>

#include "cli/demo_row.h"
#include "cli/text.h"
#include "semantics/adjust.h"

namespace sluice::cli {
namespace {

using semantics::Filter;
using semantics::Interval;
using semantics::Token;

std::vector<semantics::TokenCount> CountTokens(const RequestTokens& tokens) {
  std::map<int32_t, semantics::TokenCount> by_id;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    auto& count = by_id.try_emplace(tokens.ids[i], semantics::TokenCount{tokens.ids[i], 0, 0, 0})
                      .first->second;
    ++(i < tokens.prompt_length ? count.in_prompt : count.in_output);
  }
  std::vector<semantics::TokenCount> counts;
  counts.reserve(by_id.size());
  for (const auto& entry : by_id) counts.push_back(entry.second);
  return counts;
}

std::vector<LogitChange> Changes(std::span<const float> before, std::span<const float> after) {
  std::vector<LogitChange> changes;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i]) changes.push_back({static_cast<int32_t>(i), before[i], after[i]});
  }
  return changes;
}

std::string QuotedWords(std::span<const std::vector<int32_t>> words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + Quoted(DemoText(word));
  return text;
}

std::string_view NameOf(Filter filter) {
  switch (filter) {
    case Filter::kGreedy:
      return "greedy";
    case Filter::kMinP:
      return "min-p";
    case Filter::kTopNSigma:
      return "top-n-sigma";
    case Filter::kTypical:
      return "typical";
    case Filter::kTopK:
      return "top-k";
    case Filter::kTopP:
      return "top-p";
    case Filter::kMinPLast:
      return "min-p (last)";
    case Filter::kXtc:
      return "xtc";
  }
  return "";
}

// The filter's parameter as text; empty when the filter is off.
std::string ParameterOf(Filter filter, const SelectParams& params, const NoiseKey& key) {
  if (semantics::IsGreedy(params)) return filter == Filter::kGreedy ? "the first token" : "";
  const bool min_p_is_last = params.profile.min_p_stage == MinPStage::kLast;
  const std::string min_p = params.min_p > 0 ? Number(params.min_p) : "";
  switch (filter) {
    case Filter::kGreedy:
      return "";
    case Filter::kMinP:
      return min_p_is_last ? "" : min_p;
    case Filter::kTopNSigma:
      return params.top_n_sigma > 0 ? Number(params.top_n_sigma) : "";
    case Filter::kTypical:
      return params.typical_p < 1 ? Number(params.typical_p) : "";
    case Filter::kTopK:
      return params.top_k > 0 ? Number(params.top_k) : "";
    case Filter::kTopP:
      return params.top_p < 1 ? Number(params.top_p) : "";
    case Filter::kMinPLast:
      return min_p_is_last ? min_p : "";
    case Filter::kXtc:
      break;
  }
  if (!(params.xtc_probability > 0)) return "";
  const bool falls = semantics::XtcCoinFalls(key, params.xtc_probability);
  return Number(params.xtc_threshold) + (falls ? ", the coin fell" : ", the coin did not fall");
}

// The temperature at which the filters weigh tokens.
std::string TemperatureText(const SelectParams& params) {
  const std::string temperature = "temperature " + Number(params.temperature);
  const bool is_last = params.profile.temperature_stage == TemperatureStage::kLast;
  return is_last ? "temperature 1, in the draw " + Number(params.temperature) : temperature;
}

// Which stage took a token of the sorted row out; empty for a kept one.
std::string DroppedBy(const semantics::SelectTrace& trace, int64_t index) {
  for (int f = 0; f < semantics::kFilters; ++f) {
    const Interval after = trace.after[f];
    if (index < after.begin || index >= after.end) {
      return std::string("dropped by ").append(NameOf(static_cast<Filter>(f)));
    }
  }
  return "";
}

// The adjustments that changed a token: "masked by bad words", "repetition penalty"; else empty.
std::string AdjustedBy(std::span<const AdjustStage> adjustments, int32_t id) {
  std::string names;
  for (const AdjustStage& stage : adjustments) {
    for (const LogitChange& change : stage.changes) {
      if (change.id != id) continue;
      if (change.after == -semantics::Infinity()) return "masked by " + stage.name;
      names += (names.empty() ? "" : ", ") + stage.name;
    }
  }
  return names;
}

}  // namespace

std::vector<AdjustStage> AdjustStageByStage(std::span<float> logits, const SamplingParams& params,
                                            const RequestTokens& tokens,
                                            std::vector<std::string>& off) {
  std::vector<semantics::TokenCount> counts = CountTokens(tokens);
  const auto output = std::span<const int32_t>(tokens.ids).subspan(tokens.prompt_length);
  const PenaltyScope scope = params.profile.penalty_scope;
  std::vector<AdjustStage> stages;
  auto stage = [&](const char* name, bool is_on, const std::string& parameter, auto apply) {
    if (!is_on) {
      off.emplace_back(name);
      return;
    }
    const std::vector<float> before(logits.begin(), logits.end());
    apply();
    stages.push_back({name, parameter, Changes(before, logits)});
  };

  stage("bad words", !params.bad_words.empty(), QuotedWords(params.bad_words), [&] {
    std::vector<int32_t> ids;
    std::vector<int32_t> offsets = {0};
    for (const auto& word : params.bad_words) {
      ids.insert(ids.end(), word.begin(), word.end());
      offsets.push_back(static_cast<int32_t>(ids.size()));
    }
    semantics::ApplyBadWords(logits, {ids, offsets}, output);
  });
  stage("min-tokens", params.min_tokens > 0, Number(params.min_tokens), [&] {
    semantics::ApplyMinTokens(logits, params.stop_token_ids, params.min_tokens,
                              static_cast<int64_t>(output.size()));
  });
  auto penalty = [&](const char* name, float value, const semantics::Penalties& penalties) {
    stage(name, penalties.repetition != 1 || penalties.frequency != 0 || penalties.presence != 0,
          Number(value), [&] { semantics::ApplyPenalties(logits, penalties, counts, scope); });
  };
  penalty("repetition penalty", params.repetition_penalty,
          {.repetition = params.repetition_penalty});
  penalty("frequency penalty", params.frequency_penalty, {.frequency = params.frequency_penalty});
  penalty("presence penalty", params.presence_penalty, {.presence = params.presence_penalty});
  std::vector<uint32_t> dry_workspace(tokens.ids.size());
  stage("dry", params.dry_multiplier > 0, Number(params.dry_multiplier), [&] {
    semantics::ApplyDry(logits,
                        {params.dry_multiplier, params.dry_base, params.dry_allowed_length,
                         params.dry_range, params.dry_sequence_breakers},
                        tokens.ids, counts, dry_workspace);
  });
  return stages;
}

std::vector<FilterStage> FilterStages(const semantics::SelectedRow& row,
                                      const SamplingParams& params, const NoiseKey& key,
                                      std::vector<std::string>& off) {
  const SelectParams select = params.Select();
  const float scale = semantics::ScalesOf(select).filter;
  const auto total =
      static_cast<double>(semantics::MassOf(row.sorted, {0, row.sorted.size}, scale));
  std::vector<FilterStage> stages = {
      {"adjusted row", TemperatureText(select), row.sorted.size, 1.0}};
  for (int f = 0; f < semantics::kFilters; ++f) {
    const auto filter = static_cast<Filter>(f);
    const std::string name(NameOf(filter));
    const std::string parameter = ParameterOf(filter, select, key);
    if (parameter.empty()) {
      // Min-p stands at one of two places; it is off when it is at neither.
      const bool is_min_p = filter == Filter::kMinP || filter == Filter::kMinPLast;
      const bool is_shown = is_min_p && (select.min_p > 0 || filter == Filter::kMinPLast);
      if (!is_shown) off.push_back(name);
      continue;
    }
    const Interval after = row.trace.after[f];
    const auto mass = static_cast<double>(semantics::MassOf(row.sorted, after, scale));
    stages.push_back({name, parameter, after.end - after.begin, mass / total});
  }
  return stages;
}

std::vector<CandidateRow> TraceCandidates(std::span<const float> logits,
                                          std::span<const float> adjusted,
                                          const semantics::SelectedRow& row,
                                          const SelectParams& params,
                                          std::span<const AdjustStage> adjustments, size_t count) {
  std::vector<Token> order;
  order.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) order.push_back({logits[i], static_cast<int32_t>(i)});
  semantics::SortByOrder(order.data(), static_cast<int64_t>(order.size()));
  order.resize(std::min(count, order.size()));

  const float scale = semantics::ScalesOf(params).filter;
  const auto total =
      static_cast<double>(semantics::MassOf(row.sorted, {0, row.sorted.size}, scale));
  const std::span<const Token> sorted(row.sorted.tokens, static_cast<size_t>(row.sorted.size));
  std::vector<CandidateRow> candidates;
  for (const Token& token : order) {
    const float x = adjusted[static_cast<size_t>(token.id)];
    std::string fate = AdjustedBy(adjustments, token.id);
    if (x == -semantics::Infinity()) {
      candidates.push_back({token.id, token.x, x, 0.0, false, fate});
      continue;
    }
    const auto place =
        std::lower_bound(sorted.begin(), sorted.end(), Token{x, token.id}, semantics::Before);
    const std::string dropped = DroppedBy(row.trace, place - sorted.begin());
    const double probability =
        static_cast<double>(semantics::Weight(x, row.sorted.Max(), scale)) / total;
    fate += (fate.empty() ? "" : ", ") + (dropped.empty() ? std::string("kept") : dropped);
    candidates.push_back({token.id, token.x, x, probability, dropped.empty(), fate});
  }
  return candidates;
}

std::vector<DrawScore> ScoreKept(const semantics::SelectedRow& row, const SelectParams& params,
                                 const NoiseKey& key) {
  const float scale = semantics::ScalesOf(params).draw;
  const Interval kept = row.kept;
  const auto total = static_cast<double>(semantics::MassOf(row.sorted, kept, scale));
  std::vector<DrawScore> scores;
  for (int64_t i = kept.begin; i < kept.end; ++i) {
    const Token& token = row.sorted.tokens[i];
    const float t = semantics::LogWeight(token.x, row.sorted.Max(), scale);
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, token.id));
    scores.push_back(
        {token.id, static_cast<double>(semantics::WeightOf(t)) / total, t, g, t + g, 0});
  }
  return scores;
}

}  // namespace sluice::cli
