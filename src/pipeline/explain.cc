// Explain: the stages of one row by the definition, with the numbers that each compared.
//
//   CheckInput       what the Sampler would refuse
//   AdjustedRow      stages 3 to 9 one by one, and what each did to the tokens asked about
//   FilterReports    stages 10 to 15
//   DrawReports      stage 16
#include "sluice/explain.hpp"

#include <algorithm>
#include <cmath>

#include "pipeline/request_state.h"
#include "semantics/draw.h"
#include "semantics/select_row.h"
#include "support/check.h"
#include "support/float_environment.h"

namespace sluice {
namespace {

using semantics::Filter;
using semantics::Interval;
using semantics::Token;

constexpr int kFirstFilter = static_cast<int>(Stage::kGreedy);
static_assert(static_cast<int>(Stage::kXtc) - kFirstFilter + 1 == semantics::kFilters);

constexpr Stage StageOf(Filter filter) {
  return static_cast<Stage>(kFirstFilter + static_cast<int>(filter));
}

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

RequestState StateOf(const ExplainInput& input) {
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

// Numbers that a double has exactly.
void Compare(StageReport& report, Comparison comparison, double quantity, double limit) {
  report.comparison = comparison;
  report.quantity = quantity;
  report.limit = limit;
}

// Shares, of which the integers were compared: two that round to the same double are told apart by
// moving the first.
void CompareShares(StageReport& report, Comparison comparison, double quantity, double limit,
                   bool holds) {
  if (quantity == limit && Holds(comparison, quantity, limit) != holds) {
    const bool keeps_below = comparison == Comparison::kBelow || comparison == Comparison::kAtMost;
    const double towards = std::numeric_limits<double>::infinity();
    quantity = std::nextafter(limit, keeps_below == holds ? -towards : towards);
  }
  Compare(report, comparison, quantity, limit);
}

double Ratio(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Stages 3 to 9.
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

  // Numbers that two of the stages compared, and who masked the token.
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

bool IsOn(Filter filter, const SelectParams& params) {
  const bool filters = !semantics::IsGreedy(params);
  const bool min_p_is_last = params.profile.min_p_stage == MinPStage::kLast;
  switch (filter) {
    case Filter::kGreedy:
      return !filters;
    case Filter::kMinP:
      return filters && params.min_p > 0 && !min_p_is_last;
    case Filter::kTopNSigma:
      return filters && params.top_n_sigma > 0;
    case Filter::kTypical:
      return filters && params.typical_p < 1;
    case Filter::kTopK:
      return filters && params.top_k > 0;
    case Filter::kTopP:
      return filters && params.top_p < 1;
    case Filter::kMinPLast:
      return filters && params.min_p > 0 && min_p_is_last;
    case Filter::kXtc:
      return filters && params.xtc_probability > 0;
  }
  return false;
}

// Stages 10 to 15 of a row that has no status.
class FilterReports {
 public:
  FilterReports(const semantics::SelectedRow& selected, const SelectParams& params)
      : row_(selected.sorted),
        trace_(selected.trace),
        params_(params),
        scale_(semantics::ScalesOf(params).filter) {
    mass_before_.push_back(0);
    for (int64_t i = 0; i < row_.size; ++i) mass_before_.push_back(mass_before_.back() + Weight(i));
    if (IsOn(Filter::kTopNSigma, params)) {
      sigma_bound_ = semantics::SigmaBoundOf(row_, Before(Filter::kTopNSigma), params.top_n_sigma);
    }
    if (IsOn(Filter::kTypical, params)) {
      mean_ = semantics::TypicalMomentsOf(row_, Before(Filter::kTypical), scale_).mean;
    }
  }

  // Every filter but what it did to a token.
  void Count(Explanation& e) const {
    for (int f = 0; f < semantics::kFilters; ++f) {
      StageReport& report = e[StageOf(static_cast<Filter>(f))];
      report.tokens_left = trace_.after[f].end - trace_.after[f].begin;
      report.mass_left = Ratio(Mass(trace_.after[f]), mass_before_.back());
    }
  }

  void Trace(Explanation& e) const {
    const Token* last = row_.tokens + row_.size;
    const int64_t place =
        std::lower_bound(row_.tokens, last, Token{e.adjusted, e.id}, semantics::Before) -
        row_.tokens;
    e.rank = place + 1;
    e.probability = Ratio(Weight(place), mass_before_.back());
    for (int f = 0; f < semantics::kFilters; ++f) {
      const auto filter = static_cast<Filter>(f);
      StageReport& report = e[StageOf(filter)];
      const Interval after = trace_.after[f];
      report.is_left = after.begin <= place && place < after.end;
      if (report.is_on) CompareBy(filter, place, report);
      if (report.is_left) continue;
      e.dropped_by = StageOf(filter);
      return;
    }
    e.is_kept = true;
  }

 private:
  Interval Before(Filter filter) const {
    const int f = static_cast<int>(filter);
    return f == 0 ? Interval{0, row_.size} : trace_.after[f - 1];
  }
  uint64_t Weight(int64_t i) const {
    return semantics::Weight(row_.tokens[i].x, row_.Max(), scale_);
  }
  uint64_t Mass(Interval kept) const {
    return mass_before_[static_cast<size_t>(kept.end)] -
           mass_before_[static_cast<size_t>(kept.begin)];
  }

  // The token by which top-k and top-p judge the one at `place`: itself, or in profiles that keep
  // all ties the first of its value.
  int64_t JudgedBy(int64_t place, Interval among) const {
    if (params_.profile.ties == Ties::kLowestId) return place;
    while (place > among.begin && row_.tokens[place - 1].x == row_.tokens[place].x) --place;
    return place;
  }

  void CompareBy(Filter filter, int64_t place, StageReport& report) const {
    const Interval before = Before(filter);
    const auto rank = static_cast<double>(place - before.begin + 1);
    switch (filter) {
      case Filter::kGreedy:
        return Compare(report, Comparison::kAtMost, rank, 1);
      case Filter::kMinP:
      case Filter::kMinPLast:
        return CompareMinP(place, report);
      case Filter::kTopNSigma:
        return CompareSigma(place, report);
      case Filter::kTypical:
        return CompareTypical(place, report);
      case Filter::kTopK:
        return Compare(report, Comparison::kAtMost,
                       static_cast<double>(JudgedBy(place, before) - before.begin + 1),
                       static_cast<double>(params_.top_k));
      case Filter::kTopP:
        return CompareTopP(place, report);
      case Filter::kXtc:
        return CompareXtc(place, report);
    }
  }

  void CompareMinP(int64_t place, StageReport& report) const {
    const uint64_t least = semantics::Fixed40(params_.min_p);
    const bool holds = Weight(place) >= least;
    Compare(report, Comparison::kAtLeast, Ratio(Weight(place), semantics::kFullWeight),
            Ratio(least, semantics::kFullWeight));
    report.is_exempt = report.is_left && !holds;
  }

  // In standard deviations as the rule has them: at its bound, in its fixed point, they are
  // n_sigma.
  void CompareSigma(int64_t place, StageReport& report) const {
    const uint64_t e = semantics::SigmaDistance(row_.tokens[place].x, row_.Max());
    const auto n_sigma = static_cast<double>(params_.top_n_sigma);
    const double quantity =
        e == 0 ? 0.0 : n_sigma * static_cast<double>(e) / static_cast<double>(sigma_bound_);
    Compare(report, Comparison::kAtMost, quantity, n_sigma);
  }

  void CompareTypical(int64_t place, StageReport& report) const {
    constexpr double kUnit = 4096.0;  // of Surprise
    const Interval after = trace_.after[static_cast<int>(Filter::kTypical)];
    const int64_t largest = std::max(TypicalKey(after.begin), TypicalKey(after.end - 1));
    // A token of weight 0 is never kept; its surprise may be too large for an integer.
    const double t =
        static_cast<double>(semantics::LogWeight(row_.tokens[place].x, row_.Max(), scale_));
    const double quantity = Weight(place) > 0 ? static_cast<double>(TypicalKey(place)) / kUnit
                                              : std::abs(-t - static_cast<double>(mean_) / kUnit);
    Compare(report, Comparison::kAtMost, quantity, static_cast<double>(largest) / kUnit);
  }

  int64_t TypicalKey(int64_t place) const {
    return semantics::TypicalKey(semantics::LogWeight(row_.tokens[place].x, row_.Max(), scale_),
                                 mean_);
  }

  void CompareTopP(int64_t place, StageReport& report) const {
    const bool is_joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
    const bool is_inclusive = params_.profile.top_p_boundary == TopPBoundary::kInclusive;
    const Interval measured = Before(is_joint ? Filter::kTopK : Filter::kTopP);
    const uint64_t total = Mass(measured);
    const uint64_t target = semantics::TargetMass(params_.top_p, total);
    const uint64_t before = Mass({measured.begin, JudgedBy(place, measured)});
    const bool holds = semantics::TopPKeeps(before, target, params_.profile.top_p_boundary);
    CompareShares(report, is_inclusive ? Comparison::kAtMost : Comparison::kBelow,
                  Ratio(before, total), Ratio(target, total), holds);
    report.is_exempt = report.is_left && !holds;
  }

  void CompareXtc(int64_t place, StageReport& report) const {
    const uint64_t total = Mass(Before(Filter::kXtc));
    const bool counts =
        semantics::XtcCounts(Weight(place), semantics::XtcLeast(params_.xtc_threshold, total));
    // The least share that counts, as XtcLeast rounds it.
    const auto least =
        static_cast<double>(static_cast<uint64_t>(semantics::XtcLeast(params_.xtc_threshold, 1)));
    CompareShares(report, Comparison::kBelow, Ratio(Weight(place), total), least * 0x1p-32,
                  !counts);
    report.is_exempt = report.is_left && counts;
  }

  semantics::SortedRow row_;
  const semantics::SelectTrace& trace_;
  const SelectParams& params_;
  float scale_;
  std::vector<uint64_t> mass_before_;  // of the tokens in front of each, in the total order
  uint64_t sigma_bound_ = 0;
  int64_t mean_ = 0;  // of typical
};

// Stage 16.
class DrawReports {
 public:
  DrawReports(const semantics::Row& row, const Cut& cut, float m, const ExplainInput& input,
              const SelectParams& params)
      : m_(m), key_(input.key), scale_(semantics::ScalesOf(params).draw) {
    const DrawMethod method = input.params.draw_method;
    drawn_ = semantics::DrawToken(row, cut, m, scale_, method, key_);
    is_greedy_ = semantics::IsGreedy(params);
    is_cdf_ = method == DrawMethod::kCdf;
    if (is_cdf_) {
      semantics::CutWalk walk(cut);
      for (int64_t i = 0; i < row.size; ++i) {
        mass_ += walk.Keeps(row[i]) ? semantics::Weight(row[i], m, scale_) : 0;
        mass_through_.push_back(mass_);
      }
      threshold_ = semantics::CdfThreshold(key_, semantics::CdfStream(key_), mass_);
    } else {
      mass_ = semantics::KeptMass(row, cut, m, scale_);
      best_ = semantics::DrawGumbel(row, cut, m, scale_, key_).score;
    }
  }

  void Report(Explanation& e) const {
    StageReport& report = e[Stage::kDraw];
    report.is_on = !is_greedy_;
    report.tokens_left = 1;
    e.drawn_id = drawn_;
    e.is_drawn = report.is_left = drawn_ == e.id;
    if (mass_ > 0) {
      const uint64_t weight = e.is_kept ? semantics::Weight(e.adjusted, m_, scale_) : 0;
      e.kept_probability = Ratio(weight, mass_);
    }
    if (!e.is_kept || is_greedy_) return;
    if (is_cdf_) {
      if (mass_ == 0) return;  // the first in the total order, whatever the number
      const uint64_t through = mass_through_[static_cast<size_t>(e.id)];
      CompareShares(report, Comparison::kAbove, Ratio(through, mass_), Ratio(threshold_, mass_),
                    through > threshold_);
      return;
    }
    const float t = semantics::LogWeight(e.adjusted, m_, scale_);
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key_, semantics::GumbelStream(key_), e.id));
    const float score = t + g;
    Compare(report, Comparison::kAtLeast, static_cast<double>(score), static_cast<double>(best_));
  }

 private:
  float m_;
  NoiseKey key_;
  float scale_;
  int32_t drawn_ = -1;
  bool is_greedy_ = false;
  bool is_cdf_ = false;
  uint64_t mass_ = 0;
  std::vector<uint64_t> mass_through_;  // cdf: of the kept tokens up to and with each id
  uint64_t threshold_ = 0;
  float best_ = 0.0f;
};

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
