#include <algorithm>
#include <vector>

#include "bench/head/trained_head.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/file.h"
#include "cli/table.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using bench::ClusterFigures;
using bench::HeadAnswers;
using bench::IntervalFigures;
using bench::TrainedHeadResult;

template <typename A, typename B>
double Share(A part, B whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double WidthOf(const IntervalFigures& f) { return Share(f.widths, f.row_steps); }
double OpenedOf(const ClusterFigures& f, size_t i) { return Share(f.opened[i], f.states); }

void PrintAnswers(const std::vector<TrainedHeadResult>& results, std::ostream& out,
                  const Terminal& terminal) {
  Table table("lllrrrrrrrrr");
  table.Add({"source", "planes", "question", "steps", "different", "dense", "% of steps",
             "% for survivors", "% for mass", "survivors", "most", "bytes"},
            Style::kHeading);
  for (const TrainedHeadResult& result : results) {
    for (const HeadAnswers& a : result.answers) {
      table.Add({std::string(result.source), std::string(Name(a.kind)), std::string(a.question),
                 Number(a.states), Number(a.different), Number(a.dense),
                 Fixed(100 * Share(a.dense, a.states), 3),
                 Fixed(100 * Share(a.dense_survivors, a.states), 3),
                 Fixed(100 * Share(a.dense_mass, a.states), 3),
                 Fixed(Share(a.survivors, a.states), 1), Number(int64_t{a.most_survivors}),
                 Fixed(Share(a.bytes_read, a.dense_bytes), 3)});
    }
  }
  table.Print(out, terminal);
}

void PrintBounds(const std::vector<TrainedHeadResult>& results, std::ostream& out,
                 const Terminal& terminal) {
  Table intervals("lllrrrr");
  intervals.Add({"source", "planes", "", "row-steps", "violated", "half width", "largest of it"},
                Style::kHeading);
  Table clusters("llrrrrrrr");
  clusters.Add({"source", "clusters", "", "states", "violated", "opens k=1", "10", "50", "xi"},
               Style::kHeading);
  for (const TrainedHeadResult& result : results) {
    const std::string source(result.source);
    for (const IntervalFigures& f : result.intervals) {
      if (f.row_steps == 0) continue;
      intervals.Add({source, std::string(Name(f.kind)), f.is_refined ? "both planes" : "",
                     Number(f.row_steps), Number(f.violated), Fixed(WidthOf(f), 4),
                     Fixed(f.largest, 3)});
    }
    for (const ClusterFigures& f : result.clusters) {
      clusters.Add({source, std::string(Name(f.metric)), Number(f.clusters), Number(f.states),
                    Number(f.violated), Fixed(OpenedOf(f, 0), 3), Fixed(OpenedOf(f, 1), 3),
                    Fixed(OpenedOf(f, 2), 3), Fixed(Share(f.tightness, f.states), 3)});
    }
  }
  out << '\n';
  intervals.Print(out, terminal);
  out << '\n';
  clusters.Print(out, terminal);
}

void WriteAnswers(JsonWriter& json, const HeadAnswers& a) {
  json.Key("task").Value("answers");
  json.Key("kind").Value(Name(a.kind));
  json.Key("question").Value(a.question);
  json.Key("states").Value(a.states);
  json.Key("different").Value(a.different);
  json.Key("dense").Value(a.dense);
  json.Key("dense_survivors").Value(a.dense_survivors);
  json.Key("dense_parameters").Value(a.dense_parameters);
  json.Key("dense_mass").Value(a.dense_mass);
  json.Key("dense_hidden").Value(a.dense_hidden);
  json.Key("survivors").Value(Share(a.survivors, a.states));
  json.Key("most_survivors").Value(a.most_survivors);
  json.Key("bytes_share").Value(Share(a.bytes_read, a.dense_bytes));
  json.Key("exact").Value(a.different == 0);
}

void WriteIntervals(JsonWriter& json, const IntervalFigures& f) {
  json.Key("task").Value("intervals");
  json.Key("kind").Value(Name(f.kind));
  json.Key("refined").Value(f.is_refined);
  json.Key("row_steps").Value(f.row_steps);
  json.Key("violated").Value(f.violated);
  json.Key("half_width").Value(WidthOf(f));
  json.Key("largest").Value(f.largest);
  json.Key("exact").Value(f.violated == 0);
}

void WriteClusters(JsonWriter& json, const ClusterFigures& f) {
  json.Key("task").Value("clusters");
  json.Key("metric").Value(Name(f.metric));
  json.Key("clusters").Value(f.clusters);
  json.Key("states").Value(f.states);
  json.Key("violated").Value(f.violated);
  json.Key("opened_k1").Value(OpenedOf(f, 0));
  json.Key("opened_k10").Value(OpenedOf(f, 1));
  json.Key("opened_k50").Value(OpenedOf(f, 2));
  json.Key("tightness").Value(Share(f.tightness, f.states));
  json.Key("exact").Value(f.violated == 0);
}

}  // namespace

