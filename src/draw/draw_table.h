// The functions that a backend provides for draws. Arguments have been checked.
#pragma once

#include "semantics/row_status.h"
#include "semantics/widen.h"
#include "sluice/draw.hpp"
#include "sluice/logprobs.hpp"

namespace sluice {

// The source of a draft token: nothing known, given probabilities, or a Cut of a draft model.
struct DraftSource {
  const float* probabilities = nullptr;
  const SelectInput* model = nullptr;  // one row
  const Cut* cut = nullptr;
};

// A draft that may follow a row of the target.
struct DraftToTry {
  int32_t draft;
  DraftSource source;
};

struct Verdict {
  int32_t accepted;  // which of the drafts; -1: none
  int32_t id;        // that draft, or the token in place of all of them
  RowStatus status;
};

// Tokens one by one, in any order.
struct TokenList {
  const float* x;
  const int32_t* ids;
  int64_t size;
};

struct DrawTable {
  semantics::StatusAndMax (*examine)(const semantics::Row&);
  // The first token of the total order that a Cut keeps, -1 when it keeps nothing of the row.
  int32_t (*first_kept)(const semantics::Row&, const Cut&);
  // One token of a row with a Cut of status kOk. max is the row's m, scale that of the draw.
  int32_t (*draw)(const semantics::Row&, const Cut&, float max, float scale, DrawMethod,
                  const NoiseKey&);
  // One token by Gumbel, from the tokens that the Cut keeps.
  int32_t (*draw_listed)(const TokenList&, float max, float scale, const NoiseKey&);
  // Every token with a score that may reach `best` in a draw by Gumbel, and perhaps others; no NaN
  // may be among the values. ids: one a token. Answers how many.
  int64_t (*list_contenders)(std::span<const float> x, float max, float scale, const NoiseKey&,
                             float best, int32_t* ids);
  void (*logprobs)(const LogprobInput&, std::span<TokenResult>, const LogprobLists&,
                   const Execution&);
  // Rejection sampling on one row of the target, with a Cut of status kOk, of 1 to kMostTries
  // drafts, one after the other until one is accepted.
  Verdict (*verify)(const SelectInput& target, const Cut& cut, std::span<const DraftToTry> drafts);
};

extern const DrawTable kDrawRef;
extern const DrawTable kDrawAvx2;
extern const DrawTable kDrawAvx512;

const DrawTable& DrawTableFor(Backend backend);

// The definition, for what a backend has no faster way to.
void LogprobsByDefinition(const LogprobInput&, std::span<TokenResult>, const LogprobLists&,
                          const Execution&);
Verdict VerifyByDefinition(const SelectInput& target, const Cut& cut,
                           std::span<const DraftToTry> drafts);

}  // namespace sluice
