#include <span>
#include <stdexcept>

#include "bench/stages/select_bench.h"
#include "bench/support/floor.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_select_report.h"

namespace sluice::cli {

void RunBenchSelect(const BenchSelectOptions& options, std::ostream& out,
                    const Terminal& terminal) {
  bench::SelectBenchOptions run =
      options.is_quick ? bench::QuickOptions() : bench::SelectBenchOptions{};
  run.vocab = options.vocab;
  if (options.rows > 0) run.rows = options.rows;
  const std::span<const bench::Task> tasks =
      options.is_of_draws ? std::span<const bench::Task>(bench::kDrawTasks) : bench::kSelectTasks;
  run.tasks = Chosen<bench::Task>(tasks, options.tasks);
  run.distributions = Chosen<bench::Distribution>(bench::kDistributions, options.distributions);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const std::string name = dtype == DType::kBf16 ? "bf16" : "fp32";
    const auto& names = options.dtypes;
    if (names.empty() || std::find(names.begin(), names.end(), name) != names.end()) {
      run.dtypes.push_back(dtype);
    }
  }
  run.backends = ChosenBackends(options.backends);
  run.algorithms = ChosenAlgorithms(options.algorithms);
  JsonFile file(options.json_path);

  PrintEnvironment(out,
                   "One thread. Floor: one streaming read of the row (" +
                       std::string(bench::RowMaxInstructions()) +
                       "), measured next to every call; x1.00 is as fast, m marks a mean, "
                       "everything else is a median. In parentheses: not in the cache "
                       "(cold).\nReads: elements that the algorithm read, for "
                       "each one of the row.",
                   options.is_quick);
  if (!bench::MissingPeers().empty()) {
    out << "Not compared with " << bench::MissingPeers() << ".\n\n";
  }

  const Progress progress;
  SelectReport report(out, terminal, options.shows_targets);
  bench::RunSelectBench(
      run,
      [&](const bench::Group& group) {
        progress.Clear();
        report.Add(group);
      },
      [&](const std::string& next) { progress.Show(next); });
  report.PrintSummary();
  report.WriteJson(options.is_of_draws ? "draw" : "select", file);
  if (report.different() > 0) {
    out.flush();
    throw std::runtime_error("timed results that are not the reference's: " +
                             Number(report.different()));
  }
}

}  // namespace sluice::cli
