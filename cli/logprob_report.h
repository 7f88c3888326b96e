// The log-probabilities that --logprobs asks for.
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
  std::vector<int32_t> ids;  // the drawn token, then the most likely ones; empty: not asked for
  std::vector<float> values;
  int32_t rank = 0;  // of the drawn one
};

// Of a row that gave a token; raw and adjusted are its values in front of stage 3 and behind 9.
LogprobReport MakeLogprobs(const LogitsView& raw, const LogitsView& adjusted,
                           const SamplingParams& params, TokenResult token, Backend backend);

// Nothing where nothing was asked for.
void PrintLogprobs(const LogprobReport& report, std::ostream& out, const Terminal& terminal);
void WriteLogprobs(JsonWriter& json, const LogprobReport& report);

}  // namespace sluice::cli
