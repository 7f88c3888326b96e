// Explain: stages 3 to 9 one by one, and what each did to the tokens to explain. The
// rules are those of semantics/adjust/adjust.h in its order; explain_test compares the values with
// the Sampler's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sampler/explain/explain_compare.h"
#include "sampler/request_state.h"
#include "semantics/widen.h"

namespace sluice {

inline RequestState StateOf(const ExplainInput& input) {
  const auto output = input.tokens.subspan(input.prompt_length);
  RequestState state({.params = input.params,
                      .prompt = input.tokens.first(input.prompt_length),
                      .choice = input.key.choice,
                      .max_new_tokens = static_cast<int32_t>(
                          std::min<size_t>(output.size(), static_cast<size_t>(INT32_MAX))),
                      .processors = input.processors},
                     input.logits.vocab, input.key.seed);
  for (const int32_t token : output) state.Accept(token);
  return state;
}

class AdjustedRow {
 public:
  AdjustedRow(const ExplainInput& input, std::span<Explanation> explanations)
      : input_(input), explanations_(explanations) {
    const LogitsView& logits = input.logits;
    for (int64_t i = 0; i < logits.vocab; ++i) {
      values_.push_back(semantics::Load(logits.data, logits.dtype, i));
    }
    for (Explanation& e : explanations) e.logit = values_[static_cast<size_t>(e.id)];
  }

  std::span<const float> values() const { return values_; }

  void Run() {
    RequestState state = StateOf(input_);
    const bool has_bitmask = !input_.bitmask.empty();
    const semantics::AdjustInput in =
        state.Adjustments(has_bitmask ? input_.bitmask.data() : nullptr);
    const auto output = in.tokens.subspan(in.prompt_length);
    const auto generated = static_cast<int64_t>(output.size());
    const std::span<float> x = values_;

    Apply(Stage::kLogits, true, [] {});
    Apply(Stage::kBitmask, has_bitmask, [&] { semantics::ApplyBitmask(x, in.bitmask); });
    Apply(Stage::kAllowedIds, in.has_allowed_ids,
          [&] { semantics::ApplyAllowedIds(x, in.allowed_ids); });
    Apply(Stage::kBadWords, in.bad_words.size() > 0,
          [&] { semantics::ApplyBadWords(x, in.bad_words, output); });
    Apply(Stage::kMinTokens, in.min_tokens > 0,
          [&] { semantics::ApplyMinTokens(x, in.stop_ids, in.min_tokens, generated); });
    Apply(Stage::kLogitBias, !in.bias.empty(), [&] { semantics::ApplyBias(x, in.bias); });
    // One at a time changes no bit: a penalty that is off takes or multiplies nothing.
    auto penalize = [&](Stage stage, bool is_on, const semantics::Penalties& penalties) {
      Apply(stage, is_on,
            [&] { semantics::ApplyPenalties(x, penalties, in.counts, in.penalty_scope); });
    };
    const semantics::Penalties& p = in.penalties;
    penalize(Stage::kRepetitionPenalty, p.repetition != 1.0f, {.repetition = p.repetition});
    penalize(Stage::kFrequencyPenalty, p.frequency != 0.0f, {.frequency = p.frequency});
    penalize(Stage::kPresencePenalty, p.presence != 0.0f, {.presence = p.presence});
    Apply(Stage::kDry, in.dry.multiplier != 0.0f,
          [&] { semantics::ApplyDry(x, in.dry, in.tokens, in.counts, in.dry_workspace); });
    Apply(Stage::kProcessors, !input_.processors.empty(), [&] { RunProcessors(state); });
    Apply(Stage::kForced, input_.forced >= 0, [&] { semantics::ApplyForced(x, input_.forced); });
    for (Explanation& e : explanations_) Finish(e, in, generated);
  }

 private:
  template <typename Change>
  void Apply(Stage stage, bool is_on, Change change) {
    for (Explanation& e : explanations_) e[stage].before = values_[static_cast<size_t>(e.id)];
    if (is_on) {
      change();
      left_ = std::count_if(values_.begin(), values_.end(),
                            [](float x) { return x != -semantics::Infinity(); });
    }
    for (Explanation& e : explanations_) {
      StageReport& report = e[stage];
      report.is_on = is_on;
      report.tokens_left = left_;
      report.after = values_[static_cast<size_t>(e.id)];
      report.is_left = report.after != -semantics::Infinity();
    }
  }

  void RunProcessors(const RequestState& state) {
    for (const LogitsProcessor& processor : input_.processors) {
      if (processor.argmax_invariant && semantics::IsGreedy(state.select())) continue;
      processor.apply(processor.context, state.tokens(), state.prompt_length(), values_);
    }
  }

  // Numbers that two of the stages compared, and which stage masked the token.
  static void Finish(Explanation& e, const semantics::AdjustInput& in, int64_t generated) {
    e.adjusted = e[Stage::kForced].after;
    if (in.min_tokens > 0 &&
        std::find(in.stop_ids.begin(), in.stop_ids.end(), e.id) != in.stop_ids.end()) {
      Compare(e[Stage::kMinTokens], Comparison::kAtLeast, static_cast<double>(generated),
              static_cast<double>(in.min_tokens));
    }
    const size_t seen = semantics::LowerBound(in.counts, e.id);
    if (e[Stage::kDry].is_on && seen < in.counts.size() && in.counts[seen].id == e.id) {
      e[Stage::kDry].quantity = static_cast<double>(in.counts[seen].repeat);
      e[Stage::kDry].limit = static_cast<double>(in.dry.allowed_length);
    }
    if (e.adjusted != -semantics::Infinity()) return;  // a forced token comes back
    for (int s = static_cast<int>(Stage::kForced); s >= 0 && !e.dropped_by.has_value(); --s) {
      const auto stage = static_cast<Stage>(s);
      const bool was_there = stage == Stage::kLogits || e[stage].before != -semantics::Infinity();
      if (was_there) e.dropped_by = stage;
    }
  }

  const ExplainInput& input_;
  std::span<Explanation> explanations_;
  std::vector<float> values_;
  int64_t left_ = 0;
};

}  // namespace sluice
