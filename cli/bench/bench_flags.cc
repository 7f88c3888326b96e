// The flags of sluice bench.
#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <memory>
#include <span>

#include "bench/support/rows.h"
#include "bench/support/score_rows.h"
#include "bench/support/tasks.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "sluice/research/algorithms.hpp"
#include "sluice/tensor.hpp"

namespace sluice::cli {
namespace {

using Names = std::vector<std::string>;

#ifdef SLUICE_HAS_ENGINE
constexpr int64_t kMaxMadeDim = 16384;
#endif

CLI::Option* AddList(CLI::App& command, const char* flag, Names& list, const char* help) {
  return command.add_option(flag, list, help)->delimiter(',');
}

void AddVocab(CLI::App& command, int64_t& vocab) {
  command.add_option("--vocab", vocab, "tokens in a row")
      ->check(CLI::Range(int64_t{64}, kMaxVocab))
      ->capture_default_str();
}

void AddDistributions(CLI::App& command, Names& list) {
  AddList(command, "--distribution", list, "only rows of these kinds")
      ->type_name(ChoiceType(NamesOf<bench::Distribution>(bench::kDistributions)));
}

void AddJsonFile(CLI::App& command, std::string& path) {
  command.add_option("--json", path, "write the results to this file too")->type_name("FILE");
}

void AddTargets(CLI::App& command, bool& shows_targets) {
  command.add_flag("--targets", shows_targets,
                   "show this project's targets, and which of them this run missed");
}

// What every bench that measures has.
template <typename Options>
void AddCommon(CLI::App& command, Options& options, Names backends = {"auto", "cpu"}) {
  for (const BackendInfo& info : Backends()) backends.emplace_back(info.name);
  AddList(command, "--backend", options.backends,
          "only these backends (see sluice inspect backends)")
      ->type_name(ChoiceType(backends));
  AddJsonFile(command, options.json_path);
  command.add_flag("--quick", options.is_quick,
                   "run for seconds only; the figures mean nothing then");
  const std::string footer = command.get_footer();
  command.footer("Lists are separated by commas." + (footer.empty() ? "" : " " + footer));
}

Names AlgorithmNames() {
  Names names = {"all"};
  for (const research::AlgorithmEntry& info : research::Algorithms()) names.emplace_back(info.name);
  return names;
}

// A subcommand with options that live as long as it does. `run` is what it does.
template <typename Options, typename Run>
std::pair<CLI::App*, Options*> AddCommand(CLI::App& bench, const char* name, const char* help,
                                          std::function<void()>& action, const Run& run) {
  CLI::App* const command = bench.add_subcommand(name, help);
  const auto options = std::make_shared<Options>();
  command->callback([&action, options, run] { action = [options, run] { run(*options); }; });
  return {command, options.get()};
}

void AddSelect(CLI::App& bench, std::function<void()>& action, bool is_of_draws) {
  const std::span<const bench::Task> tasks =
      is_of_draws ? std::span<const bench::Task>(bench::kDrawTasks) : bench::kSelectTasks;
  const auto [command, options] = AddCommand<BenchSelectOptions>(
      bench, is_of_draws ? "draw" : "select",
      is_of_draws ? "draws of a token on the CPU, from all tokens and from kept sets"
                  : "selection on the CPU, compared with other programs' ways",
      action,
      [](const BenchSelectOptions& o) { RunBenchSelect(o, std::cout, Terminal::Detect()); });
  options->is_of_draws = is_of_draws;
  command->footer("A full run takes some minutes.");
  AddVocab(*command, options->vocab);
  command->add_option("--rows", options->rows, "rows of each kind; 200 unless --quick")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}));
  AddList(*command, "--task", options->tasks, "only these tasks")
      ->type_name(ChoiceType(NamesOf<bench::Task>(tasks)));
  AddDistributions(*command, options->distributions);
  AddList(*command, "--dtype", options->dtypes, "only logits of these types")
      ->type_name(ChoiceType(Names{"fp32", "bf16"}));
  AddList(*command, "--algorithm", options->algorithms,
          "select by these algorithms; all is every one")
      ->type_name(ChoiceType(AlgorithmNames()))
      ->capture_default_str();
  AddCommon(*command, *options);
  AddTargets(*command, options->shows_targets);
}

