#include "cli/generate/logprob_report.h"

#include <string>

#include "cli/inspect/stage_text.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/workspace.h"

namespace sluice::cli {

LogprobReport MakeLogprobs(const LogitsView& raw, const LogitsView& adjusted,
                           const SamplingParams& params, TokenResult token, Backend backend) {
  LogprobReport report;
  report.mode = params.logprob_mode;
  if (!params.logprobs.has_value() || token.id < 0) return report;
  const bool is_raw =
      report.mode == LogprobMode::kRawLogprobs || report.mode == LogprobMode::kRawLogits;
  const LogitsView& view = is_raw ? raw : adjusted;
  const int64_t listed = *params.logprobs < 0 ? view.vocab : *params.logprobs;
  report.ids.resize(static_cast<size_t>(listed) + 1);
  report.values.resize(report.ids.size());
  const SelectParams select = params.Select();
  Workspace workspace(view, backend);
  Logprobs({view, report.mode, {&select, 1}}, {&token, 1},
           {static_cast<int32_t>(report.ids.size()), report.ids, report.values},
           {backend, {}, workspace.span()});
  report.rank = token.rank;
  return report;
}

void PrintLogprobs(const LogprobReport& report, std::ostream& out, const Terminal& terminal) {
  if (report.ids.empty()) return;
  out << '\n'
      << terminal.Styled(
             std::string(Name(report.mode)) + " of the drawn token and of the most likely ones",
             Style::kHeading)
      << '\n';
  Table table("rrl");
  for (size_t i = 0; i < report.ids.size(); ++i) {
    if (report.ids[i] < 0) break;
    table.Add({Number(report.ids[i]), LogitText(report.values[i]),
               i == 0 ? "drawn, rank " + Number(report.rank) : ""},
              i == 0 ? Style::kGood : Style::kPlain);
  }
  table.Print(out, terminal);
}

void WriteLogprobs(JsonWriter& json, const LogprobReport& report) {
  if (report.ids.empty()) return;
  json.Key("logprobs").Object([&] {
    json.Key("mode").Value(Name(report.mode));
    json.Key("rank").Value(report.rank);
    json.Key("tokens").Array([&] {
      for (size_t i = 0; i < report.ids.size() && report.ids[i] >= 0; ++i) {
        json.Object([&] {
          json.Key("id").Value(report.ids[i]);
          json.Key("value").Value(report.values[i]);
        });
      }
    });
  });
}

}  // namespace sluice::cli
