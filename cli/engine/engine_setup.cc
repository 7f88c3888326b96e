#include "cli/engine/engine_setup.h"

#include <CLI/CLI.hpp>

#include "cli/flags/choices.h"
#include "cli/flags/grammar_flags.h"
#include "cli/generate/cluster_head.h"
#include "sluice/tensor.hpp"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

// A prompt that arrives makes the steps of others longer, by as much as it reads in each; pieces as
// small as this cost a prompt alone a tenth of its rate.
constexpr int64_t kLeastPromptTokens = 32;

std::unique_ptr<ModelRunner> MakeRunner(const EngineSetup& setup, const Checkpoint& checkpoint,
                                        const ParallelFor& parallel, ProgressLine& progress) {
  HeadPlaneOptions plane_options;
  plane_options.progress = [](void* context, int64_t rows, int64_t vocab) {
    static_cast<ProgressLine*>(context)->Show("building the head's planes", rows, vocab);
  };
  plane_options.progress_context = &progress;
  ModelRunnerOptions options;
  options.max_requests = setup.max_requests;
  options.max_step_tokens =
      setup.step_tokens > 0 ? setup.step_tokens : setup.max_requests + kLeastPromptTokens;
  options.cache_tokens = setup.cache_tokens;
  options.max_logprobs = setup.max_logprobs;
  options.max_prefixes = setup.max_prefixes;
  options.draft_tokens = setup.draft_tokens;
  options.planes = HeadPlanesFor(setup.head, checkpoint, checkpoint.generation_config().params, {},
                                 plane_options, parallel);
  ClusterHeadReport report;
  options.top_k_head = ClusterHeadFor(setup.head, setup.head_file, checkpoint, setup.backend,
                                      parallel, progress, report);
  options.backend = setup.backend;
  options.parallel = parallel;
  progress.Clear();
  return std::make_unique<ModelRunner>(checkpoint, options);
}

}  // namespace

std::unique_ptr<GrammarService> MakeGrammarService(const std::string& library,
                                                   const Tokenizer& tokenizer,
                                                   std::span<const int32_t> end_tokens,
                                                   int64_t vocab) {
  const auto found = FindGrammarLibrary(library);
  if (!found.has_value() || end_tokens.empty()) return nullptr;
  return std::make_unique<GrammarService>(*found, tokenizer, end_tokens,
                                          static_cast<int32_t>(vocab));
}

void AddStepsInFlightFlag(CLI::App& command, int32_t& steps_in_flight) {
  command
      .add_option("--steps-in-flight", steps_in_flight,
                  "1: plan the next step while one is computed; a request that ends has then "
                  "computed a token too many")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
}

void AddEngineSetupFlags(CLI::App& command, EngineSetup& setup, const EngineFlagNames& names) {
  AddModelFlags(command, setup.source, {}, names.threads);
  AddHeadFlags(command, setup.head, setup.head_file);
  AddBackendFlag(command, setup.backend);
  command
      .add_option(names.max_requests, setup.max_requests,
                  "run at most this many requests at once; others wait")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      .add_option("--step-tokens", setup.step_tokens,
                  "tokens that one step reads at most, prompts and outputs together; 0: 32 more "
                  "than the requests that run at once, and of prompts no more than the requests "
                  "that decode, or 32 where these are fewer")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--cache-tokens", setup.cache_tokens,
                  "tokens that the cache holds; 0: a context for each request, within 1 GiB")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--max-prefixes", setup.max_prefixes,
                  "ended requests that stay in the cache while it has room: a request that begins "
                  "with the same tokens reads only what follows; 0: none")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--draft-tokens", setup.draft_tokens,
                  "tokens that a step tries ahead for a request, found in its own text: the same "
                  "tokens in fewer steps; 0: none")
      ->check(CLI::Range(0, 15))
      ->capture_default_str();
  AddStepsInFlightFlag(command, setup.steps_in_flight);
  command
      .add_option("--max-logprobs", setup.max_logprobs,
                  "the longest list of log-probabilities of a request; -1 is the vocabulary")
      ->check(CLI::Range(int64_t{-1}, kMaxVocab))
      ->capture_default_str();
  AddGrammarLibraryFlag(command, setup.grammar_library);
  command.add_flag("--quiet", setup.is_quiet, "print nothing but errors on standard error");
}

ModelEngine::ModelEngine(const EngineSetup& setup)
    : setup_(setup),
      progress_(setup.is_quiet, setup.relays_progress),
      pool_threads_(ThreadsFor(setup.source)),
      pool_(pool_threads_),
      checkpoint_(OpenModel(setup.source, pool_.parallel(), progress_)),
      runner_(MakeRunner(setup, checkpoint_, pool_.parallel(), progress_)) {
  grammars_ = MakeGrammarService(setup.grammar_library, checkpoint_.tokenizer(),
                                 checkpoint_.end_tokens(), checkpoint_.vocab());
  StepRunner* runner = runner_.get();
  if (setup.steps_in_flight > 0) {
    thread_ = std::make_unique<RunnerThread>(*runner_);
    runner = thread_.get();
  }
  engine_ = std::make_unique<Engine>(*runner, checkpoint_.tokenizer(),
                                     EngineOptions{.steps_in_flight = setup.steps_in_flight,
                                                   .step_tokens = setup.step_tokens,
                                                   .grammars = grammars_.get()});
}

EngineInfo ModelEngine::Info() const {
  const std::span<const int32_t> ends = checkpoint_.end_tokens();
  return {.model = setup_.source.ShortName(),
          .version = std::string(kVersionString),
          .tokenizer_hash = TokenizerHash(checkpoint_.tokenizer()),
          .end_tokens = {ends.begin(), ends.end()},
          .has_text = true,
          .has_grammars = grammars_ != nullptr};
}

}  // namespace sluice::cli
