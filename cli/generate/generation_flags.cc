#include "cli/generate/generation_flags.h"

#include <CLI/CLI.hpp>

#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"

namespace sluice::cli {

void AddGenerationFlags(CLI::App& command, GenerationOptions& options, int64_t least_tokens) {
  CLI::Option* const prompt =
      command.add_option("PROMPT", options.prompt, "a text to continue; - is standard input")
          ->type_name("TEXT");
  command.add_option("--prompt-file", options.prompt_path, "read the prompt from this file")
      ->type_name("FILE")
      ->excludes(prompt);
  const auto start = [&command, &options] {
    options.params = StartingParamsOf(options.source);
    ShowParamDefaults(command, options.params);
  };
  AddModelFlags(command, options.source, start);
  AddParamDefaultsFlag(command, options.source, start);
  command.add_flag("--chat", options.is_chat,
                   "take the prompt as a user's message, within the model's chat template");
  command.add_option("--system", options.system, "with --chat: a system message before it")
      ->type_name("TEXT");
  command.add_flag("!--no-special-tokens", options.adds_special_tokens,
                   "add no special tokens around the prompt");
  command.add_flag("--parse-special-tokens", options.parses_special_tokens,
                   "turn special tokens that the prompt spells out into those tokens");
  command.add_flag("--truncate-prompt", options.truncates_prompt,
                   "drop the beginning of a prompt that is too long for the model");

  command.add_option("--max-tokens", options.max_tokens, "generate at most this many tokens")
      ->check(CLI::Range(least_tokens, int64_t{INT32_MAX}))
      ->capture_default_str();
  command
      .add_option("--stop", options.stops, "end the output at this text; may be given many times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_flag("--include-stop", options.include_stop,
                   "keep the stop text at the end of the output");
  command.add_flag("--ignore-eos", options.ignores_end,
                   "go on after the tokens that end an output");

  AddHeadFlags(command, options.head, options.head_file);
  AddBackendFlag(command, options.backend);
  command.add_flag("--quiet", options.is_quiet, "print nothing but errors on standard error");
  AddParamFlags(command, options.params);
  command.footer(
      "The defaults of sampling come from the model's generation_config.json, where it has one: "
      "those above are of the built-in model, or of --model where that is given too. Flags "
      "override them.\nEvery sampling flag is also an environment variable: --top-k is "
      "SLUICE_TOP_K.");
}

}  // namespace sluice::cli
