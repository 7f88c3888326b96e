#include "cli/inspect/stage_text.h"

#include <array>
#include <cmath>

#include "cli/flags/param_text.h"
#include "cli/table.h"
#include "cli/text.h"

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 16;

// What the numbers of a stage are, as explain.hpp has them.
std::string ComparedBy(Stage stage, const SamplingParams& params) {
  switch (stage) {
    case Stage::kMinTokens:
      return "tokens generated";
    case Stage::kDry:
      return "length of the repeat";
    case Stage::kGreedy:
    case Stage::kTopK:
      return "place in the row";
    case Stage::kMinP:
    case Stage::kMinPLast:
      return "ratio to the most likely";
    case Stage::kTopNSigma:
      return "sigmas below the largest";
    case Stage::kTypical:
      return "bits from the mean";
    case Stage::kTopP:
      return "mass before the token";
    case Stage::kXtc:
      return "probability";
    case Stage::kDraw:
      return params.draw_method == DrawMethod::kCdf ? "mass up to the token" : "score";
    default:
      return "";
  }
}

// Places and counts have all their digits, other numbers up to six.
std::string CompareText(Stage stage, double value) {
  if (Counts(stage)) return Number(static_cast<int64_t>(value));
  std::array<char, 64> text;
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::general, 6);
  return {text.begin(), end.ptr};
}

void WriteNumber(JsonWriter& json, Stage stage, double value) {
  if (Counts(stage) && !std::isnan(value)) {
    json.Value(static_cast<int64_t>(value));
  } else {
    json.Value(value);
  }
}

// What the stage did to the token: "9.500 -> 7.917", "masked", "dropped", "drawn".
std::string OutcomeOf(Stage stage, const StageReport& report) {
  if (stage == Stage::kDraw) return report.is_left ? "drawn" : "not drawn";
  if (stage == Stage::kLogits) return report.is_left ? "" : "dropped";
  if (IsFilter(stage)) return report.is_left ? "kept" : "dropped";
  if (report.before == report.after || std::isnan(report.after)) return "";
  return LogitText(report.before) + " -> " + LogitText(report.after);
}

// Whether the token came to the stage.
bool Came(Stage stage, const Explanation& e) {
  if (!IsFilter(stage) && stage != Stage::kDraw) return true;
  const auto before = static_cast<size_t>(stage) - 1;
  return e.stages[before].is_left;
}

void WriteStage(JsonWriter& json, Stage stage, const Explanation& e) {
  const StageReport& report = e[stage];
  json.Key("name").Value(Name(stage));
  json.Key("on").Value(report.is_on);
  json.Key("left").Value(report.is_left);
  json.Key("tokens_left").Value(report.tokens_left);
  json.Key("mass_left").Value(report.mass_left);
  json.Key("before").Value(report.before);
  json.Key("after").Value(report.after);
  json.Key("quantity");
  WriteNumber(json, stage, report.quantity);
  json.Key("comparison").Value(Name(report.comparison));
  json.Key("limit");
  WriteNumber(json, stage, report.limit);
  json.Key("exempt").Value(report.is_exempt);
}

}  // namespace

std::string LogitText(float logit) {
  if (std::isnan(logit)) return "nan";
  return std::isinf(logit) ? (logit < 0 ? "-inf" : "+inf") : Fixed(static_cast<double>(logit), 3);
}

std::string ParameterOf(Stage stage, const SamplingParams& params, const Explanation& explanation) {
  switch (stage) {
    case Stage::kLogits:
    case Stage::kBitmask:
    case Stage::kProcessors:
      return "";
    case Stage::kAllowedIds:
      return ToText(params.allowed_token_ids);
    case Stage::kBadWords:
      return ToText(params.bad_words);
    case Stage::kMinTokens:
      return Number(params.min_tokens);
    case Stage::kLogitBias:
      return ToText(params.logit_bias);
    case Stage::kRepetitionPenalty:
      return Number(params.repetition_penalty);
    case Stage::kFrequencyPenalty:
      return Number(params.frequency_penalty);
    case Stage::kPresencePenalty:
      return Number(params.presence_penalty);
    case Stage::kDry:
      return Number(params.dry_multiplier);
    case Stage::kForced:
      return "";
    case Stage::kGreedy:
      return "the first token";
    case Stage::kMinP:
    case Stage::kMinPLast:
      return Number(params.min_p);
    case Stage::kTopNSigma:
      return Number(params.top_n_sigma);
    case Stage::kTypical:
      return Number(params.typical_p);
    case Stage::kTopK:
      return Number(params.top_k);
    case Stage::kTopP:
      return Number(params.top_p);
    case Stage::kXtc:
      return Number(params.xtc_threshold) +
             (explanation.xtc_coin_fell ? ", the coin fell" : ", the coin did not fall");
    case Stage::kDraw:
      return std::string(Name(params.draw_method));
  }
  return "";
}

