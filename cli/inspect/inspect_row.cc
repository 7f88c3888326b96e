#include "cli/inspect/inspect_row.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <set>

#include "cli/flags/param_text.h"
#include "cli/flags/row_run.h"
#include "cli/inspect/candidates.h"
#include "cli/inspect/stage_text.h"
#include "cli/table.h"
#include "cli/text.h"
#include "semantics/widen.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

struct Statistics {
  float max = NAN;  // of the finite values, as the other figures
  float min = NAN;
  int32_t max_id = -1;
  double mean = NAN;
  double deviation = NAN;
  double entropy = NAN;  // of the softmax at temperature 1, in bits
  int64_t finite = 0;
  int64_t distinct = 0;
  int64_t masked = 0;  // -inf
  int64_t infinite = 0;
  int64_t nan = 0;
};

std::vector<float> Widened(const LogitsView& logits) {
  std::vector<float> values;
  for (int64_t i = 0; i < logits.vocab; ++i) {
    values.push_back(semantics::Load(logits.data, logits.dtype, i));
  }
  return values;
}

Statistics StatisticsOf(std::span<const float> values) {
  Statistics s;
  std::set<float> distinct;
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    s.nan += std::isnan(x);
    s.masked += x == -INFINITY;
    s.infinite += x == INFINITY;
    if (!std::isfinite(x)) continue;
    ++s.finite;
    sum += static_cast<double>(x);
    distinct.insert(x);
    if (!(x <= s.max)) s.max_id = static_cast<int32_t>(i);
    s.max = x <= s.max ? s.max : x;
    s.min = x >= s.min ? s.min : x;
  }
  s.distinct = std::ssize(distinct);
  if (s.finite == 0) return s;
  const auto count = static_cast<double>(s.finite);
  s.mean = sum / count;
  double squares = 0;
  double mass = 0;
  double weighted = 0;  // surprise against the maximum, in nats
  for (const float x : values) {
    if (!std::isfinite(x)) continue;
    squares += (static_cast<double>(x) - s.mean) * (static_cast<double>(x) - s.mean);
    const double t = static_cast<double>(x) - static_cast<double>(s.max);
    mass += std::exp(t);
    weighted -= t * std::exp(t);
  }
  s.deviation = std::sqrt(squares / count);
  s.entropy = (std::log(mass) + weighted / mass) / std::log(2.0);
  return s;
}

void PrintStatistics(const Statistics& s, std::ostream& out, const Terminal& terminal) {
  Table table("ll");
  table.Add({"finite", Number(s.finite) + ", " + Number(s.distinct) + " distinct"});
  table.Add({"not finite", Number(s.nan) + " NaN, " + Number(s.infinite) + " +inf, " +
                               Number(s.masked) + " -inf"});
  if (s.finite > 0) {
    table.Add({"largest", LogitText(s.max) + ", first at token " + Number(s.max_id)});
    table.Add({"smallest", LogitText(s.min)});
    table.Add({"mean", Fixed(s.mean, 3) + ", standard deviation " + Fixed(s.deviation, 3)});
    table.Add({"entropy", Fixed(s.entropy, 3) + " bits at temperature 1, as of " +
                              Fixed(std::exp2(s.entropy), 1) + " equal tokens"});
  }
  table.Print(out, terminal);
}

void PrintKept(const RowRun& run, const Explanation& e, std::ostream& out,
               const Terminal& terminal) {
  out << '\n';
  if (run.token().status != RowStatus::kOk) {
    out << "  " << terminal.Styled(Sentence(e), Style::kHeading) << '\n';
    return;
  }
  out << "  " << KeptSentence(e) << '\n'
      << "  drawn at seed " << run.key().seed << ", position " << run.key().position << ": token "
      << terminal.Styled(Number(run.token().id), Style::kGood) << '\n';
}

void WriteStatistics(JsonWriter& json, const Statistics& s) {
  json.Key("max").Value(s.max);
  json.Key("max_id").Value(s.max_id);
  json.Key("min").Value(s.min);
  json.Key("mean").Value(s.mean);
  json.Key("deviation").Value(s.deviation);
  json.Key("entropy_bits").Value(s.entropy);
  json.Key("finite").Value(s.finite);
  json.Key("distinct").Value(s.distinct);
  json.Key("nan").Value(s.nan);
  json.Key("pos_inf").Value(s.infinite);
  json.Key("neg_inf").Value(s.masked);
}

}  // namespace

void AddInspectRow(CLI::App& inspect, InspectRowOptions& options) {
  inspect
      .add_option_function<std::string>(
          "--show-candidates",
          [&options](const std::string& text) {
            FromText("show_candidates", text, options.show_candidates);
          },
          "how many tokens to list")
      ->default_str(ToText(options.show_candidates))
      ->type_name("INT");
  AddRowFlags(inspect, options.row, false);
}

void RunInspectRow(const InspectRowOptions& options, std::ostream& out, const Terminal& terminal) {
  RowRun run(options.row);
  const int64_t vocab = run.file().vocab();
  if (options.show_candidates < 0) {
    throw sluice::Error(ErrorCode::kInvalidValue, "show_candidates",
                        Number(options.show_candidates), "0 or more");
  }
  const std::vector<float> values = Widened(run.logits());
  std::vector<int32_t> ids = FirstIds(run.logits(), options.show_candidates);
  const auto shown = static_cast<std::ptrdiff_t>(ids.size());
  ids.push_back(0);  // for what concerns the row, whether or not a token is shown
  const std::vector<Explanation> explained = run.ExplainIds(ids);
  const std::span<const Explanation> candidates(explained.begin(), explained.begin() + shown);
  const Statistics statistics = StatisticsOf(values);
  if (options.row.as_json) {
    JsonWriter json(out);
    json.Object([&] {
      run.WriteHead(json);
      json.Key("statistics").Object([&] { WriteStatistics(json, statistics); });
      json.Key("candidates").Array([&] {
        for (const Explanation& e : candidates) json.Object([&] { WriteCandidate(json, e); });
      });
    });
    out << '\n';
  } else {
    out << terminal.Styled(run.Title(), Style::kHeading) << "\n\n";
    PrintStatistics(statistics, out, terminal);
    out << '\n';
    PrintCandidates(candidates, vocab, {}, out, terminal);
    PrintKept(run, explained.back(), out, terminal);
    PrintLogprobs(run.logprobs(), out, terminal);
  }
  run.CheckAgainst(explained.back());
}

}  // namespace sluice::cli