void RunBenchTrainedHead(const BenchModelHeadOptions& options, std::ostream& out,
                         const Terminal& terminal) {
  const std::string text = ReadTextFile("text", options.text_path);
  JsonFile file(options.json_path);
  ThreadPool pool(ThreadsFor(options.source));
  bench::TrainedHeadOptions run;
  run.parallel = pool.parallel();
  if (options.is_quick) {
    run.states = 40;
    run.clusters = {20};
  }
  if (options.states > 0) run.states = options.states;
  ProgressLine loading(false);
  const Checkpoint checkpoint = OpenModel(options.source, pool.parallel(), loading);
  const MatrixView weight = checkpoint.head().weight;
  const std::string size = Number(weight.rows) + " x " + Number(weight.columns);
  PrintEnvironment(
      out,
      "The certified head of " + options.source.ShortName() + ", " + size + " " +
          std::string(Name(weight.dtype)) +
          ", one hidden state a call: those of a text, and of the model's\n"
          "own continuations. First k: ids and logits; else a token and its Cut,\n"
          "where it is not the id alone.\n"
          "Different: not the dense head's, bit for bit. Bytes: read, of one read of the head.\n"
          "Clusters: rows that their bounds open; xi is 1 where a bound is as low as can be.",
      options.is_quick);
  out << '\n';
  const Progress progress;
  const std::vector<TrainedHeadResult> results = bench::RunTrainedHead(
      checkpoint, text, run, [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  PrintAnswers(results, out, terminal);
  PrintBounds(results, out, terminal);

  int64_t wrong = 0;
  file.Write([&](JsonWriter& json) {
    for (const TrainedHeadResult& result : results) {
      const auto write = [&](const auto& figures, const auto& write_figures) {
        file.NewLine();
        json.Object([&] {
          json.Key("bench").Value("trained-head");
          json.Key("model").Value(options.source.ShortName());
          json.Key("vocab").Value(weight.rows);
          json.Key("dim").Value(weight.columns);
          json.Key("source").Value(result.source);
          write_figures(json, figures);
        });
      };
      for (const HeadAnswers& a : result.answers) write(a, WriteAnswers);
      for (const IntervalFigures& f : result.intervals) {
        if (f.row_steps > 0) write(f, WriteIntervals);
      }
      for (const ClusterFigures& f : result.clusters) write(f, WriteClusters);
    }
  });
  for (const TrainedHeadResult& result : results) {
    for (const HeadAnswers& a : result.answers) wrong += a.different;
    for (const IntervalFigures& f : result.intervals) wrong += f.violated;
    for (const ClusterFigures& f : result.clusters) wrong += f.violated;
  }
  if (wrong > 0) {
    throw Error(ErrorCode::kUnavailable, "answers and bounds", Number(wrong) + " wrong", "none");
  }
}

}  // namespace sluice::cli
