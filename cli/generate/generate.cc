#include "cli/generate/generate.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "cli/generate/generate_view.h"
#include "cli/interrupt.h"
#include "cli/replay/record_file.h"
#ifdef SLUICE_HAS_LINK
#include "cli/generate/generate_engine.h"
#endif

namespace sluice::cli {
namespace {

class Stopwatch {
 public:
  int64_t Nanoseconds() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void Take(std::span<const ChoiceStep> steps, std::vector<ChoiceState>& choices) {
  for (const ChoiceStep& step : steps) {
    ChoiceState& choice = choices[static_cast<size_t>(step.choice)];
    choice.text += step.text;
    choice.end = step.end;
    choice.delta = step.delta;
    choice.last = step.token;
  }
}

void Record(const GenerateOptions& options, const Generation& generation,
            std::span<const ChoiceState> choices, RecordFile& file) {
  if (!file.is_open()) return;
  const GenerationOptions& asked = options.generation;
  const Generator& generator = generation.generator();
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::span<const int32_t> ids = generator.OutputTokens(static_cast<int32_t>(i));
    file.Add({.request = {.params = generator.params(),
                          .prompt = generation.prompt().ids,
                          .choice = static_cast<uint32_t>(i),
                          .max_tokens = asked.max_tokens,
                          .prompt_logprobs = i == 0 ? asked.prompt_logprobs : std::nullopt,
                          .text = {.stops = asked.stops, .include_stop = asked.include_stop},
                          .grammar = asked.grammar,
                          .thinking = generation.thinking()},
              .result = RequestResult{.text = choices[i].text,
                                      .ids = {ids.begin(), ids.end()},
                                      .end = std::string(Name(choices[i].end)),
                                      .prompt_tokens = std::ssize(generation.prompt().ids),
                                      .output_tokens = std::ssize(ids)}});
  }
  file.Close();
}

// What is wrong with a grammar names the flag that gave it.
std::unique_ptr<Generation> MakeGeneration(const GenerateOptions& options,
                                           const GenerationReports& reports) {
  const std::optional<OutputGrammar>& grammar = options.generation.grammar;
  try {
    return std::make_unique<Generation>(options.generation, reports);
  } catch (const Error& error) {
    const std::string_view flag =
        grammar.has_value() ? FlagOf(options.grammar, *grammar, error.parameter()) : "";
    if (flag.empty()) throw;
    throw Error(error.code(), "--" + std::string(flag), error.value(), error.allowed());
  }
}

#ifdef SLUICE_HAS_LINK
// Flags of what the engine decides are refused here.
void AddEngineFlags(CLI::App& command, GenerateOptions& options) {
  CLI::Option* const engine =
      command
          .add_option("--engine", options.engine,
                      "run on this engine (see sluice engine); --model gives the tokenizer")
          ->type_name("ENDPOINT");
  for (const char* flag : {"--weights", "--threads", "--head", "--head-file", "--backend",
                           "--show-candidates", "--json-lines", "--grammar-library"}) {
    engine->excludes(command.get_option(flag));
  }
  command
      .add_option_function<std::string>(
          "--stop-at",
          [&options](const std::string& name) { options.stop_at = StopAtByName(name); },
          "with --engine: where stops are found; the text is the same")
      ->default_str("engine")
      ->type_name(ChoiceType({"engine", "frontend"}))
      ->needs(engine);
}
#endif

}  // namespace

void AddGenerate(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command =
      app.add_subcommand("generate", "generate text from a prompt, token by token");
  const auto options = std::make_shared<GenerateOptions>();
  AddGenerationFlags(*command, options->generation, 0);
  command
      ->add_option("-n,--choices", options->generation.choices,
                   "generate this many texts from the prompt, decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--prompt-logprobs", options->generation.prompt_logprobs,
                   "with --json: the log-probability and rank of every token of the prompt but the "
                   "first, and this many of the most likely tokens in its place")
      ->check(CLI::Range(0, INT32_MAX - 1));
  command
      ->add_option(
          "--thinking-budget", options->generation.thinking_tokens,
          "end the reasoning of the model after this many tokens; its markers are those of "
          "the chat template, or <think> and </think>")
      ->check(CLI::Range(0, INT32_MAX));
  AddGrammarFlags(*command, options->grammar);
  AddGrammarLibraryFlag(*command, options->generation.grammar_library);
  command->add_flag("--echo", options->echoes_prompt, "write the prompt before the text");
  CLI::Option* const candidates =
      command
          ->add_option(
              "--show-candidates", options->show_candidates,
              "show this many likely tokens at every step, and the rule that kept or dropped each")
          ->check(CLI::Range(0, 1000))
          ->capture_default_str();
  // What a grammar or a budget forbids is no rule of the sampler.
  for (const char* flag : {"--json-schema", "--json-object", "--grammar", "--regex", "--choice",
                           "--thinking-budget"}) {
    candidates->excludes(command->get_option(flag));
  }
  CLI::Option* const json = command->add_flag("--json", options->as_json, "write one JSON object");
  command
      ->add_flag("--json-lines", options->as_json_lines,
                 "write a JSON object for every token, then the one of --json")
      ->excludes(json);
  command
      ->add_option("--record", options->record_path,
                   "append a line for each choice to this file: its request and its result")
      ->type_name("FILE");
#ifdef SLUICE_HAS_LINK
  AddEngineFlags(*command, *options);
#endif
  command->callback([&action, options] {
    action = [options] {
      options->generation.grammar = GrammarOf(options->grammar);
#ifdef SLUICE_HAS_LINK
      if (!options->engine.empty()) {
        RunGenerateThroughEngine(*options, std::cout, Terminal::Detect());
        return;
      }
#endif
      RunGenerate(*options, std::cout, Terminal::Detect());
    };
  });
}

void RunGenerate(const GenerateOptions& options, std::ostream& out, const Terminal& terminal) {
  const bool shows_candidates = options.show_candidates > 0;
  RecordFile record(options.record_path);
  const auto made = MakeGeneration(
      options,
      {.logits = shows_candidates, .cuts = options.as_json_lines, .masses = shows_candidates});
  Generation& generation = *made;
  SayTruncated(generation.prompt(), options.generation);
  const InterruptGuard interrupt;
  generation.Prefill(interrupt);

  Generator& generator = generation.generator();
  const auto view = MakeGenerateView(options, generation, out, terminal);
  std::vector<ChoiceState> choices(static_cast<size_t>(options.generation.choices));
  GenerateTimes times;
  int64_t& shown_ns = shows_candidates ? times.show_ns : times.write_ns;
  const auto show = [&](std::span<const ChoiceStep> steps) {
    const Stopwatch stopwatch;
    Take(steps, choices);
    view->Show(steps, choices);
    shown_ns += stopwatch.Nanoseconds();
  };
  const Stopwatch stopwatch;
  view->Begin();
  // A write that fails means that its reader is gone.
  while (generator.live_choices() > 0 && interrupt.signal() == 0 && out) show(generator.Step());
  if (!out) return;
  if (generator.live_choices() > 0) show(generator.Cancel());
  times.decode_ns = stopwatch.Nanoseconds();
  view->End(choices, times);
  Record(options, generation, choices, record);
  interrupt.ThrowIfInterrupted();
  for (const ChoiceState& choice : choices) {
    if (choice.end != GenerationEnd::kStatus) continue;
    throw std::runtime_error("a row gave no token: " + std::string(Name(choice.last.status)));
  }
}

}  // namespace sluice::cli
