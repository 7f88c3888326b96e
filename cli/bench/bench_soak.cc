#include "bench/serve/engine_soak.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/generate/model_source.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using bench::SoakResult;

constexpr std::string_view kScript =
    "Once upon a time there was a miller with three sons. \xE4\xBD\xA0\xE5\xA5\xBD, said the "
    "first; the second went to the king's castle, and the third stayed with the cat "
    "\xF0\x9F\x90\xB1.\n\n";

struct MustBeZero {
  const char* what;
  int64_t count;
};

std::vector<MustBeZero> Faults(const SoakResult& result) {
  return {{"wrong texts", result.wrong_texts},
          {"wrong ends", result.wrong_ends},
          {"unexpected rows", result.unexpected_rows},
          {"requests that still run", result.running},
          {"requests that still wait", result.waiting},
          {"lost pages", result.lost_pages},
          {"tokens neither given nor discarded", result.unbalanced_tokens}};
}

void Print(std::ostream& out, const SoakResult& result, const Terminal& terminal) {
  Table table("lr");
  table.Add({"requests", Number(result.requests)}, Style::kHeading);
  for (int i = 1; i < kGenerationEnds; ++i) {
    if (result.ends[i] == 0) continue;
    table.Add({std::string(Name(static_cast<GenerationEnd>(i))), Number(result.ends[i])});
  }
  table.Add({"left open by a frontend", Number(result.left_behind)});
  table.Add({"preemptions", Number(result.engine.preemptions)});
  table.Add({"tokens", Number(result.tokens)});
  table.Add({"discarded after a stop", Number(result.engine.tokens_discarded_stop)});
  table.Add({"discarded after an abort", Number(result.engine.tokens_discarded_abort)});
  for (const MustBeZero& fault : Faults(result)) table.Add({fault.what, Number(fault.count)});
  table.Add({"seconds", Fixed(result.seconds, 1)});
  table.Add({"requests a second", Short(static_cast<double>(result.requests) / result.seconds)});
  table.Add({"resident MiB, at a quarter", Fixed(result.rss_begin_mib, 1)});
  table.Add({"resident MiB, at the end", Fixed(result.rss_end_mib, 1)});
  table.Add({"bytes a request, by least squares", Fixed(result.rss_slope_bytes, 2)});
  table.Print(out, terminal);
}

}  // namespace

void RunBenchSoak(const BenchSoakOptions& options, std::ostream& out, const Terminal& terminal) {
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   "Requests of every kind through an engine over a script, over ipc: every text "
                   "is compared with the script's.",
                   false);
  bench::SoakOptions run;
  run.requests = options.requests;
  run.frontends = options.frontends;
  run.burst = options.burst;
  run.steps_in_flight = options.steps_in_flight;
  run.reconnect = std::max<int64_t>(options.requests / 20, 100);
  run.seed = static_cast<uint64_t>(options.seed);
  const Tokenizer tokenizer = OpenModelText({}).tokenizer();
  ProgressLine progress(false);
  const SoakResult result =
      bench::RunSoak(run, tokenizer, tokenizer.Encode(kScript, {.add_special_tokens = false}),
                     [&](int64_t done, int64_t all) { progress.Show("soaking", done, all); });
  progress.Clear();
  Print(out, result, terminal);
  file.Write([&](JsonWriter& json) {
    file.NewLine();
    json.Object([&] {
      json.Key("bench").Value("soak");
      json.Key("task").Value("mixed requests");
      json.Key("batch").Value(run.concurrency * run.frontends);
      json.Key("steps_in_flight").Value(int64_t{run.steps_in_flight});
      json.Key("burst").Value(run.burst);
      json.Key("seed").Value(options.seed);
      json.Key("requests").Value(result.requests);
      json.Key("ends").Object([&] {
        for (int i = 1; i < kGenerationEnds; ++i) {
          json.Key(Name(static_cast<GenerationEnd>(i))).Value(result.ends[i]);
        }
      });
      json.Key("left_behind").Value(result.left_behind);
      json.Key("reconnects").Value(result.reconnects);
      json.Key("preemptions").Value(result.engine.preemptions);
      json.Key("tokens").Value(result.tokens);
      json.Key("tokens_discarded_stop").Value(result.engine.tokens_discarded_stop);
      json.Key("tokens_discarded_abort").Value(result.engine.tokens_discarded_abort);
      for (const MustBeZero& fault : Faults(result)) json.Key(fault.what).Value(fault.count);
      json.Key("seconds").Value(result.seconds);
      json.Key("rss_quarter_mib").Value(result.rss_begin_mib);
      json.Key("rss_end_mib").Value(result.rss_end_mib);
      json.Key("rss_slope_bytes").Value(result.rss_slope_bytes);
      json.Key("exact").Value(result.IsClean());
    });
  });
  if (!result.IsClean()) {
    throw Error(ErrorCode::kUnavailable, "soak", "faults", "none: the table has them");
  }
}

}  // namespace sluice::cli
