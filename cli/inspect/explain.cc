#include "cli/inspect/explain.h"

#include <CLI/CLI.hpp>

#include "cli/flags/param_text.h"
#include "cli/flags/row_run.h"
#include "cli/inspect/stage_text.h"
#include "cli/text.h"

namespace sluice::cli {
namespace {

void Print(const RowRun& run, const Explanation& e, std::ostream& out, const Terminal& terminal) {
  out << terminal.Styled(run.Title() + ", token " + Number(e.id), Style::kHeading) << "\n\n";
  PrintStages(e, run.params(), out, terminal);
  out << '\n';
  if (e.status == RowStatus::kOk && e.rank > 0) {
    out << "  number " << e.rank << " in the row after the adjustments, probability "
        << Percent(e.probability) << '\n';
  }
  out << "  " << terminal.Styled("token " + Number(e.id) + ": " + Sentence(e), Style::kGood)
      << '\n';
  PrintLogprobs(run.logprobs(), out, terminal);
}

}  // namespace

CLI::App* AddExplain(CLI::App& app, ExplainOptions& options) {
  CLI::App* const command = app.add_subcommand(
      "explain", "show which rule kept or dropped a token of a row, and by how much");
  command
      ->add_option_function<std::string>(
          "--id", [&options](const std::string& text) { FromText("id", text, options.id); },
          "the token's id")
      ->type_name("ID")
      ->required();
  AddRowFlags(*command, options.row, true);
  return command;
}

void RunExplain(const ExplainOptions& options, std::ostream& out, const Terminal& terminal) {
  const RowRun run(options.row);
  const Explanation explanation = run.ExplainIds({&options.id, 1}).front();
  if (options.row.as_json) {
    JsonWriter json(out);
    json.Object([&] {
      run.WriteHead(json);
      WriteExplanation(json, explanation);
    });
    out << '\n';
  } else {
    Print(run, explanation, out, terminal);
  }
  run.CheckAgainst(explanation);
}

}  // namespace sluice::cli
