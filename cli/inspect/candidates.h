// The likely tokens of a row and what became of each, as a table and as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "json/writer.h"
#include "sluice/explain.hpp"

namespace sluice::cli {

// The first tokens of the total order; a NaN has no place in it.
std::vector<int32_t> FirstIds(const LogitsView& logits, int64_t count);

// The text of a token; without such a function the table has no column for it.
using TokenText = std::function<std::string(int32_t id)>;

void PrintCandidates(std::span<const Explanation> candidates, int64_t vocab,
                     const TokenText& text_of, std::ostream& out, const Terminal& terminal);

// "kept 7 tokens of 48, 76.76 % of the mass; the smallest logit kept is 4.750"; of a row with a
// status, what that means.
std::string KeptSentence(const Explanation& explanation);

// The fields of a candidate, in an object.
void WriteCandidate(JsonWriter& json, const Explanation& explanation);

}  // namespace sluice::cli
