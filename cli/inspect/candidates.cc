#include "cli/inspect/candidates.h"

#include <algorithm>
#include <cmath>

#include "cli/inspect/stage_text.h"
#include "cli/table.h"
#include "cli/text.h"
#include "semantics/order.h"
#include "semantics/widen.h"

namespace sluice::cli {

constexpr int kCandidateBar = 24;

std::vector<int32_t> FirstIds(const LogitsView& logits, int64_t count) {
  std::vector<semantics::Token> order;
  for (int64_t i = 0; i < logits.vocab; ++i) {
    const float x = semantics::Load(logits.data, logits.dtype, i);
    if (!std::isnan(x)) order.push_back({x, static_cast<int32_t>(i)});
  }
  const auto shown = std::min(count, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), order.begin() + shown, order.end(), semantics::Before);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shown; ++i) ids.push_back(order[static_cast<size_t>(i)].id);
  return ids;
}

void PrintCandidates(std::span<const Explanation> candidates, int64_t vocab,
                     const TokenText& text_of, std::ostream& out, const Terminal& terminal) {
  const bool has_text = text_of != nullptr;
  Table table(has_text ? "rrlrrrll" : "rrrrrll");
  const auto add = [&](std::vector<std::string> cells, const std::string& text, Style style) {
    if (has_text) cells.insert(cells.begin() + 2, text);
    table.Add(std::move(cells), style);
  };
  add({"rank", "id", "logit", "adjusted", "prob", "", "fate"}, "token", Style::kFaint);
  for (const Explanation& e : candidates) {
    const bool has_probability = !std::isnan(e.probability);
    add({e.rank > 0 ? Number(e.rank) : "", Number(e.id), LogitText(e.logit),
         e.adjusted == e.logit || std::isnan(e.logit) ? "" : LogitText(e.adjusted),
         has_probability ? Percent(e.probability) : "",
         has_probability ? terminal.Bar(e.probability, kCandidateBar) : "",
         FateOf(e) + (e.is_drawn ? ", DRAWN" : "")},
        has_text ? text_of(e.id) : "",
        e.is_drawn  ? Style::kGood
        : e.is_kept ? Style::kPlain
                    : Style::kFaint);
  }
  table.Print(out, terminal);
  out << "  ... and " << vocab - std::ssize(candidates)
      << " more. prob: after the adjustments, at the temperature, before the filters.\n";
}

std::string KeptSentence(const Explanation& e) {
  if (e.status != RowStatus::kOk) return Sentence(e);
  return "kept " + Number(e.cut.count) + (e.cut.count == 1 ? " token" : " tokens") + " of " +
         Number(e[Stage::kForced].tokens_left) + ", " + Percent(e[Stage::kXtc].mass_left) +
         " of the mass; the smallest logit kept is " + LogitText(e.cut.lower);
}

void WriteCandidate(JsonWriter& json, const Explanation& e) {
  json.Key("id").Value(e.id);
  json.Key("rank").Value(e.rank);
  json.Key("logit").Value(e.logit);
  json.Key("adjusted").Value(e.adjusted);
  json.Key("probability").Value(e.probability);
  json.Key("kept_probability").Value(e.kept_probability);
  json.Key("kept").Value(e.is_kept);
  json.Key("drawn").Value(e.is_drawn);
  json.Key("fate").Value(FateOf(e));
}

}  // namespace sluice::cli
