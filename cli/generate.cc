#include "cli/generate.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "cli/generate_view.h"
#include "cli/interrupt.h"

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

}  // namespace

void AddGenerate(CLI::App& app, std::function<void()>& action) {
  CLI::App* const command = app.add_subcommand("generate", "text from a model, as it comes");
  const auto options = std::make_shared<GenerateOptions>();
  AddGenerationFlags(*command, options->generation);
  command
      ->add_option("-n,--choices", options->generation.choices,
                   "texts for the one prompt, decoded together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--echo", options->echoes_prompt, "write the prompt in front of the text");
  command
      ->add_option("--show-candidates", options->show_candidates,
                   "show so many likely tokens for every token, and what became of each")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  CLI::Option* const json = command->add_flag("--json", options->as_json, "write one JSON object");
  command
      ->add_flag("--json-lines", options->as_json_lines,
                 "write a JSON object for every token, and the one of --json behind them")
      ->excludes(json);
  command->callback([&action, options] {
    action = [options] { RunGenerate(*options, std::cout, Terminal::Detect()); };
  });
}

void RunGenerate(const GenerateOptions& options, std::ostream& out, const Terminal& terminal) {
  const bool shows_candidates = options.show_candidates > 0;
  Generation generation(options.generation,
                        {.logits = shows_candidates, .masses = shows_candidates});
  if (generation.truncated_tokens() > 0 && !options.generation.is_quiet) {
    std::cerr << "sluice: " << generation.truncated_tokens()
              << " tokens of the prompt were left out\n";
  }
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
  // Nobody reads on when a write has failed.
  while (generator.live_choices() > 0 && interrupt.signal() == 0 && out) show(generator.Step());
  if (!out) return;
  if (generator.live_choices() > 0) show(generator.Cancel());
  times.decode_ns = stopwatch.Nanoseconds();
  view->End(choices, times);
  interrupt.ThrowIfInterrupted();
  for (const ChoiceState& choice : choices) {
    if (choice.end != GenerationEnd::kStatus) continue;
    throw std::runtime_error("a row gave no token: " + std::string(Name(choice.last.status)));
  }
}

}  // namespace sluice::cli
