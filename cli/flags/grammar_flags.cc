#include "cli/flags/grammar_flags.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "cli/files/file.h"
#include "grammar/language.h"

namespace sluice::cli {
namespace {

// The parameter of an error, as NamedAsGiven makes a flag of it.
std::string_view ParameterOf(const GrammarFlags& flags) {
  if (!flags.schema_path.empty()) return "json_schema";
  if (flags.is_json_object) return "json_object";
  if (!flags.grammar_path.empty()) return "grammar";
  return flags.regex.has_value() ? "regex" : "choice";
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
  if (!flags.schema_path.empty()) {
    return OutputGrammar{.kind = GrammarKind::kJsonSchema,
                         .text = ReadTextFile("json_schema", flags.schema_path)};
  }
  if (flags.is_json_object) return OutputGrammar{};
  if (!flags.grammar_path.empty()) {
    std::string text = ReadTextFile("grammar", flags.grammar_path);
    const GrammarKind kind = grammar::LanguageOf(text);
    return OutputGrammar{.kind = kind, .text = std::move(text)};
  }
  if (flags.regex.has_value()) {
    return OutputGrammar{.kind = GrammarKind::kRegex, .text = *flags.regex};
  }
  if (flags.choices.empty()) return std::nullopt;
  return OutputGrammar{.kind = GrammarKind::kEbnf, .text = ChoiceGrammar(flags.choices)};
}

Error NamedByFlag(const GrammarFlags& flags, const OutputGrammar& grammar, const Error& error) {
  const std::string& parameter = error.parameter();
  const std::string_view name = Name(grammar.kind);
  if (parameter != name && !parameter.starts_with(std::string(name) + ".")) return error;
  return Error(error.code(), std::string(ParameterOf(flags)), error.value(), error.allowed());
}

void AddGrammarLibraryFlag(CLI::App& command, std::string& folder) {
  command
      .add_option("--grammar-library", folder,
                  "the folder of xgrammar, for outputs with a grammar: a virtual environment, its "
                  "site-packages or one with both libraries. Also SLUICE_GRAMMAR_LIBRARY; without "
                  "it, the folders around the program")
      ->type_name("DIR");
}

std::string GrammarLibraryFolder(const std::string& folder) {
  const char* const variable = std::getenv("SLUICE_GRAMMAR_LIBRARY");
  return folder.empty() && variable != nullptr ? variable : folder;
}

}  // namespace sluice::cli
