// What a backend provides for selection. Arguments have been checked; rows run one by one.
#pragma once

#include "sluice/select.hpp"

namespace sluice {

struct SelectTable {
  size_t (*workspace_bytes)(int64_t vocab);  // a worker
  void (*select)(const SelectInput&, std::span<Cut>, std::span<CutMass>, const Execution&);
  void (*mask)(const MutableLogitsView&, std::span<const Cut>, const Execution&);
  void (*kept_bitmask)(const LogitsView&, std::span<const Cut>, std::span<int32_t> bitmask,
                       const Execution&);
  void (*collect)(const SelectInput&, std::span<const Cut>, CandidateOrder, const Candidates&,
                  const Execution&);
};

extern const SelectTable kSelectRef;

const SelectTable& SelectTableFor(const Execution& execution);

}  // namespace sluice
