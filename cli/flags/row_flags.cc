#include "cli/flags/row_flags.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/flags/choices.h"
#include "cli/flags/param_flags.h"
#include "cli/flags/param_text.h"

namespace sluice::cli {
namespace {

template <typename T>
CLI::Option* AddValue(CLI::App& command, const char* name, const char* type, const char* help,
                      T& value) {
  return command
      .add_option_function<std::string>(
          FlagName(name), [name, &value](const std::string& text) { FromText(name, text, value); },
          help)
      ->default_str(ToText(value))
      ->type_name(type);
}

template <typename Infos>
std::string NamesOf(const Infos& infos, std::vector<std::string> names) {
  for (const auto& info : infos) names.emplace_back(info.name);
  return ChoiceType(names);
}

}  // namespace

void AddBackendFlag(CLI::App& command, Backend& backend) {
  command
      .add_option_function<std::string>(
          "--backend", [&backend](const std::string& name) { backend = BackendByName(name); },
          "which backend computes (see sluice inspect backends)")
      ->default_str("auto")
      ->type_name(NamesOf(Backends(), {"auto", "cpu"}));
}

void AddExecutionFlags(CLI::App& command, ExecutionOptions& options) {
  AddBackendFlag(command, options.backend);
  command
      .add_option_function<std::string>(
          "--algorithm",
          [&options](const std::string& name) {
            options.algorithm = research::AlgorithmByName(name);
          },
          "how the vector backends select, as the core or a paper does; the result is the same")
      ->default_str("auto")
      ->type_name(NamesOf(research::Algorithms(), {}));
}

void AddRowFlags(CLI::App& command, RowOptions& options, bool is_required) {
  command.add_option("FILE", options.path, "a .npy file of logits: float32, float16 or bfloat16")
      ->type_name("FILE")
      ->required(is_required);
  command.add_flag("--json", options.as_json, "write one JSON object");
  AddValue(command, "row", "INT", "the row of the file, from 0", options.row);
  AddValue(command, "prompt_ids", "ID,ID", "tokens of the prompt, for penalties", options.prompt);
  AddValue(command, "output_ids", "ID,ID", "tokens generated so far", options.output);
  AddValue(command, "position", "INT",
           "the token's position, on which its noise depends; without it, the number of tokens of "
           "the prompt and the output",
           options.position);
  AddValue(command, "choice", "INT", "the number of the completion, on which the noise depends",
           options.choice);
  AddValue(command, "forced", "ID", "a token that must be drawn; -1 is none", options.forced);
  AddExecutionFlags(command, options.execution);
  AddParamFlags(command, options.params);
  command.get_option("--seed")
      ->description("the same seed draws the same token")
      ->default_str(ToText(kRowSeed));
  command.footer("Every sampling flag is also an environment variable: --top-k is SLUICE_TOP_K.");
}

}  // namespace sluice::cli
