#include <string>
#include <vector>

#include "bench/head_peers.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/file.h"
#include "cli/table.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using bench::ClusterSoftmax;
using bench::HeadPeersResult;
using bench::UncertifiedHead;

template <typename Sum>
double OfStates(Sum sum, int64_t states) {
  return states == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(states);
}

void Print(const std::vector<HeadPeersResult>& results, std::ostream& out,
           const Terminal& terminal) {
  Table clusters("lrrrrrrrr");
  clusters.Add({"states of", "clusters", "epsilon", "states", "certified", "took all", "rows",
                "variation", "most"},
               Style::kHeading);
  Table uncertified("llrrrrrrr");
  uncertified.Add({"states of", "head", "bytes", "states", "greedy", "sampled", "first 50",
                   "variation", "most"},
                  Style::kHeading);
  for (const HeadPeersResult& result : results) {
    const std::string source(result.source);
    for (const ClusterSoftmax& f : result.clusters) {
      clusters.Add({source, Number(f.clusters), Fixed(f.epsilon, 2), Number(f.states),
                    Fixed(OfStates(f.certified, f.states), 3),
                    Fixed(OfStates(f.whole, f.states), 3), Fixed(OfStates(f.opened, f.states), 3),
                    Fixed(OfStates(f.variation, f.states), 4), Fixed(f.most_variation, 4)});
    }
    for (const UncertifiedHead& f : result.uncertified) {
      uncertified.Add({source, f.method, Fixed(f.bytes_share, 3), Number(f.states),
                       Fixed(OfStates(f.greedy, f.states), 4),
                       Fixed(OfStates(f.sampled, f.states), 4),
                       Fixed(OfStates(f.top50, f.states), 4),
                       Fixed(OfStates(f.variation, f.states), 4), Fixed(f.most_variation, 4)});
    }
  }
  clusters.Print(out, terminal);
  out << '\n';
  uncertified.Print(out, terminal);
}

void Write(JsonWriter& json, const ClusterSoftmax& f) {
  json.Key("task").Value("cluster-softmax");
  json.Key("clusters").Value(f.clusters);
  json.Key("epsilon").Value(f.epsilon);
  json.Key("states").Value(f.states);
  json.Key("certified").Value(OfStates(f.certified, f.states));
  json.Key("took_all").Value(OfStates(f.whole, f.states));
  json.Key("rows_share").Value(OfStates(f.opened, f.states));
  json.Key("variation").Value(OfStates(f.variation, f.states));
  json.Key("most_variation").Value(f.most_variation);
  json.Key("violated").Value(f.violated);
}

void Write(JsonWriter& json, const UncertifiedHead& f) {
  json.Key("task").Value("uncertified");
  json.Key("method").Value(f.method);
  json.Key("bytes_share").Value(f.bytes_share);
  json.Key("states").Value(f.states);
  json.Key("greedy_differs").Value(f.greedy);
  json.Key("sampled_differs").Value(f.sampled);
  json.Key("first_50_differ").Value(f.top50);
  json.Key("variation").Value(OfStates(f.variation, f.states));
  json.Key("most_variation").Value(f.most_variation);
}

}  // namespace

void RunBenchHeadPeers(const BenchModelHeadOptions& options, std::ostream& out,
                       const Terminal& terminal) {
  const std::string text = ReadTextFile("text", options.text_path);
  JsonFile file(options.json_path);
  ThreadPool pool(ThreadsFor(options.source));
  bench::HeadPeersOptions run;
  run.parallel = pool.parallel();
  if (options.is_quick) {
    run.states = 20;
    run.clusters = {20, 100};
  }
  if (options.states > 0) run.states = options.states;
  ProgressLine loading(false);
  const Checkpoint checkpoint = OpenModel(options.source, pool.parallel(), loading);
  const MatrixView weight = checkpoint.head().weight;
  PrintEnvironment(
      out,
      "What the certified head of " + options.source.ShortName() + ", " + Number(weight.rows) +
          " x " + Number(weight.columns) + " " + std::string(Name(weight.dtype)) +
          ", stands beside,\n"
          "on hidden states of a text, and of the model's own continuations. Counts, no times.\n"
          "Clusters: the softmax to within epsilon by balls; certified: within an eighth of\n"
          "the rows; rows: what the certificate took, as if there were no budget; variation:\n"
          "measured. Uncertified: the share of states with another first token, another token\n"
          "of the whole softmax with the same noise, other first 50; bytes of one read of the\n"
          "head.",
      options.is_quick);
  out << '\n';
  const Progress progress;
  const std::vector<HeadPeersResult> results = bench::RunHeadPeers(
      checkpoint, text, run, [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  Print(results, out, terminal);

  int64_t wrong = 0;
  file.Write([&](JsonWriter& json) {
    for (const HeadPeersResult& result : results) {
      const auto write = [&](const auto& figures) {
        file.NewLine();
        json.Object([&] {
          json.Key("bench").Value("head-peers");
          json.Key("model").Value(options.source.ShortName());
          json.Key("vocab").Value(weight.rows);
          json.Key("dim").Value(weight.columns);
          json.Key("source").Value(result.source);
          Write(json, figures);
        });
      };
      for (const ClusterSoftmax& f : result.clusters) write(f);
      for (const UncertifiedHead& f : result.uncertified) write(f);
    }
  });
  for (const HeadPeersResult& result : results) {
    for (const ClusterSoftmax& f : result.clusters) wrong += f.violated;
  }
  if (wrong > 0) {
    throw Error(ErrorCode::kUnavailable, "variations", Number(wrong) + " above epsilon", "none");
  }
}

}  // namespace sluice::cli
