// vLLM's own flags where Sluice serves before its engine: what they mean here, and which it cannot
// honour.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// The form of calls or of reasoning that a parser of vLLM reads, by its name there or here. Throws
// for one that Sluice does not read.
std::string ToolFormatOfParser(const std::string& parser);
std::string ReasoningFormatOfParser(const std::string& parser);

// --allowed-origins: one, or a list in JSON.
std::vector<std::string> OriginsOf(const std::string& text);

// The words of a command line that the engine gets. Throws for flags of a server that Sluice does
// not have, as answers would be others without a word, and for its own in another spelling.
std::vector<std::string> EngineWords(const CLI::App& command, const std::vector<std::string>& left);

}  // namespace sluice::cli
