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
  std::optional<std::string> schema_path;
  bool is_json_object = false;
  std::optional<std::string> grammar_path;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
};

// --json-schema, --json-object, --grammar, --regex and --choice.
void AddGrammarFlags(CLI::App& command, GrammarFlags& flags);

// Reads the file of the flag.
std::optional<OutputGrammar> GrammarOf(const GrammarFlags& flags);

// The flag that gave the grammar, where an error's parameter is that grammar: "json-schema"; or
// else empty.
std::string_view FlagOf(const GrammarFlags& flags, const OutputGrammar& grammar,
                        std::string_view parameter);

// --grammar-library.
void AddGrammarLibraryFlag(CLI::App& command, std::string& folder);
// Of that flag; where it is empty, of SLUICE_GRAMMAR_LIBRARY; or else one that is installed. The
// first throws where there is none, the second only where a folder is given.
GrammarLibrary OpenGrammarLibrary(const std::string& folder);
std::optional<GrammarLibrary> FindGrammarLibrary(const std::string& folder);

}  // namespace sluice::cli
