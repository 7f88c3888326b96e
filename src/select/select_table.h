// The functions that a backend provides for selection. Arguments have been checked.
#pragma once

#include "semantics/order.h"
#include "semantics/widen.h"
#include "sluice/select.hpp"

namespace sluice {

// One row to select from.
struct RowRequest {
  semantics::Row row;
  const SelectParams& params;
  const NoiseKey& key;
  const Limits& limits;
  bool needs_masses;
  SelectAlgorithm algorithm = SelectAlgorithm::kAuto;
  bool needs_tokens = false;  // KeptTokens, where they are at hand
};

// The tokens of a kept set, in no order. x is null when the set is known by its Cut alone.
struct KeptTokens {
  const float* x = nullptr;
  const int32_t* ids = nullptr;
  int64_t size = 0;
};

// The result of selecting a row. The kept tokens lie in the workspace.
struct SelectedSet {
  Cut cut = {};
  CutMass mass = {};      // when requested
  float max = 0.0f;       // m, with status kOk
  int32_t first_id = -1;  // the only kept token of a greedy row, where it is known
  KeptTokens kept = {};
  SelectWork work = {};
};

struct SelectTable {
  size_t (*workspace_bytes)(int64_t vocab);  // a worker
  SelectedSet (*select_row)(const RowRequest&, std::byte* workspace);
  void (*mask)(const MutableLogitsView&, std::span<const Cut>, const Execution&);
  void (*kept_bitmask)(const LogitsView&, std::span<const Cut>, std::span<int32_t> bitmask,
                       const Execution&);
  void (*collect)(const SelectInput&, std::span<const Cut>, CandidateOrder, const Candidates&,
                  const Execution&);
};

extern const SelectTable kSelectRef;
extern const SelectTable kSelectAvx2;
extern const SelectTable kSelectAvx512;

// execution.algorithm and the size of execution.work.
void CheckAlgorithm(const Execution& execution, int64_t rows);

const SelectTable& SelectTableFor(Backend backend);

// Select with a table in place of the backend's. The view and the number of workers have been
// checked; everything else is checked here.
void SelectWith(const SelectTable& table, const SelectInput& input, std::span<Cut> cuts,
                std::span<CutMass> masses, const Execution& execution);

// The definition, for what a backend has no faster way to. workspace: row.size tokens.
SelectedSet SelectByDefinition(const RowRequest& request, semantics::Token* workspace);
void MaskByDefinition(const MutableLogitsView&, std::span<const Cut>, const Execution&);
void KeptBitmaskByDefinition(const LogitsView&, std::span<const Cut>, std::span<int32_t> bitmask,
                             const Execution&);
void CollectByDefinition(const SelectInput&, std::span<const Cut>, CandidateOrder,
                         const Candidates&, const Execution&);

}  // namespace sluice
