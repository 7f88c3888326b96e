// The ways to select, by name. All give the same Cut, bit for bit: an algorithm changes the time,
// never the answer. kAuto is what to use; the others are there to compare with it, and to choose
// where its policy table is wrong for a machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

enum class SelectAlgorithm : uint8_t {
  kAuto,          // the one that the policy table names for the parameters and the vocabulary
  kCertified,     // one pass: guess a threshold, certify the candidates, refine when in doubt
  kSort,          // sort everything, walk to the boundary
  kFilterSort,    // drop what cannot be kept by its weight alone, sort the rest
  kFilterScan,    // the same filter, then take the largest again and again
  kQuickFindMax,  // filter and take the largest in one loop over everything
  kHistogram,     // masses by exponent of the weight, then the boundary's bucket alone
  kQuickselect,   // three-way partitions around pivots, towards the boundary
  kRadix,         // masses by digit of the value, from the highest digit
  kPivot,         // several pivots a pass, from the moments of a sample (Qrita)
};

struct AlgorithmInfo {
  SelectAlgorithm algorithm;
  std::string_view name;
  std::string_view when_to_use;
  std::string_view limits;  // what makes it slow
  std::string_view source;  // the author of the paper
};

std::span<const AlgorithmInfo> SelectAlgorithms();

// Throws Error naming the known ones.
SelectAlgorithm SelectAlgorithmByName(std::string_view name);

// The work of selecting one row, to compare algorithms by more than time. The reference backend
// runs the definition, whichever algorithm is set, and reports kAuto and 0.
struct SelectWork {
  SelectAlgorithm algorithm = SelectAlgorithm::kAuto;  // that gave the answer
  // By its loops, of the row or of a copy, each time one was read. A pass that reads and moves
  // counts once; sorting n elements counts n for each bit of n.
  int64_t elements_read = 0;
};

}  // namespace sluice
