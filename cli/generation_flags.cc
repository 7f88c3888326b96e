#include "cli/generation_flags.h"

#include <CLI/CLI.hpp>

#include "cli/param_flags.h"

namespace sluice::cli {

void AddGenerationFlags(CLI::App& command, GenerationOptions& options, int64_t least_tokens) {
  CLI::Option* const prompt =
      command
          .add_option("PROMPT", options.prompt, "what the text begins with; - is standard input")
          ->type_name("TEXT");
  command.add_option("--prompt-file", options.prompt_path, "a file that has the prompt")
      ->type_name("FILE")
      ->excludes(prompt);
  const auto start = [&options] { options.params = StartingParamsOf(options.source); };
  AddModelFlags(command, options.source, start);
  AddParamDefaultsFlag(command, options.source, start);
  command.add_flag("--chat", options.is_chat,
                   "the prompt is a user's message, put into the model's chat template");
  command.add_option("--system", options.system, "with --chat: a system message in front of it")
      ->type_name("TEXT");
  command.add_flag("!--no-special-tokens", options.adds_special_tokens,
                   "put nothing around the prompt");
  command.add_flag("--parse-special-tokens", options.parses_special_tokens,
                   "special tokens that the prompt spells out are tokens");
  command.add_flag("--truncate-prompt", options.truncates_prompt,
                   "leave out the beginning of a prompt that is too long for the model");

  command.add_option("--max-tokens", options.max_tokens, "tokens to generate, at most")
      ->check(CLI::Range(least_tokens, int64_t{INT32_MAX}))
      ->capture_default_str();
  command
      .add_option("--stop", options.stops, "a text that ends the output; may be given many times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.add_flag("--include-stop", options.include_stop, "the output ends behind the stop");
  command.add_flag("--ignore-eos", options.ignores_end,
                   "go on behind the tokens that end an output");

  command
      .add_option_function<std::string>(
          "--head", [&options](const std::string& name) { options.head = HeadChoiceByName(name); },
          "who computes logits; the tokens are the same")
      ->default_str("auto")
      ->type_name(ChoiceType({"auto", "dense", "dither4", "strict"}));
  AddBackendFlag(command, options.backend);
  command.add_flag("--quiet", options.is_quiet, "nothing on standard error but errors");
  AddParamFlags(command, options.params);
  command.footer(
      "Sampling starts from the model's generation_config.json, if there is one; flags come "
      "first.\n"
      "Every sampling flag is also an environment variable: --top-k is SLUICE_TOP_K.");
}

}  // namespace sluice::cli