void AddAlgorithms(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchAlgorithmsOptions>(
      bench, "algorithms",
      "every way to select, the core's and those of papers, ranked on one mix of rows or on yours",
      action, [](const BenchAlgorithmsOptions& o) {
        RunBenchAlgorithms(o, std::cout, Terminal::Detect());
      });
  AddVocab(*command, options->vocab);
  command
      ->add_option("--rows", options->rows,
                   "number of rows, of a file evenly spread over it; 100 unless --quick")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}));
  command
      ->add_option("--rows-file", options->rows_path,
                   "read logits from this .npy file (see sluice trace) instead of the mix")
      ->type_name("FILE.npy")
      ->excludes("--vocab");
  command
      ->add_option("--params", options->params_path,
                   "select by the JSON object of sampling parameters in this file, instead of "
                   "top-p and top-50")
      ->type_name("FILE");
  AddCommon(*command, *options);
}

void AddTune(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchTuneOptions>(
      bench, "tune", "the fastest algorithms on this machine, for the table of auto", action,
      [](const BenchTuneOptions& o) { RunBenchTune(o, std::cout, Terminal::Detect()); });
  command->footer("A full run takes some minutes. Build again to use the new table.");
  command
      ->add_option("--output", options->output_path,
                   "write the table to this file; the build reads src/select/policy.inc")
      ->type_name("FILE");
  AddCommon(*command, *options);
}

void AddPipeline(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchPipelineOptions>(
      bench, "pipeline", "whole steps of a Sampler, single requests and batches", action,
      [](const BenchPipelineOptions& o) { RunBenchPipeline(o, std::cout, Terminal::Detect()); });
  AddVocab(*command, options->vocab);
  command->add_option("--threads", options->threads, "threads that share the rows of a step")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddCommon(*command, *options);
}

void AddHead(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchHeadOptions>(
      bench, "head", "the certified head, compared with the dense head", action,
      [](const BenchHeadOptions& o) { RunBenchHead(o, std::cout, Terminal::Detect()); });
  command->footer("A full run takes some minutes.");
  command->add_option("--threads", options->threads, "threads that share the work of a call")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--batch", options->batches,
                   "numbers of hidden states in a call; --quick has its own")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{64}))
      ->capture_default_str();
  AddList(*command, "--planes", options->planes, "only planes of these kinds")
      ->type_name(ChoiceType(Names{"dither4", "strict"}))
      ->capture_default_str();
  AddCommon(*command, *options);
}

#ifdef SLUICE_HAS_ENGINE
// TEXT, --model, --states, --json and --quick, of what looks at a model's own head.
CLI::Option* AddModelStates(CLI::App& command, BenchModelHeadOptions& options,
                            const std::string& usual) {
  AddModelFlags(command, options.source);
  CLI::Option* const text =
      command
          .add_option(
              "TEXT", options.text_path,
              "a file with a text, which the model reads and continues; - is standard input")
          ->required();
  command
      .add_option(
          "--states", options.states,
          "hidden states of the text, and as many of continuations; " + usual + " unless --quick")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  AddJsonFile(command, options.json_path);
  command.add_flag("--quick", options.is_quick,
                   "run for seconds only; the figures mean nothing then");
  return text;
}

// "128256x1024"; what is wrong with it, or nothing.
std::string ParseShape(const std::string& shape, int64_t& vocab, int64_t& dim) {
  const char* const end = shape.data() + shape.size();
  const auto first = std::from_chars(shape.data(), end, vocab);
  const bool has_both = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = has_both ? std::from_chars(first.ptr + 1, end, dim) : first;
  if (has_both && second.ec == std::errc() && second.ptr == end && vocab >= 64 &&
      vocab <= kMaxVocab && dim >= 1 && dim <= kMaxMadeDim) {
    return "";
  }
  return shape + " is not allowed: VxD, V tokens from 64 to " + std::to_string(kMaxVocab) +
         " and D elements from 1 to " + std::to_string(kMaxMadeDim);
}

void AddTrainedHead(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchModelHeadOptions>(
      bench, "trained-head", "the certified head of a model on its own hidden states", action,
      [](const BenchModelHeadOptions& o) {
        RunBenchTrainedHead(o, std::cout, Terminal::Detect());
      });
  command->footer("A full run takes some minutes.");
  AddModelStates(*command, *options, "25000");
}

