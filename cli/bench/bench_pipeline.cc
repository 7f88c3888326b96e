#include <vector>

#include "bench/stages/algorithms_bench.h"
#include "bench/stages/pipeline_bench.h"
#include "bench/support/floor.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/table.h"

namespace sluice::cli {

using bench::StepTiming;

void RunBenchPipeline(const BenchPipelineOptions& options, std::ostream& out,
                      const Terminal& terminal) {
  bench::PipelineOptions run;
  run.vocab = options.vocab;
  run.threads = options.threads;
  run.backends = ChosenBackends(options.backends);
  if (options.is_quick) {
    run.batches = {8};
    run.prompt_length = 32;
    run.steps = 3;
    run.budget_ms = 1.0;
  }
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   "Steps of a Sampler, fp32, V=" + Number(run.vocab) + ", rows of a " +
                       std::string(bench::kMixName) + ", prompts of " + Number(run.prompt_length) +
                       " tokens, threads: " + Number(run.threads) +
                       ".\nFloor: one streaming read of the step's rows by one thread (" +
                       std::string(bench::RowMaxInstructions()) + ").",
                   options.is_quick);
  for (const bench::StepKind& kind : bench::StepKinds()) {
    out << "  " << kind.name << ": " << kind.parameters << '\n';
  }
  out << '\n';

  const Progress progress;
  std::vector<StepTiming> timings;
  bench::RunPipelineBench(
      run, [&](const StepTiming& timing) { timings.push_back(timing); },
      [&](const std::string& next) { progress.Show(next); });
  progress.Clear();

  Table table("llrrrrr");
  table.Add({"requests", "backend", "batch", "us a row", "mean", "rows/s", "floor"},
            Style::kHeading);
  for (const StepTiming& step : timings) {
    const double rows = static_cast<double>(step.batch);
    table.Add({std::string(step.kind), std::string(NameOf(step.backend)), Number(step.batch),
               Micros(step.timing.median / rows), Micros(step.timing.mean / rows),
               Fixed(1e9 * rows / step.timing.median, 0), Times(step.timing.TimesFloor())},
              step.kind == bench::kMixedStep ? Style::kGood : Style::kPlain);
  }
  table.Print(out, terminal);
  file.Write([&](JsonWriter& json) {
    for (const StepTiming& step : timings) {
      file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("pipeline");
        json.Key("task").Value(step.kind);
        json.Key("backend").Value(NameOf(step.backend));
        json.Key("dtype").Value("float32");
        json.Key("vocab").Value(run.vocab);
        json.Key("batch").Value(step.batch);
        json.Key("threads").Value(run.threads);
        json.Key("distribution").Value(bench::kMixName);
        json.Key("calls").Value(step.timing.calls);
        json.Key("ns").Value(step.timing.median);
        json.Key("mean_ns").Value(step.timing.mean);
        json.Key("ns_a_row").Value(step.timing.median / static_cast<double>(step.batch));
        json.Key("floor_ns").Value(step.timing.floor);
      });
    }
  });
}

}  // namespace sluice::cli
