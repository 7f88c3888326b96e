#include "bench/rows_file.h"
#include "cli/bench.h"
#include "cli/bench_report.h"

namespace sluice::cli {

void RunBenchRows(const BenchRowsOptions& options, std::ostream& out) {
  const auto distributions =
      Chosen<bench::Distribution>(bench::kDistributions, options.distributions);
  bench::WriteRowsFile(options.output_path, options.vocab, options.rows, distributions);
  out << options.output_path << ": " << options.rows * std::ssize(distributions) << " rows of "
      << options.vocab << " fp32 logits; " << options.output_path << ".json says what they are\n";
}

}  // namespace sluice::cli
