#include <optional>
#include <string>
#include <vector>

#include "bench/head/head_peers.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/file.h"
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
  clusters.Add({"source", "clusters", "epsilon", "states", "certified", "took all", "rows",
                "variation", "most"},
               Style::kHeading);
  Table uncertified("llrrrrrrr");
  uncertified.Add(
      {"source", "head", "bytes", "states", "greedy", "sampled", "first 50", "variation", "most"},
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

bench::HeadPeersOptions OptionsOf(const BenchHeadPeersOptions& options,
                                  const ParallelFor& parallel) {
  bench::HeadPeersOptions run;
  run.parallel = parallel;
  run.rounds = options.rounds;
  if (options.vocab > 0) run.states = 100;
  if (options.is_quick) {
    run.states = 20;
    run.clusters = {20, 100};
    if (options.vocab > 0) run.probed_clusters = 100;
  }
  if (options.states > 0) run.states = options.states;
  if (!options.clusters.empty()) run.clusters = options.clusters;
  return run;
}

}  // namespace

void RunBenchHeadPeers(const BenchHeadPeersOptions& options, std::ostream& out,
                       const Terminal& terminal) {
  const bool is_made = options.vocab > 0;
  const std::string text = is_made ? "" : ReadTextFile("text", options.text_path);
  JsonFile file(options.json_path);
  const int threads = options.source.threads;
  ThreadPool pool(!is_made ? ThreadsFor(options.source) : threads > 0 ? threads : Cores());
  const bench::HeadPeersOptions run = OptionsOf(options, pool.parallel());
  ProgressLine loading(false);
  const Progress progress;
  const auto show = [&](const std::string& next) { progress.Show(next); };
  std::optional<Checkpoint> checkpoint;
  std::optional<bench::MadeHead> made;
  if (is_made) {
    show("making a head");
    made.emplace(options.vocab, options.dim, run.states, options.tree_share);
    progress.Clear();
  } else {
    checkpoint = OpenModel(options.source, pool.parallel(), loading);
  }
  const MatrixView weight = is_made ? made->weight() : checkpoint->head().weight;
  const std::string size =
      Number(weight.rows) + " x " + Number(weight.columns) + " " + std::string(Name(weight.dtype));
  PrintEnvironment(
      out,
      (is_made ? "The certified head of a made head of " + size + " next to its peers,\non " +
                     Number(run.states) + " states; tree: " + Fixed(options.tree_share, 2) +
                     " of its rows' variance"
               : "The certified head of " + options.source.ShortName() + ", " + size +
                     ", next to its peers,\non hidden states of a text, and of the model's own "
                     "continuations") +
          ". Counts, no times.\n"
          "Clusters: the softmax to within epsilon by balls; certified: within an eighth of\n"
          "the rows; rows: what the certificate took, as if there were no budget; variation:\n"
          "measured. Uncertified: the share of states with another first token, another token\n"
          "of the whole softmax with the same noise, other first 50; bytes of one read of the\n"
          "head.",
      options.is_quick);
  out << '\n';
  std::vector<HeadPeersResult> results;
  if (is_made) {
    results.push_back(bench::RunHeadPeers(*made, run, show));
  } else {
    results = bench::RunHeadPeers(*checkpoint, text, run, show);
  }
  progress.Clear();
  Print(results, out, terminal);

  int64_t wrong = 0;
  file.Write([&](JsonWriter& json) {
    for (const HeadPeersResult& result : results) {
      const auto write = [&](const auto& figures) {
        file.NewLine();
        json.Object([&] {
          json.Key("bench").Value("head-peers");
          if (is_made) {
            json.Key("tree").Value(options.tree_share);
          } else {
            json.Key("model").Value(options.source.ShortName());
          }
          json.Key("vocab").Value(weight.rows);
          json.Key("dim").Value(weight.columns);
          json.Key("rounds").Value(int64_t{run.rounds});
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
