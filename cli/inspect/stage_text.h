// What Explain reports, as cells of a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "json/writer.h"
#include "sluice/explain.hpp"

namespace sluice::cli {

std::string LogitText(float logit);  // "-inf", "9.500"

// The parameters of a stage that is on: "0.9", "0.1, the coin fell".
std::string ParameterOf(Stage stage, const SamplingParams& params, const Explanation& explanation);

// "frequency penalty, dropped by top-p", "kept", "masked by bad words".
std::string FateOf(const Explanation& explanation);

// The stages that are on as a table, those that are off in a line below.
void PrintStages(const Explanation& explanation, const SamplingParams& params, std::ostream& out,
                 const Terminal& terminal);

// The fields of an explanation, in an object.
void WriteExplanation(JsonWriter& json, const Explanation& explanation);
void WriteCut(JsonWriter& json, const Cut& cut);

}  // namespace sluice::cli
