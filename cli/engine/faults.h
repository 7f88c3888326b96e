// What can go wrong with an engine, made to happen: for tests and demonstrations of what frontends
// make of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/engine/engine_endpoint.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

struct FaultOptions {
  std::vector<std::string> stalls;  // "STEP:MS"
  int64_t kill_at = -1;             // the process, before this step
  int64_t fail_at = -1;             // the runner, in this step
  // One of so many frames with tokens; 0: none.
  int64_t late = 0;       // is held back and sent after the next one
  int64_t duplicate = 0;  // is sent twice
  int64_t drop = 0;
  int64_t truncate = 0;
  int64_t wrong_epoch = 0;
  uint64_t seed = 0;  // which frames
};

void AddFaultFlags(CLI::App& command, FaultOptions& options);

// For ScriptOptions::before_step. Throws Error for a stall that is no STEP:MS.
std::function<void(int64_t step)> StepFaults(const FaultOptions& options);

// For EngineServerOptions::on_frame; empty when no frame is hurt. The same seed hurts the same
// frames, counted from the first with tokens.
FrameFault FrameFaults(const FaultOptions& options);

}  // namespace sluice::cli
