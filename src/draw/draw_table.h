// What a backend provides for draws. Arguments have been checked; rows run one by one.
#pragma once

#include "sluice/draw.hpp"
#include "sluice/logprobs.hpp"

namespace sluice {

// What a draft token was drawn from: nothing known, given probabilities, or a Cut of a draft model.
struct DraftSource {
  const float* probabilities = nullptr;
  const SelectInput* sluice = nullptr;  // one row
  const Cut* cut = nullptr;
};

struct Verdict {
  bool accepted;
  int32_t id;  // the draft, or the token that replaces it
  RowStatus status;
};

struct DrawTable {
  void (*draw)(const SelectInput&, DrawMethod, std::span<const Cut>, std::span<TokenResult>,
               const Execution&);
  void (*sample)(const SelectInput&, DrawMethod, std::span<TokenResult>, const Execution&);
  void (*logprobs)(const LogprobInput&, std::span<TokenResult>, const LogprobLists&,
                   const Execution&);
  // Rejection sampling of one draft on one row of the target, whose Cut has status kOk.
  Verdict (*verify)(const SelectInput& target, const Cut& cut, int32_t draft,
                    const DraftSource& source);
};

extern const DrawTable kDrawRef;

const DrawTable& DrawTableFor(const Execution& execution);

}  // namespace sluice
