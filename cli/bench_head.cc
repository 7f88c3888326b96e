#include <vector>

#include "bench/cluster_bench.h"
#include "bench/head_bench.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/table.h"
#include "sluice/error.hpp"

namespace sluice::cli {

using bench::ClusterRow;
using bench::HeadTiming;

namespace {

// The method of centroids and radii beside it, on a head small enough for its k-means.
std::vector<ClusterRow> RunClusters(const BenchHeadOptions& options, std::ostream& out,
                                    const Terminal& terminal, const Progress& progress) {
  bench::ClusterBenchOptions run;
  run.threads = options.threads;
  if (options.is_quick) {
    run.vocab = 1024;
    run.dim = 32;
    run.clusters = {64};
    run.states = 3;
  }
  std::vector<ClusterRow> rows;
  bench::RunClusterBench(
      run, [&](const ClusterRow& row) { rows.push_back(row); },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  out << "\nClusters of rows, " << Number(run.vocab) << " x " << Number(run.dim)
      << ". Opened: rows, of all, until the certificate held. Certified: within a\nquarter of the "
         "rows. Tightness: a cluster's largest logit over its bound.\n\n";
  Table table("lllrrrrr");
  table.Add({"head", "metric", "certificate", "clusters", "opened", "certified", "tightness",
             "variation"},
            Style::kHeading);
  for (const ClusterRow& row : rows) {
    table.Add({std::string(row.head), std::string(Name(row.metric)),
               row.k > 0 ? "k = " + Number(int64_t{row.k}) : "eps = " + Fixed(row.epsilon, 2),
               Number(row.clusters), Fixed(row.rows_opened, 3), Fixed(row.certified, 2),
               Fixed(row.tightness, 3), row.k > 0 ? "" : Fixed(row.variation, 4)});
  }
  table.Print(out, terminal);
  return rows;
}

void WriteCluster(JsonWriter& json, const ClusterRow& row) {
  json.Object([&] {
    json.Key("bench").Value("head-clusters");
    json.Key("head").Value(row.head);
    json.Key("metric").Value(Name(row.metric));
    json.Key("clusters").Value(row.clusters);
    json.Key("k").Value(int64_t{row.k});
    json.Key("epsilon").Value(row.epsilon);
    json.Key("rows_opened").Value(row.rows_opened);
    json.Key("certified").Value(row.certified);
    json.Key("tightness").Value(row.tightness);
    json.Key("variation").Value(row.variation);
    json.Key("violations").Value(row.violations);
    json.Key("exact").Value(row.is_exact);
  });
}

}  // namespace

void RunBenchHead(const BenchHeadOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::HeadOptions run;
  run.threads = options.threads;
  run.backends = options.backends.empty() ? std::vector<Backend>{Backend::kAuto}
                                          : ChosenBackends(options.backends);
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
  const std::vector<ClusterRow> clusters = RunClusters(options, out, terminal, progress);
  for (const ClusterRow& row : clusters) {
    is_exact = is_exact && row.is_exact && row.violations == 0.0;
  }
  file.Write([&](JsonWriter& json) {
    for (const ClusterRow& row : clusters) {
      file.NewLine();
      WriteCluster(json, row);
    }
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
