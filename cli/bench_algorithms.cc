#include <stdexcept>
#include <vector>

#include "bench/algorithms_bench.h"
#include "bench/floor.h"
#include "bench/peers.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/table.h"

namespace sluice::cli {
namespace {

using bench::RankedCall;
using bench::Ranking;

std::string ExactText(const RankedCall& call) {
  if (call.is_peer) return "-";
  return call.different == 0 && call.compared > 0 ? "yes" : "NO";
}

void Print(const Ranking& ranking, int64_t vocab, std::ostream& out, const Terminal& terminal) {
  out << terminal.Styled(std::string(bench::Name(ranking.task)) + ", " +
                             std::string(NameOf(ranking.backend)) + ", V=" + Number(vocab),
                         Style::kHeading)
      << ": nucleus of p=0.9 " << ranking.nucleus.least << " / " << ranking.nucleus.median << " / "
      << ranking.nucleus.most << " tokens (least, median, most)\n";
  Table table("rllrrrrr");
  table.Add({"", "algorithm", "exact", "mean us", "median", "rows/s", "floor", "reads"},
            Style::kHeading);
  int place = 0;
  for (const RankedCall& call : ranking.calls) {
    std::string name(call.name);
    if (call.ran != SelectAlgorithm::kAuto && NameOf(call.ran) != call.name) {
      name.append(" = ").append(NameOf(call.ran));
    }
    place += call.is_peer ? 0 : 1;
    table.Add(
        {call.is_peer ? "" : Number(place), call.is_peer ? "(" + name + ")" : name, ExactText(call),
         Micros(call.timing.mean), Micros(call.timing.median), Fixed(1e9 / call.timing.mean, 0),
         Times(call.timing.MeanTimesFloor()) + "m", Reads(call.reads)},
        call.is_peer ? Style::kFaint
        : place == 1 ? Style::kGood
                     : Style::kPlain);
  }
  table.Print(out, terminal);
  out << '\n' << std::flush;
}

void WriteRow(JsonWriter& json, const Ranking& ranking, const RankedCall& call, int64_t vocab) {
  json.Object([&] {
    json.Key("bench").Value("algorithms");
    json.Key("task").Value(bench::Name(ranking.task));
    json.Key("backend").Value(NameOf(ranking.backend));
    json.Key(call.is_peer ? "peer" : "algorithm").Value(call.name);
    json.Key("dtype").Value("float32");
    json.Key("vocab").Value(vocab);
    json.Key("batch").Value(1);
    json.Key("distribution").Value(bench::kMixName);
    json.Key("cache").Value("hot");
    json.Key("calls").Value(call.timing.calls);
    json.Key("ns").Value(call.timing.median);
    json.Key("mean_ns").Value(call.timing.mean);
    json.Key("rows_per_second").Value(1e9 / call.timing.mean);
    json.Key("floor_ns").Value(call.timing.floor);
    json.Key("reads");
    call.reads > 0.0 ? json.Value(call.reads) : json.Null();
    if (call.ran != SelectAlgorithm::kAuto) json.Key("ran").Value(NameOf(call.ran));
    if (!call.is_peer) json.Key("exact").Value(call.different == 0 && call.compared > 0);
  });
}

}  // namespace

void RunBenchAlgorithms(const BenchAlgorithmsOptions& options, std::ostream& out,
                        const Terminal& terminal) {
  bench::AlgorithmsOptions run;
  run.vocab = options.vocab;
  run.backends = ChosenVectorBackends(options.backends);
  if (options.is_quick) {
    run.rows = 10;
    run.passes = 1;
    run.slow_budget_ms = 1.0;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   Number(run.rows) + " different fp32 rows (" + std::string(bench::kMixName) +
                       "), one thread, each row in cache. Ranked by the mean; floor: one streaming "
                       "read of the row (" +
                       std::string(bench::RowMaxInstructions()) +
                       ").\nReads: elements that the algorithm read, for each one of the row. "
                       "In parentheses: peers, which sum in fp32 and may be off by some tokens.",
                   options.is_quick);

  const Progress progress;
  std::vector<Ranking> rankings;
  int64_t different = 0;
  bench::RunAlgorithmsBench(
      run,
      [&](const Ranking& ranking) {
        progress.Clear();
        Print(ranking, run.vocab, out, terminal);
        rankings.push_back(ranking);
        for (const RankedCall& call : ranking.calls) different += call.different;
      },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  file.Write([&](JsonWriter& json) {
    for (const Ranking& ranking : rankings) {
      for (const RankedCall& call : ranking.calls) {
        file.NewLine();
        WriteRow(json, ranking, call, run.vocab);
      }
    }
  });
  if (different > 0) {
    out.flush();
    throw std::runtime_error("timed results that are not the reference's: " + Number(different));
  }
}

}  // namespace sluice::cli