std::string FateOf(const Explanation& e) {
  const bool is_masked = e.dropped_by.has_value() && !IsFilter(*e.dropped_by);
  if (e.status != RowStatus::kOk) return std::string(Name(e.status));
  if (is_masked) return std::string("masked by ").append(Name(*e.dropped_by));
  std::string names;
  for (size_t s = 0; s <= static_cast<size_t>(Stage::kForced); ++s) {
    const StageReport& report = e.stages[s];
    if (s == 0 || report.before == report.after) continue;
    names.append(Name(static_cast<Stage>(s))).append(", ");
  }
  if (!e.dropped_by.has_value()) return names + "kept";
  return names.append("dropped by ").append(Name(*e.dropped_by));
}

void PrintStages(const Explanation& e, const SamplingParams& params, std::ostream& out,
                 const Terminal& terminal) {
  Table table("llrrllrlrl");
  table.Add(
      {"stage", "parameter", "tokens left", "mass left", "", "compared", "token", "", "limit", ""},
      Style::kFaint);
  std::string off;
  for (size_t s = 0; s < kStages; ++s) {
    const auto stage = static_cast<Stage>(s);
    const StageReport& report = e[stage];
    if (!report.is_on) {
      off.append(off.empty() ? "" : ", ").append(Name(stage));
      continue;
    }
    if (e.status != RowStatus::kOk && (IsFilter(stage) || stage == Stage::kDraw)) continue;
    const bool has_mass = !std::isnan(report.mass_left);
    const bool has_numbers = !std::isnan(report.quantity);
    const bool is_logit = stage == Stage::kLogits;
    table.Add(
        {std::string(Name(stage)), ParameterOf(stage, params, e), Number(report.tokens_left),
         has_mass ? Percent(report.mass_left) : "",
         has_mass ? terminal.Bar(report.mass_left, kBarWidth) : "",
         has_numbers ? ComparedBy(stage, params)
         : is_logit  ? "logit"
                     : "",
         has_numbers ? CompareText(stage, report.quantity)
         : is_logit  ? LogitText(report.after)
                     : "",
         std::string(Name(report.comparison)), has_numbers ? CompareText(stage, report.limit) : "",
         Came(stage, e) ? OutcomeOf(stage, report) : ""},
        e.dropped_by == stage ? Style::kHeading
        : Came(stage, e)      ? Style::kPlain
                              : Style::kFaint);
  }
  table.Print(out, terminal);
  out << terminal.Styled("  off: " + off, Style::kFaint) << '\n';
}

void WriteCut(JsonWriter& json, const Cut& cut) {
  json.Key("upper").Value(cut.upper);
  json.Key("ties_dropped").Value(cut.ties_dropped);
  json.Key("lower").Value(cut.lower);
  json.Key("ties_kept").Value(cut.ties_kept);
  json.Key("count").Value(cut.count);
}

void WriteExplanation(JsonWriter& json, const Explanation& e) {
  json.Key("id").Value(e.id);
  json.Key("logit").Value(e.logit);
  json.Key("adjusted").Value(e.adjusted);
  json.Key("rank").Value(e.rank);
  json.Key("probability").Value(e.probability);
  json.Key("kept_probability").Value(e.kept_probability);
  json.Key("kept").Value(e.is_kept);
  json.Key("drawn").Value(e.is_drawn);
  json.Key("dropped_by");
  if (e.dropped_by.has_value()) {
    json.Value(Name(*e.dropped_by));
  } else {
    json.Null();
  }
  json.Key("sentence").Value(Sentence(e));
  json.Key("stages").Array([&] {
    for (size_t s = 0; s < kStages; ++s) {
      json.Object([&] { WriteStage(json, static_cast<Stage>(s), e); });
    }
  });
}

}  // namespace sluice::cli
