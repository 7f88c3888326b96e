#include <vector>

#include "bench/head/head_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/table.h"
#include "sluice/error.hpp"

namespace sluice::cli {

using bench::HeadTiming;

void RunBenchHead(const BenchHeadOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::HeadOptions run;
  run.threads = options.threads;
  run.backends = options.backends.empty() ? std::vector<Backend>{Backend::kAuto}
                                          : ChosenBackends(options.backends);
  run.batches = options.batches;
  run.kinds.clear();
  for (const std::string& name : options.planes) run.kinds.push_back(CertificateKindByName(name));
  if (options.is_quick) {
    run.shapes = {{4096, 128}};
    run.batches = {1, 3};
    run.calls = 2;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(
      out,
      "From hidden states to tokens by the certified head, bf16, threads: " + Number(run.threads) +
          ".\nDense: the projection alone, without a draw. Ratio: certified over "
          "dense.\nBytes: read, of one read of the head. Survivors, and rows that "
          "took the dense head: a row.",
      options.is_quick);
  for (const bench::HeadTask& task : bench::HeadTasks()) {
    out << "  " << task.name << ": " << task.parameters << '\n';
  }
  out << '\n';

  const Progress progress;
  std::vector<HeadTiming> timings;
  bench::RunHeadBench(
      run, [&](const HeadTiming& timing) { timings.push_back(timing); },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();

  bool is_exact = true;
  Table table("llllrrrrrrr");
  table.Add({"head", "planes", "task", "backend", "batch", "us", "dense us", "ratio", "bytes",
             "survivors", "dense rows"},
            Style::kHeading);
  for (const HeadTiming& t : timings) {
    is_exact = is_exact && t.is_exact;
    table.Add({Number(t.shape.vocab) + " x " + Number(t.shape.dim), std::string(Name(t.kind)),
               std::string(t.task), std::string(NameOf(t.backend)), Number(t.batch), Micros(t.ns),
               Micros(t.dense_ns), Fixed(t.ratio, 3), Fixed(t.bytes_share, 3),
               Fixed(t.survivors, 1), Fixed(t.dense_rows, 2)});
  }
  table.Print(out, terminal);
  file.Write([&](JsonWriter& json) {
    for (const HeadTiming& t : timings) {
      file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("head");
        json.Key("task").Value(t.task);
        json.Key("kind").Value(Name(t.kind));
        json.Key("backend").Value(NameOf(t.backend));
        json.Key("dtype").Value("bfloat16");
        json.Key("vocab").Value(t.shape.vocab);
        json.Key("dim").Value(t.shape.dim);
        json.Key("batch").Value(t.batch);
        json.Key("threads").Value(int64_t{run.threads});
        json.Key("ns").Value(t.ns);
        json.Key("peer").Value("dense");
        json.Key("peer_ns").Value(t.dense_ns);
        json.Key("ratio").Value(t.ratio);
        json.Key("plane_bytes").Value(t.plane_bytes);
        json.Key("head_bytes").Value(t.head_bytes);
        json.Key("bytes_share").Value(t.bytes_share);
        json.Key("survivors").Value(t.survivors);
        json.Key("dense_rows").Value(t.dense_rows);
        json.Key("exact").Value(t.is_exact);
      });
    }
  });
  if (!is_exact) throw Error(ErrorCode::kUnavailable, "tokens", "others", "the dense head's");
}

}  // namespace sluice::cli
