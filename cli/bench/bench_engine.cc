#include <vector>

#include "bench/serve/engine_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/generate/model_source.h"
#include "cli/table.h"

namespace sluice::cli {

using bench::EngineFigure;

namespace {

std::vector<std::string> Frontend(const std::string& endpoint) {
  return {"/proc/self/exe", "generate", "Once",   "--engine", endpoint,       "-n",     "64",
          "--max-tokens",   "1000000",  "--seed", "1",        "--ignore-eos", "--quiet"};
}

}  // namespace

void RunBenchEngine(const BenchEngineOptions& options, std::ostream& out,
                    const Terminal& terminal) {
  bench::EngineBenchOptions run{.tokenizer = OpenModelText({}).tokenizer(), .frontend = Frontend};
  if (options.is_quick) {
    run.batches = {1, 64};
    run.steps = 100;
    run.streams = 16;
    run.stream_tokens = 50;
    run.stops = 5;
    run.aborts = 50;
    run.abort_rounds = 2;
    run.stopped_seconds = 0.12;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   "An engine over a script: nothing of a model is in these figures. Steps: what "
                   "is not waiting for it.\nStops and aborts: steps of 1 ms, over ipc. Medians; "
                   "high: the hundredth part lies above it.",
                   options.is_quick);
  const Progress progress;
  std::vector<EngineFigure> figures;
  bench::RunEngineBench(
      run, [&](const EngineFigure& figure) { figures.push_back(figure); },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();

  Table table("lrrrrrll");
  table.Add({"task", "requests", "in flight", "median", "high", "target", "unit", ""},
            Style::kHeading);
  for (const EngineFigure& f : figures) {
    table.Add({f.task, Number(f.batch), Number(f.steps_in_flight), Short(f.value),
               f.high >= 0 ? Short(f.high) : "", f.target >= 0 ? Short(f.target) : "", f.unit,
               f.IsMet() ? "" : "missed"});
  }
  if (!options.shows_targets) table.Hide({5, 7});
  table.Print(out, terminal);
  file.Write([&](JsonWriter& json) {
    for (const EngineFigure& f : figures) {
      file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("engine");
        json.Key("task").Value(f.task);
        json.Key("batch").Value(f.batch);
        json.Key("steps_in_flight").Value(f.steps_in_flight);
        json.Key(f.unit).Value(f.value);
        if (f.high >= 0) json.Key("high").Value(f.high);
        if (f.target < 0) return;
        json.Key("target").Value(f.target);
        json.Key("is_met").Value(f.IsMet());
      });
    }
  });
}

}  // namespace sluice::cli
