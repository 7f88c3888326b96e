#include "cli/engine/mock_engine.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>

#include "cli/engine/endpoint.h"
#include "cli/engine/engine_setup.h"
#include "cli/files/file.h"
#include "cli/flags/grammar_flags.h"
#include "cli/serve/stop_signal.h"
#include "cli/text.h"
#include "sluice/error.hpp"
#include "sluice/script_runner.hpp"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

struct Vocabulary {
  Tokenizer tokenizer;
  std::vector<int32_t> end_tokens;
};

Vocabulary OpenVocabulary(const std::string& path) {
  if (!path.empty()) {
    CheckIsFile(path);
    return {Tokenizer::FromFile(path), {}};
  }
  const ModelText built_in = OpenModelText({});
  return {built_in.tokenizer(), {built_in.end_tokens().begin(), built_in.end_tokens().end()}};
}

// The script's text, then the token that ends an output.
std::vector<int32_t> ScriptTokens(const MockEngineOptions& options, const Vocabulary& vocabulary) {
  if (options.script_path.empty()) {
    for (const int32_t id : options.tokens) {
      if (id >= 0 && id < vocabulary.tokenizer.size()) continue;
      throw Error(ErrorCode::kInvalidValue, "tokens", Number(id),
                  "ids in [0, " + Number(vocabulary.tokenizer.size() - 1) + "]");
    }
    return options.tokens;
  }
  std::vector<int32_t> tokens = vocabulary.tokenizer.Encode(
      ReadTextFile("script", options.script_path), {.add_special_tokens = false});
  if (!vocabulary.end_tokens.empty()) tokens.push_back(vocabulary.end_tokens[0]);
  if (tokens.empty()) {
    throw Error(ErrorCode::kInvalidValue, "script", Quoted(options.script_path) + ", without text",
                "a file that has text");
  }
  return tokens;
}

}  // namespace

void AddMockEngine(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command =
      app.add_subcommand("mock-engine", "run an engine without a model, to test frontends");
  const auto options = std::make_shared<MockEngineOptions>();
  AddEndpointFlags(*command, options->endpoint);
  CLI::Option* const script =
      command
          ->add_option("--script", options->script_path,
                       "give every request this text, then the end of the output")
          ->type_name("FILE");
  CLI::Option* const tokens = command
                                  ->add_option("--tokens", options->tokens,
                                               "give every request these token ids, over and over")
                                  ->delimiter(',')
                                  ->type_name("ID,ID")
                                  ->excludes(script);
  command
      ->add_flag("--echo", options->echoes,
                 "give every request its prompt, over and over; the default")
      ->excludes(script)
      ->excludes(tokens);
  command
      ->add_option(
          "--tokenizer", options->tokenizer_path,
          "a tokenizer.json, tokenizer.model or *.tiktoken; without it, that of the built-in model")
      ->type_name("FILE");
  CLI::Option* const rate =
      command->add_option("--rate", options->rate, "steps a second; 0 is as many as possible")
          ->check(CLI::Range(0.0, 1e9))
          ->capture_default_str();
  command
      ->add_option_function<double>(
          "--step-us",
          [options = options.get()](double us) { options->rate = us > 0 ? 1e6 / us : 0; },
          "microseconds for each step, instead of --rate")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("FLOAT")
      ->excludes(rate);
  command
      ->add_option("--batch", options->max_requests,
                   "run at most this many requests at once; others wait")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--step-tokens", options->step_tokens, "tokens that one step reads at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--context", options->context,
                   "tokens of a request at most, prompt and output together")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--burst", options->burst, "give a request this many tokens in each step")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  AddStepsInFlightFlag(*command, options->steps_in_flight);
  AddGrammarLibraryFlag(*command, options->grammar_library);
  command->add_flag("--quiet", options->endpoint.is_quiet,
                    "print nothing but errors on standard error");
  AddFaultFlags(*command, options->faults);
  command->callback(
      [&action, options] { action = [options] { RunMockEngine(*options, std::cout); }; });
}

void RunMockEngine(const MockEngineOptions& options, std::ostream& out) {
  IgnoreHarmlessSignals();
  CheckEndpoint("listen", options.endpoint.listen);
  const Vocabulary vocabulary = OpenVocabulary(options.tokenizer_path);
  ScriptOptions script;
  script.vocab = vocabulary.tokenizer.size();
  script.tokens = ScriptTokens(options, vocabulary);
  script.echo = script.tokens.empty();
  script.context = options.context;
  script.max_requests = options.max_requests;
  script.max_step_tokens = options.step_tokens;
  script.from_prompt = false;
  script.burst = options.burst;
  if (options.rate > 0) {
    script.step_time = std::chrono::nanoseconds(static_cast<int64_t>(1e9 / options.rate));
  }
  script.before_step = StepFaults(options.faults);
  ScriptRunner runner(std::move(script));
  const auto grammars = MakeGrammarService(options.grammar_library, vocabulary.tokenizer,
                                           vocabulary.end_tokens, vocabulary.tokenizer.size());
  Engine engine(runner, vocabulary.tokenizer,
                {.steps_in_flight = options.steps_in_flight, .grammars = grammars.get()});
  ServeEngine(engine,
              {.model = "mock",
               .version = std::string(kVersionString),
               .tokenizer_hash = TokenizerHash(vocabulary.tokenizer),
               .end_tokens = vocabulary.end_tokens,
               .has_text = true,
               .has_grammars = grammars != nullptr},
              options.endpoint, out, FrameFaults(options.faults));
}

}  // namespace sluice::cli
