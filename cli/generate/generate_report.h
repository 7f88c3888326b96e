// Why a choice ended and where the time went, in words and as JSON.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "cli/generate/generation.h"
#include "json/writer.h"

namespace sluice::cli {

// What only the command can time.
struct GenerateTimes {
  int64_t decode_ns = 0;  // the steps, with everything that was shown
  int64_t write_ns = 0;   // of these, writing text
  int64_t show_ns = 0;    // of these, candidates
};

struct OutputEnd {
  GenerationEnd end = GenerationEnd::kNone;
  std::string stop = {};
  int32_t stop_token = -1;
  RowStatus status = RowStatus::kOk;
  std::string message = {};
};

// "the stop string "The end"", "--max-tokens 100".
std::string EndText(const OutputEnd& end, const GenerationOptions& options,
                    const Tokenizer& tokenizer, int64_t context);
std::string EndText(GenerationEnd end, const Delta& delta, const TokenResult& token,
                    const Generation& generation);

// "1.25 ms", "640 tokens/s", "1 token", "2 tokens".
std::string Duration(int64_t ns);
std::string Rate(int64_t count, int64_t ns);
double PerSecond(int64_t count, int64_t ns);
std::string Count(int64_t count, std::string_view what);

void PrintStatistics(const Generation& generation, const GenerateTimes& times, std::ostream& out);
// The fields, in an object.
void WriteStatistics(JsonWriter& json, const Generation& generation, const GenerateTimes& times);

}  // namespace sluice::cli
