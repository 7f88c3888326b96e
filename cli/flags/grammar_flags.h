// The flags that give an output its grammar, and the folder of the grammar engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sluice/engine_messages.hpp"
#include "sluice/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// At most one of these is given.
struct GrammarFlags {
  std::string schema_path;
  bool is_json_object = false;
  std::string grammar_path;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
};

// --json-schema, --json-object, --grammar, --regex and --choice.
void AddGrammarFlags(CLI::App& command, GrammarFlags& flags);

// Reads the file of the flag.
std::optional<OutputGrammar> GrammarOf(const GrammarFlags& flags);

// An error of that grammar, by the flag that gave it.
Error NamedByFlag(const GrammarFlags& flags, const OutputGrammar& grammar, const Error& error);

// --grammar-library.
void AddGrammarLibraryFlag(CLI::App& command, std::string& folder);
// Of the flag, or of SLUICE_GRAMMAR_LIBRARY without it; empty: of neither.
std::string GrammarLibraryFolder(const std::string& folder);

}  // namespace sluice::cli