void AddHeadPeers(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchHeadPeersOptions>(
      bench, "head-peers",
      "clusters of rows, and heads without certificates, on a model's own hidden states or a made "
      "head",
      action,
      [](const BenchHeadPeersOptions& o) { RunBenchHeadPeers(o, std::cout, Terminal::Detect()); });
  command->footer(
      "Lists are separated by commas. A full run takes some minutes; with a made head of a large "
      "model's size, half an hour of every core.");
  CLI::Option* const text = AddModelStates(*command, *options, "500, of a made head 100,");
  CLI::Option* const head = command
                                ->add_option_function<std::string>(
                                    "--head",
                                    [options = options, text](const std::string& shape) {
                                      ParseShape(shape, options->vocab, options->dim);
                                      text->required(false);
                                    },
                                    "make a head of V tokens and D elements in bf16, and its "
                                    "states, instead of reading a model's")
                                ->check([](const std::string& shape) {
                                  int64_t vocab = 0, dim = 0;
                                  return ParseShape(shape, vocab, dim);
                                })
                                ->type_name("VxD")
                                ->excludes(text)
                                ->excludes("--model", "--weights");
  command
      ->add_option("--tree", options->tree_share,
                   "the share of a made head's variance that lies in a tree of its rows; 0: "
                   "independent rows")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->needs(head);
  command
      ->add_option(
          "--clusters", options->clusters,
          "numbers of clusters, fewer than the vocabulary has tokens; 500 to 8000 unless --quick")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMaxVocab));
  command->add_option("--rounds", options->rounds, "rounds of k-means")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
}
#endif

void AddTopk(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchTopkOptions>(
      bench, "topk",
      "topk of scores on the CPU, and on a GPU where this build and machine have one", action,
      [](const BenchTopkOptions& o) { RunBenchTopk(o, std::cout, Terminal::Detect()); });
  command->footer(
      "A full run takes a minute. bench/topk_decode_step.py measures topk's share of a decode step "
      "(indexer, topk, attention); it needs torch and a GPU.");
  command->add_option("--columns", options->columns, "numbers of scores in a row")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{64}, kMaxVocab))
      ->capture_default_str();
  command->add_option("--k", options->ks, "numbers of first scores to find")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMaxVocab))
      ->capture_default_str();
  Names scores;
  for (const bench::NamedScores& named : bench::kScores) scores.emplace_back(named.name);
  AddList(*command, "--scores", options->scores, "only rows of these kinds")
      ->type_name(ChoiceType(scores));
  AddList(*command, "--dtype", options->dtypes, "only scores of these types")
      ->type_name(ChoiceType(Names{"fp32", "bf16"}))
      ->capture_default_str();
  command
      ->add_option("--rows-file", options->rows_path,
                   "read scores from this .npy file, a row for each step, as bench/topk_traces.py "
                   "writes it; the hint of a row is the result of the row before")
      ->type_name("FILE.npy")
      ->excludes("--columns", "--scores");
  command->add_option("--steps", options->steps, "read at most this many steps of that file")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  AddCommon(*command, *options, {"auto", "cpu", "cuda"});
  AddTargets(*command, options->shows_targets);
}

void AddRows(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchRowsOptions>(
      bench, "rows",
      "write the rows of the other benchmarks to a file, for programs in other languages", action,
      [](const BenchRowsOptions& o) { RunBenchRows(o, std::cout); });
  AddVocab(*command, options->vocab);
  command->add_option("--rows", options->rows, "rows of each kind; 200 unless --quick")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}));
  AddDistributions(*command, options->distributions);
  command
      ->add_option("--output", options->output_path,
                   "a file for the rows, in fp32; FILE.json describes them")
      ->type_name("FILE")
      ->required();
  AddJsonFile(*command, options->json_path);
  command->add_flag("--quick", options->is_quick, "write a few rows of each kind only");
}

#ifdef SLUICE_HAS_TEXT
void AddDetok(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchDetokOptions>(
      bench, "detok", "detokenising, stop strings, encoding and loading, on one core", action,
      [](const BenchDetokOptions& o) { RunBenchDetok(o, std::cout, Terminal::Detect()); });
  command->add_option("TOKENIZER", options->tokenizer_path, "a tokenizer.json")->required();
  command->add_option("TEXT", options->text_path, "a file with a text to encode and decode")
      ->required();
  AddJsonFile(*command, options->json_path);
  command->add_flag("--quick", options->is_quick,
                    "run for seconds only; the figures mean nothing then");
}
#endif

