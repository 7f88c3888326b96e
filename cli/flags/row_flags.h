// What explain and inspect FILE share: a row of a file, its request's parameters, and how it is
// computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sluice/execution.hpp"
#include "sluice/params.hpp"
#include "sluice/research/algorithms.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// How a command selects.
struct ExecutionOptions {
  Backend backend = Backend::kAuto;
  research::Algorithm algorithm = research::Algorithm::kAuto;
};

void AddBackendFlag(CLI::App& command, Backend& backend);

// --backend and --algorithm.
void AddExecutionFlags(CLI::App& command, ExecutionOptions& options);

constexpr uint64_t kRowSeed = 0;  // of a row with a request that has none

struct RowOptions {
  std::string path;
  int64_t row = 0;
  SamplingParams params;
  TokenIds prompt;
  TokenIds output;
  std::optional<uint32_t> position;  // as many as prompt and output have, if not given
  uint32_t choice = 0;
  int32_t forced = -1;
  ExecutionOptions execution;
  bool as_json = false;
};

// Flags and the positional FILE, which `is_required` or may be missing.
void AddRowFlags(CLI::App& command, RowOptions& options, bool is_required);

}  // namespace sluice::cli
