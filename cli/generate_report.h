// Why a choice ended and where the time went, in words and as JSON.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "cli/generation.h"
#include "json/writer.h"

namespace sluice::cli {

// What only the command can time.
struct GenerateTimes {
  int64_t decode_ns = 0;  // the steps, with everything that was shown
  int64_t write_ns = 0;   // of these, writing text
  int64_t show_ns = 0;    // of these, candidates
};

// "the stop string "The end"", "100 tokens, as --max-tokens says".
std::string EndText(GenerationEnd end, const Delta& delta, const TokenResult& token,
                    const Generation& generation);

void PrintStatistics(const Generation& generation, const GenerateTimes& times, std::ostream& out);
// The fields, in an object.
void WriteStatistics(JsonWriter& json, const Generation& generation, const GenerateTimes& times);

}  // namespace sluice::cli
