// Every way to select on a CPU by name: the core's, and six that papers describe, built to compare
// with them. All give the same Cut, bit for bit; an algorithm changes the time, never the answer.
// docs/research/top-p-on-cpu.md says what each is worth. Link Sluice::research.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sluice/algorithm.hpp"
#include "sluice/draw.hpp"
#include "sluice/execution.hpp"
#include "sluice/select.hpp"

namespace sluice::research {

// kAuto, kCertified, kQuickselect and kPivot are those of SelectAlgorithm.
enum class Algorithm : uint8_t {
  kAuto,
  kCertified,
  kSort,          // sort everything, walk to the boundary
  kFilterSort,    // drop what cannot be kept by its weight alone, sort the rest
  kFilterScan,    // the same filter, then take the largest again and again
  kQuickFindMax,  // filter and take the largest in one loop over everything
  kHistogram,     // masses by exponent of the weight, then the boundary's bucket alone
  kQuickselect,
  kRadix,  // masses by digit of the value, from the highest digit
  kPivot,
};

struct AlgorithmEntry {
  Algorithm algorithm;
  std::string_view name;
  std::string_view when_to_use;
  std::string_view limits;  // what makes it slow
  std::string_view source;  // the paper
};

std::span<const AlgorithmEntry> Algorithms();

// Throws Error naming the known ones.
Algorithm AlgorithmByName(std::string_view name);

Algorithm AlgorithmOf(SelectAlgorithm algorithm);
// Nothing for the six that the core does not have.
std::optional<SelectAlgorithm> CoreAlgorithm(Algorithm algorithm);

// Select of select.hpp and Sample of draw.hpp by an algorithm, with the same workspace.
// execution.algorithm is not read. The reference backend has one way only, the definition.
void Select(const SelectInput& input, Algorithm algorithm, std::span<Cut> cuts,
            std::span<CutMass> masses, const Execution& execution);
void Sample(const SelectInput& input, DrawMethod method, Algorithm algorithm,
            std::span<TokenResult> results, const Execution& execution);

// The algorithm that gave an answer, from what execution.work says: kAuto where none ran.
// SelectWork names algorithms of the core only.
Algorithm AlgorithmThatRan(Algorithm algorithm, const SelectWork& work);

}  // namespace sluice::research
