// The log-probabilities that --logprobs requests.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "cli/terminal.h"
#include "json/writer.h"
#include "sluice/logprobs.hpp"

namespace sluice::cli {

struct LogprobReport {
  LogprobMode mode = LogprobMode::kRawLogprobs;
  std::vector<int32_t> ids;  // the drawn token, then the most likely ones; empty: not requested
  std::vector<float> values;
  int32_t rank = 0;  // of the drawn one
};

// Of a row that gave a token; raw and adjusted are its values before stage 3 and after stage 9.
LogprobReport MakeLogprobs(const LogitsView& raw, const LogitsView& adjusted,
                           const SamplingParams& params, TokenResult token, Backend backend);

// Prints nothing when nothing was requested.
void PrintLogprobs(const LogprobReport& report, std::ostream& out, const Terminal& terminal);
void WriteLogprobs(JsonWriter& json, const LogprobReport& report);

}  // namespace sluice::cli
