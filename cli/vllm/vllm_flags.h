// vLLM's own flags where Sluice serves before its engine: what they mean here, and which it cannot
// honour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/client.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// The form of calls or of reasoning that a parser of vLLM reads, by its name there or here. Throws
// for one that Sluice does not read.
std::string ToolFormatOfParser(const std::string& parser);
std::string ReasoningFormatOfParser(const std::string& parser);

// --lora-modules: NAME=PATH.
LoraAdapter AdapterOf(const std::string& text);

// --allowed-origins: one, or a list in JSON.
std::vector<std::string> OriginsOf(const std::string& text);

// vLLM's name of the parser that the engine gets, where this is a name there or here; empty: none.
std::string ReasoningParserOfEngine(const std::string& parser);

struct EngineLine {
  std::vector<std::string> words;  // that the engine gets
  std::vector<std::string> notes;  // flags of a server that have no effect
};
// Throws for flags of a server that Sluice does not have, and for its own in another spelling.
EngineLine EngineWords(const CLI::App& command, const std::vector<std::string>& left);

}  // namespace sluice::cli
