// sluice generate --engine --json.
#pragma once

#include <ostream>
#include <span>

#include "cli/client_output.h"
#include "cli/generate.h"
#include "cli/prompt.h"

namespace sluice::cli {

struct EngineGenerationResult {
  const GenerateOptions& options;
  const Prompt& prompt;
  const Client& client;
  std::span<const EngineRequest> requests;  // of the choices
  std::span<const RequestOutput> outputs;
  int64_t wall_ns;
};

// One object, with the fields that a generation without an engine has where they are known here.
void WriteEngineGeneration(const EngineGenerationResult& result, std::ostream& out);

}  // namespace sluice::cli
