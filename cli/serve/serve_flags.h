// The flags of a server, whatever computes its tokens.
#pragma once

#include "sluice/server.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

struct ServeOptions;

inline constexpr const char* kKeyVariable = "SLUICE_API_KEY";

// --host, --port, --tls-cert, --tls-key, --unix-socket
void AddListenFlags(CLI::App& command, ServeOptions& options);
// --threads
void AddThreadsFlag(CLI::App& command, ServerOptions& server);
// --chat-template, --tool-format, --reasoning-format, --reasoning-budget
void AddTemplateFlags(CLI::App& command, ServeOptions& options);
// Keys, origins, limits and the log of requests. The variable has a key, too.
void AddAccessFlags(CLI::App& command, ServeOptions& options, const char* key_variable);
// --drain-timeout
void AddDrainFlag(CLI::App& command, ServerOptions& server);

// Removes the variable, which an engine does not need. Throws Error where it is set and empty: it
// is meant as a key, and would require none.
void TakeKeyVariable(const CLI::App& command, const char* variable);

}  // namespace sluice::cli
