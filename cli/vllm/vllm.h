// sluice vllm: an engine of vLLM, and the server before it, by one command.
#pragma once

#include <functional>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// Adds the command. `action` becomes what the command line selects.
void AddVllm(CLI::App& app, std::function<void()>& action);

}  // namespace sluice::cli
