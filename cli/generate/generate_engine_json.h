// sluice generate --engine --json.
#pragma once

#include <ostream>
#include <span>

#include "cli/engine/client_output.h"
#include "cli/generate/generate.h"
#include "cli/generate/prompt.h"

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
