#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/stages/algorithms_bench.h"
#include "bench/stages/peers.h"
#include "bench/support/floor.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/npy_file.h"
#include "cli/flags/param_flags.h"
#include "cli/table.h"
#include "semantics/widen.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using bench::RankedCall;
using bench::Ranking;

// Rows of a file, spread over it. Peers sort them, which NaN would lead astray.
void TakeRows(NpyFile& file, int64_t most, bench::AlgorithmsOptions& run) {
  constexpr int64_t kLeastVocab = 64;
  run.vocab = file.vocab();
  if (run.vocab < kLeastVocab) {
    throw Error(ErrorCode::kInvalidValue, file.path() + ": shape", file.Shape(),
                "rows of at least " + Number(kLeastVocab) + " logits");
  }
  run.rows = std::min(most, file.rows());
  for (int64_t i = 0; i < run.rows; ++i) {
    const int64_t index = i * file.rows() / run.rows;
    const std::vector<std::byte> bytes = file.ReadRow(index);
    std::vector<float> row;
    for (int64_t id = 0; id < run.vocab; ++id) {
      row.push_back(semantics::Load(bytes.data(), file.dtype(), id));
    }
    const auto is_wrong = [](float x) { return std::isnan(x) || x == INFINITY; };
    const bool has_token =
        std::any_of(row.begin(), row.end(), [](float x) { return x > -INFINITY; });
    if (!has_token || std::any_of(row.begin(), row.end(), is_wrong)) {
      throw Error(ErrorCode::kInvalidValue, file.path() + ": row " + Number(index),
                  has_token ? "NaN or +inf" : "-inf everywhere", "finite logits, and some -inf");
    }
    run.given_rows.push_back(std::move(row));
  }
}

std::string ExactText(const RankedCall& call) {
  if (call.is_peer) return "-";
  return call.different == 0 && call.compared > 0 ? "yes" : "NO";
}

void Print(const Ranking& ranking, int64_t vocab, std::ostream& out, const Terminal& terminal) {
  out << terminal.Styled(std::string(ranking.task) + ", " + std::string(NameOf(ranking.backend)) +
                             ", V=" + Number(vocab),
                         Style::kHeading)
      << ": nucleus of p=0.9 " << ranking.nucleus.least << " / " << ranking.nucleus.median << " / "
      << ranking.nucleus.most << " tokens (least, median, most)\n";
  Table table("rllrrrrrr");
  table.Add({"", "algorithm", "exact", "mean us", "median", "rows/s", "floor", "reads", "once"},
            Style::kHeading);
  int place = 0;
  for (const RankedCall& call : ranking.calls) {
    std::string name(call.name);
    if (call.ran != research::Algorithm::kAuto && NameOf(call.ran) != call.name) {
      name.append(" = ").append(NameOf(call.ran));
    }
    place += call.is_peer ? 0 : 1;
    table.Add(
        {call.is_peer ? "" : Number(place), call.is_peer ? "(" + name + ")" : name, ExactText(call),
         Micros(call.timing.mean), Micros(call.timing.median), Fixed(1e9 / call.timing.mean, 0),
         Times(call.timing.MeanTimesFloor()) + "m", Reads(call.reads.mean),
         call.reads.once > 0.0 ? Fixed(100 * call.reads.once, 0) + " %" : "-"},
        call.is_peer ? Style::kFaint
        : place == 1 ? Style::kGood
                     : Style::kPlain);
  }
  table.Print(out, terminal);
  out << '\n' << std::flush;
}

void WriteRow(JsonWriter& json, const Ranking& ranking, const RankedCall& call, int64_t vocab,
              std::string_view rows_name) {
  json.Object([&] {
    json.Key("bench").Value("algorithms");
    json.Key("task").Value(ranking.task);
    json.Key("backend").Value(NameOf(ranking.backend));
    json.Key(call.is_peer ? "peer" : "algorithm").Value(call.name);
    json.Key("dtype").Value("float32");
    json.Key("vocab").Value(vocab);
    json.Key("batch").Value(1);
    json.Key("distribution").Value(rows_name);
    json.Key("cache").Value("hot");
    json.Key("calls").Value(call.timing.calls);
    json.Key("ns").Value(call.timing.median);
    json.Key("mean_ns").Value(call.timing.mean);
    json.Key("rows_per_second").Value(1e9 / call.timing.mean);
    json.Key("floor_ns").Value(call.timing.floor);
    json.Key("reads");
    call.reads.mean > 0.0 ? json.Value(call.reads.mean) : json.Null();
    json.Key("read_once");
    call.reads.mean > 0.0 ? json.Value(call.reads.once) : json.Null();
    if (call.ran != research::Algorithm::kAuto) json.Key("ran").Value(NameOf(call.ran));
    if (!call.is_peer) json.Key("exact").Value(call.different == 0 && call.compared > 0);
  });
}

}  // namespace

void RunBenchAlgorithms(const BenchAlgorithmsOptions& options, std::ostream& out,
                        const Terminal& terminal) {
  bench::AlgorithmsOptions run;
  run.vocab = options.vocab;
  run.backends = ChosenVectorBackends(options.backends);
  run.rows = options.rows > 0 ? options.rows : options.is_quick ? 10 : 100;
  std::string rows_name(bench::kMixName);
  if (!options.rows_path.empty()) {
    NpyFile file(options.rows_path);
    TakeRows(file, run.rows, run);
    rows_name = "rows of " + options.rows_path;
  }
  if (!options.params_path.empty()) {
    SamplingParams params;
    ReadParamsFile(options.params_path, params);
    Validate(params, run.vocab);
    run.params = params.Select();
  }
  if (options.is_quick) {
    run.passes = 1;
    run.slow_budget_ms = 1.0;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   Number(run.rows) + " different fp32 rows (" + rows_name +
                       "), one thread, each row in cache. Ranked by the mean; floor: one streaming "
                       "read of the row (" +
                       std::string(bench::RowMaxInstructions()) +
                       ").\nReads: elements that the algorithm read, for each one of the row. "
                       "Once: rows that one read decided, for guesses how often they hold. "
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
        WriteRow(json, ranking, call, run.vocab, rows_name);
      }
    }
  });
  if (different > 0) {
    out.flush();
    throw std::runtime_error("timed results that are not the reference's: " + Number(different));
  }
}

}  // namespace sluice::cli
