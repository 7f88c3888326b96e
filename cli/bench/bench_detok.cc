#include <vector>

#include "bench/stages/detok_bench.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/file.h"
#include "cli/table.h"

namespace sluice::cli {

using bench::DetokTiming;

void RunBenchDetok(const BenchDetokOptions& options, std::ostream& out, const Terminal& terminal) {
  const std::string json = ReadTextFile("tokenizer", options.tokenizer_path);
  const std::string text = ReadTextFile("text", options.text_path);
  bench::DetokOptions run;
  if (options.is_quick) {
    run.budget_ms = 1;
    run.turns = 3;
    run.stream_lengths = {1000};
    run.prompt_lengths = {10};
  }
  JsonFile file(options.json_path);
  PrintEnvironment(
      out,
      "Text on one core: ns a token; encode and load: ns a byte.\nPeer: the algorithm "
      "of Hugging Face's DecodeStream, in C++. Floor: appending the bytes.\nStops: what "
      "a stream of text takes more than detokenising alone.",
      options.is_quick);
  std::vector<DetokTiming> timings;
  bench::RunDetokBench(json, text, run, [&](const DetokTiming& t) { timings.push_back(t); });
  Table table("lrrrrrrr");
  table.Add({"task", "n", "ns", "quartiles", "floor", "peer ns", "ratio", "held bytes"},
            Style::kHeading);
  for (const DetokTiming& t : timings) {
    const bool has_peer = t.peer_ns > 0;
    table.Add({t.task, Number(t.n), Short(t.ns), Short(t.low) + " to " + Short(t.high),
               t.floor_ns > 0 ? Short(t.floor_ns) : "", has_peer ? Short(t.peer_ns) : "",
               has_peer ? Times(t.ratio) : "", t.is_difference ? Fixed(t.held_bytes, 3) : ""});
  }
  table.Print(out, terminal);
  file.Write([&](JsonWriter& writer) {
    for (const DetokTiming& t : timings) {
      file.NewLine();
      writer.Object([&] {
        writer.Key("bench").Value("detok");
        writer.Key("task").Value(t.task);
        writer.Key("n").Value(t.n);
        writer.Key("ns").Value(t.ns);
        writer.Key("low").Value(t.low);
        writer.Key("high").Value(t.high);
        if (t.floor_ns > 0) writer.Key("floor_ns").Value(t.floor_ns);
        if (t.peer_ns > 0) {
          writer.Key("peer").Value("decode-stream-cpp");
          writer.Key("peer_ns").Value(t.peer_ns);
          writer.Key("ratio").Value(t.ratio);
        }
        if (t.is_difference) {
          writer.Key("detokenise_ns").Value(t.detokenise_ns);
          writer.Key("held_bytes").Value(t.held_bytes);
        }
      });
    }
  });
}

}  // namespace sluice::cli