#ifdef SLUICE_HAS_LINK
void AddBenchEngine(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchEngineOptions>(
      bench, "engine", "steps, links, stops and aborts of an engine without a model", action,
      [](const BenchEngineOptions& o) { RunBenchEngine(o, std::cout, Terminal::Detect()); });
  AddJsonFile(*command, options->json_path);
  command->add_flag("--quick", options->is_quick,
                    "run for seconds only; the figures mean nothing then");
  AddTargets(*command, options->shows_targets);
}

void AddSoak(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchSoakOptions>(
      bench, "soak",
      "many requests of every kind through an engine, which must leave nothing unreleased", action,
      [](const BenchSoakOptions& o) { RunBenchSoak(o, std::cout, Terminal::Detect()); });
  const auto add = [command = command](const char* flag, auto& value, int64_t most,
                                       const char* help) {
    command->add_option(flag, value, help)
        ->check(CLI::Range(int64_t{1}, most))
        ->capture_default_str();
  };
  add("--requests", options->requests, int64_t{1} << 40, "requests of all frontends together");
  add("--frontends", options->frontends, 64, "frontends, each with a thread");
  add("--burst", options->burst, 128, "tokens that a step gives each request");
  command
      ->add_option("--steps-in-flight", options->steps_in_flight,
                   "steps that are computed while the next one is planned: 0 or 1")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  add("--seed", options->seed, INT64_MAX, "the seed of the requests");
  AddJsonFile(*command, options->json_path);
}
#endif

#ifdef SLUICE_HAS_SERVER
void AddBenchServe(CLI::App& bench, std::function<void()>& action) {
  const auto [command, options] = AddCommand<BenchServeOptions>(
      bench, "serve", "a server with an engine without a model; or load for any server", action,
      [](const BenchServeOptions& o) { RunBenchServe(o, std::cout, Terminal::Detect()); });
  CLI::Option* const url =
      command->add_option("--url", options->url, "send load to this server of completions instead")
          ->type_name("http://HOST:PORT");
  const auto add = [url, command = command](const char* flag, auto& value, const char* help) {
    return command->add_option(flag, value, help)->needs(url)->capture_default_str();
  };
  const CLI::Range count(int64_t{1}, int64_t{1} << 30);
  add("--requests", options->requests, "number of streams")->check(count);
  add("--rate", options->rate,
      "requests that start each second, however long responses take; 0: all at once")
      ->check(CLI::Range(0.0, 1e6));
  add("--concurrency", options->concurrency, "at most this many streams at once; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  add("--prompt-tokens", options->prompt_tokens, "length of each prompt, of random ids below 1000")
      ->check(count);
  add("--text", options->text, "send this text as the prompt instead");
  add("--output-tokens", options->output_tokens, "max_tokens of each request")->check(count);
  command
      ->add_flag("--ignore-eos,!--heed-eos", options->ignores_end,
                 "go on after the tokens that end an output (default), or end there")
      ->needs(url);
  add("--model", options->model, "the model's name in requests");
  add("--logprobs", options->logprobs,
      "log-probabilities of each token and of this number of the most likely ones; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  add("--api-key", options->api_key, "the key that requests send");
  add("--pid", options->pid, "the process of the server on this machine, to count its CPU time");
  add("--seed", options->seed, "the seed of arrivals and prompts");
  AddJsonFile(*command, options->json_path);
  command
      ->add_flag("--quick", options->is_quick,
                 "run for seconds only; the figures mean nothing then")
      ->excludes(url);
  AddTargets(*command, options->shows_targets);
}
#endif

}  // namespace

void AddBench(CLI::App& app, std::function<void()>& action) {
  CLI::App* const bench = app.add_subcommand("bench", "run benchmarks");
  bench->require_subcommand(1);
  AddSelect(*bench, action, false);
  AddSelect(*bench, action, true);
  AddAlgorithms(*bench, action);
  AddPipeline(*bench, action);
  AddHead(*bench, action);
#ifdef SLUICE_HAS_ENGINE
  AddTrainedHead(*bench, action);
  AddHeadPeers(*bench, action);
#endif
  AddTune(*bench, action);
  AddRows(*bench, action);
  AddTopk(*bench, action);
#ifdef SLUICE_HAS_TEXT
  AddDetok(*bench, action);
#endif
#ifdef SLUICE_HAS_LINK
  AddBenchEngine(*bench, action);
  AddSoak(*bench, action);
#endif
#ifdef SLUICE_HAS_SERVER
  AddBenchServe(*bench, action);
#endif
}

}  // namespace sluice::cli
