// The ways to select, by name. All give the same Cut, bit for bit: an algorithm changes the time,
// never the answer. kAuto is what to use; the others are what it chooses from, to choose yourself
// where its policy table is wrong for a machine.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

enum class SelectAlgorithm : uint8_t {
  kAuto,         // the one that the policy table names for the parameters and the vocabulary
  kCertified,    // one pass: guess a threshold, certify the candidates, refine when in doubt
  kQuickselect,  // three-way partitions around pivots, towards the boundary
  kPivot,        // several pivots a pass, from the moments of a sample (Qrita)
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
