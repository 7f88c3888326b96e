// sluice bench: times what Sluice does, next to the floor and to its peers.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#ifdef SLUICE_HAS_ENGINE
#include "cli/generate/model_source.h"
#endif
#include "cli/terminal.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// Adds the command and all of its subcommands. `action` becomes what the command line selects.
void AddBench(CLI::App& app, std::function<void()>& action);

// Empty lists are everything that there is, unless said otherwise. The command line has checked the
// names. Every Run writes tables as they are done, and throws when a file cannot be written.

// sluice bench select, and sluice bench draw: throws, after everything is printed, when a timed
// result was not the reference's.
struct BenchSelectOptions {
  bool is_of_draws = false;
  int64_t vocab = 128256;
  int64_t rows = 0;  // 0: as many as is usual
  std::vector<std::string> tasks;
  std::vector<std::string> distributions;
  std::vector<std::string> dtypes;
  std::vector<std::string> backends;
  std::vector<std::string> algorithms = {"auto"};
  std::string json_path;  // empty: none
  bool is_quick = false;
  bool shows_targets = false;
};
void RunBenchSelect(const BenchSelectOptions& options, std::ostream& out, const Terminal& terminal);

// sluice bench algorithms: all of them on one mix of rows, or on those of a file. Throws as
// RunBenchSelect does.
struct BenchAlgorithmsOptions {
  int64_t vocab = 32000;    // of the mix
  int64_t rows = 0;         // 0: 100, or 10 when is_quick; of a file no more than it has
  std::string rows_path;    // a .npy file
  std::string params_path;  // a JSON object of parameters, instead of the tasks
  std::vector<std::string> backends;
  std::string json_path;
  bool is_quick = false;
};
void RunBenchAlgorithms(const BenchAlgorithmsOptions& options, std::ostream& out,
                        const Terminal& terminal);

// sluice bench tune: measures what the policy table says, and rewrites it.
struct BenchTuneOptions {
  std::vector<std::string> backends;
  std::string output_path;  // of the table; empty: it is only shown
  std::string json_path;
  bool is_quick = false;
};
void RunBenchTune(const BenchTuneOptions& options, std::ostream& out, const Terminal& terminal);

// sluice bench pipeline: whole steps of a Sampler.
struct BenchPipelineOptions {
  int64_t vocab = 128256;
  int threads = 1;
  std::vector<std::string> backends;
  std::string json_path;
  bool is_quick = false;
};
void RunBenchPipeline(const BenchPipelineOptions& options, std::ostream& out,
                      const Terminal& terminal);

// sluice bench head: the certified head next to the dense one. Throws, after everything is printed,
// when a token was not the dense head's.
struct BenchHeadOptions {
  int threads = 1;
  std::vector<int64_t> batches = {1, 8, 32};
  std::vector<std::string> planes = {"dither4", "strict"};
  std::vector<std::string> backends;
  std::string json_path;
  bool is_quick = false;
};
void RunBenchHead(const BenchHeadOptions& options, std::ostream& out, const Terminal& terminal);

#ifdef SLUICE_HAS_ENGINE
// Of a bench on a model's own head and hidden states.
struct BenchModelHeadOptions {
  ModelSource source;
  std::string text_path;
  int64_t states = 0;  // 0: as many as the bench takes by itself, fewer when is_quick
  std::string json_path;
  bool is_quick = false;
};
// sluice bench trained-head: 25000 states, or 40. Throws as RunBenchHead does, and when an interval
// or a bound of a cluster was violated.
void RunBenchTrainedHead(const BenchModelHeadOptions& options, std::ostream& out,
                         const Terminal& terminal);

// sluice bench head-peers: clusters within epsilon, and heads without a certificate, on the same
// hidden states, 500 or 20; of a made head 100 or 20. Throws when a total variation was above its
// epsilon.
struct BenchHeadPeersOptions : BenchModelHeadOptions {
  int64_t vocab = 0;  // of a made head; 0: the model's, and a text
  int64_t dim = 0;
  double tree_share = 0.4;
  std::vector<int64_t> clusters;  // empty: 500 to 8000, or 20 and 100 when is_quick
  int32_t rounds = 10;
};
void RunBenchHeadPeers(const BenchHeadPeersOptions& options, std::ostream& out,
                       const Terminal& terminal);
#endif

// sluice bench topk: topk for scores on the CPU, and on a GPU where there is one. Throws as
// RunBenchSelect does.
struct BenchTopkOptions {
  std::vector<int64_t> columns = {65536, 131072};
  std::vector<int32_t> ks = {2048};
  std::vector<std::string> scores;
  std::vector<std::string> dtypes = {"fp32"};
  std::vector<std::string> backends;  // "cuda" as well
  std::string rows_path;              // a .npy file: a row a step, hinted by the step before
  int64_t steps = 32;                 // of that file, no more
  std::string json_path;
  bool is_quick = false;
  bool shows_targets = false;
};
void RunBenchTopk(const BenchTopkOptions& options, std::ostream& out, const Terminal& terminal);

// sluice bench rows: the rows that the benches time, as a file of fp32 and a JSON header for it.
struct BenchRowsOptions {
  int64_t vocab = 128256;
  int64_t rows = 0;  // 0: 200, or 5 when is_quick
  std::vector<std::string> distributions;
  std::string output_path;
  std::string json_path;
  bool is_quick = false;
};
void RunBenchRows(const BenchRowsOptions& options, std::ostream& out);

#ifdef SLUICE_HAS_TEXT
// sluice bench detok: detokenising, stops, encoding and loading.
struct BenchDetokOptions {
  std::string tokenizer_path;
  std::string text_path;
  std::string json_path;
  bool is_quick = false;
};
void RunBenchDetok(const BenchDetokOptions& options, std::ostream& out, const Terminal& terminal);
#endif

#ifdef SLUICE_HAS_LINK
// sluice bench engine: what an engine costs around its model.
struct BenchEngineOptions {
  std::string json_path;
  bool is_quick = false;
  bool shows_targets = false;
};
void RunBenchEngine(const BenchEngineOptions& options, std::ostream& out, const Terminal& terminal);
#endif

// sluice bench soak. Throws, after everything is printed, when anything is wrong or left.
struct BenchSoakOptions {
  int64_t requests = 1'000'000;
  int frontends = 2;
  int64_t burst = 1;
  int32_t steps_in_flight = 1;
  int64_t seed = 1;
  std::string json_path;
};
void RunBenchSoak(const BenchSoakOptions& options, std::ostream& out, const Terminal& terminal);

#ifdef SLUICE_HAS_SERVER
// sluice bench serve: a server of our own before a scripted engine; with a URL, load for any server
// of completions. Throws, after everything is printed, when a request failed.
struct BenchServeOptions {
  std::string url;  // empty: ours
  int64_t requests = 256;
  double rate = 0;          // a second; 0: all at once
  int64_t concurrency = 0;  // 0: no limit
  int64_t prompt_tokens = 32;
  std::string text;  // the prompt, instead of so many tokens
  int64_t output_tokens = 128;
  bool ignores_end = true;
  int64_t logprobs = 0;  // of each token, the most likely ones; 0: none
  std::string model;
  std::string api_key;
  int64_t pid = 0;  // the server's, to report its CPU time
  uint64_t seed = 1;
  std::string json_path;
  bool is_quick = false;
  bool shows_targets = false;
};
void RunBenchServe(const BenchServeOptions& options, std::ostream& out, const Terminal& terminal);
#endif

}  // namespace sluice::cli
