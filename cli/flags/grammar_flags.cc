#include "cli/flags/grammar_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "cli/files/file.h"
#include "grammar/language.h"

namespace sluice::cli {
namespace {

constexpr const char* kVariable = "SLUICE_GRAMMAR_LIBRARY";

std::string VariableFolder() {
  const char* const folder = std::getenv(kVariable);
  return folder == nullptr ? "" : folder;
}

}  // namespace

void AddGrammarFlags(CLI::App& command, GrammarFlags& flags) {
  CLI::Option* const options[] = {
      command
          .add_option("--json-schema", flags.schema_path,
                      "give the output as JSON that matches the schema in this file")
          ->type_name("FILE"),
      command.add_flag("--json-object", flags.is_json_object, "give the output as a JSON object"),
      command
          .add_option("--grammar", flags.grammar_path,
                      "give an output that matches the grammar in this file: GBNF of llama.cpp "
                      "with the rule root, or Lark with the rule start")
          ->type_name("FILE"),
      command
          .add_option("--regex", flags.regex,
                      "give an output that matches this regular expression as a whole")
          ->type_name("TEXT"),
      command
          .add_option("--choice", flags.choices,
                      "give one of these texts as the output; may be given many times")
          ->type_name("TEXT")
          ->allow_extra_args(false)};
  for (size_t i = 1; i < std::size(options); ++i) {
    for (size_t j = 0; j < i; ++j) options[i]->excludes(options[j]);
  }
}

std::optional<OutputGrammar> GrammarOf(const GrammarFlags& flags) {
  if (flags.schema_path.has_value()) {
    return OutputGrammar{.kind = GrammarKind::kJsonSchema,
                         .text = ReadTextFile("json_schema", *flags.schema_path)};
  }
  if (flags.is_json_object) return OutputGrammar{};
  if (flags.grammar_path.has_value()) {
    std::string text = ReadTextFile("grammar", *flags.grammar_path);
    const GrammarKind kind = grammar::LanguageOf(text);
    return OutputGrammar{.kind = kind, .text = std::move(text)};
  }
  if (flags.regex.has_value()) {
    return OutputGrammar{.kind = GrammarKind::kRegex, .text = *flags.regex};
  }
  if (flags.choices.empty()) return std::nullopt;
  return OutputGrammar{.kind = GrammarKind::kEbnf, .text = ChoiceGrammar(flags.choices)};
}

std::string_view FlagOf(const GrammarFlags& flags, const OutputGrammar& grammar,
                        std::string_view parameter) {
  // "json_schema", or "json_schema.size()"
  if (parameter.substr(0, parameter.find('.')) != Name(grammar.kind)) return "";
  if (flags.schema_path.has_value()) return "json-schema";
  if (flags.is_json_object) return "json-object";
  if (flags.grammar_path.has_value()) return "grammar";
  return flags.regex.has_value() ? "regex" : "choice";
}

void AddGrammarLibraryFlag(CLI::App& command, std::string& folder) {
  command
      .add_option("--grammar-library", folder,
                  "the folder of xgrammar, for outputs with a grammar: a virtual environment, its "
                  "site-packages or one with both libraries. Also SLUICE_GRAMMAR_LIBRARY; without "
                  "it, the folders around the program")
      ->type_name("DIR");
}

GrammarLibrary OpenGrammarLibrary(const std::string& folder) {
  const std::string variable = folder.empty() ? VariableFolder() : "";
  try {
    return GrammarLibrary::Load(folder.empty() ? variable : folder);
  } catch (const Error& error) {
    if (variable.empty()) throw;
    throw Error(error.code(), kVariable, error.value(), error.allowed());
  }
}

std::optional<GrammarLibrary> FindGrammarLibrary(const std::string& folder) {
  if (!folder.empty() || !VariableFolder().empty()) return OpenGrammarLibrary(folder);
  try {
    return OpenGrammarLibrary(folder);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnavailable) throw;
    return std::nullopt;
  }
}

}  // namespace sluice::cli
