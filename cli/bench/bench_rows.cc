#include "bench/support/rows_file.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/file.h"

namespace sluice::cli {

void RunBenchRows(const BenchRowsOptions& options, std::ostream& out) {
  JsonFile json_file(options.json_path);
  const auto distributions =
      Chosen<bench::Distribution>(bench::kDistributions, options.distributions);
  const int64_t rows = options.rows > 0 ? options.rows : options.is_quick ? 5 : 200;
  CheckWritable(options.output_path);
  bench::WriteRowsFile(options.output_path, options.vocab, rows, distributions);
  json_file.Write([&](JsonWriter& json) {
    int64_t first_row = 0;
    for (const bench::Distribution distribution : distributions) {
      json_file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("rows");
        json.Key("file").Value(options.output_path);
        json.Key("distribution").Value(Name(distribution));
        json.Key("first_row").Value(first_row);
        json.Key("rows").Value(rows);
        json.Key("vocab").Value(options.vocab);
      });
      first_row += rows;
    }
  });
  out << options.output_path << ": " << rows * std::ssize(distributions) << " rows of "
      << options.vocab << " fp32 logits; " << options.output_path << ".json says what they are\n";
}

}  // namespace sluice::cli
