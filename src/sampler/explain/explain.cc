// Explain: the stages of one row by the definition, with the numbers that each compared.
#include "sluice/explain.hpp"

#include "sampler/explain/explain_adjust.h"
#include "sampler/explain/explain_draw.h"
#include "sampler/explain/explain_filters.h"
#include "support/check.h"
#include "support/float_environment.h"

namespace sluice {
namespace {

using semantics::Filter;
using semantics::Token;

void CheckInput(const ExplainInput& input, std::span<const int32_t> ids) {
  CheckLogits("logits", input.logits);
  CheckInRange("logits.rows", input.logits.rows, 1, 1);
  const int64_t vocab = input.logits.vocab;
  Validate(input.params, vocab, input.limits);
  for (const int32_t token : input.tokens) CheckInRange("tokens", token, 0, vocab - 1);
  CheckInRange("prompt_length", static_cast<int64_t>(input.prompt_length), 0,
               std::ssize(input.tokens));
  CheckInRange("choice", input.key.choice, 0, (1 << 24) - 1);
  if (!input.bitmask.empty()) CheckSize("bitmask", input.bitmask.size(), (vocab + 31) / 32);
  CheckInRange("forced", input.forced, -1, vocab - 1);
  for (const LogitsProcessor& processor : input.processors) {
    if (processor.apply == nullptr) ThrowInvalid("processors.apply", "null", "a function");
  }
  for (const int32_t id : ids) CheckInRange("id", id, 0, vocab - 1);
}

}  // namespace

std::vector<Explanation> Explain(const ExplainInput& input, std::span<const int32_t> ids) {
  CheckInput(input, ids);
  const FloatEnvironment environment;
  std::vector<Explanation> explanations(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) explanations[i].id = ids[i];
  AdjustedRow adjusted(input, explanations);
  adjusted.Run();

  const SelectParams params = input.params.Select();
  const semantics::Row row{adjusted.values().data(), DType::kF32, input.logits.vocab};
  std::vector<Token> workspace(adjusted.values().size());
  const semantics::SelectedRow selected =
      semantics::SelectRow(row, params, input.key, input.limits, workspace.data());
  const bool coin_fell =
      IsOn(Filter::kXtc, params) && semantics::XtcCoinFalls(input.key, params.xtc_probability);
  for (Explanation& e : explanations) {
    e.status = selected.status;
    e.cut = selected.ToCut();
    e.draw_method = input.params.draw_method;
    e.xtc_coin_fell = coin_fell;
    for (int f = 0; f < semantics::kFilters; ++f) {
      e[StageOf(static_cast<Filter>(f))].is_on = IsOn(static_cast<Filter>(f), params);
    }
  }
  if (selected.status != RowStatus::kOk || explanations.empty()) {
    for (Explanation& e : explanations) e.dropped_by.reset();
    return explanations;
  }

  const FilterReports filters(selected, params);
  const DrawReports draw(row, selected.ToCut(), selected.sorted.Max(), input, params);
  for (Explanation& e : explanations) {
    filters.Count(e);
    if (e.dropped_by.has_value()) {
      e.probability = 0.0;
    } else {
      filters.Trace(e);
    }
    draw.Report(e);
  }
  return explanations;
}

Explanation Explain(const ExplainInput& input, int32_t id) {
  return Explain(input, {&id, 1}).front();
}

}  // namespace sluice
