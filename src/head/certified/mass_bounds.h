// What the intervals of a row say of its mass: how much of it lies above a value, and how much
// not. Weights are the integers of semantics/weight.h and never rise as logits fall, and the ends
// of an interval are rounded outwards or to the logit itself, so sums over ends are ends of the
// sum, without an allowance for rounding.
#pragma once

#include <cstdint>

#include "semantics/filters/nucleus.h"

namespace sluice {

struct MassQuestion {
  float x;      // the value; +inf: everything lies below
  float max;    // the largest logit of the row, exactly
  float scale;  // of the weights
};

// Tokens that are computed and have the value itself belong to neither side.
struct MassBounds {
  semantics::Between above;   // mass
  semantics::Between rest;    // mass
  semantics::Between tokens;  // how many lie above
  int64_t ties = 0;           // how many have the value
};

// Tokens that may lie above the value, and may not, weigh at most what the value does in the rest.
inline void AddOpen(const MassQuestion& question, MassBounds& around) {
  const uint64_t open = around.tokens.most - around.tokens.least;
  if (open == 0) return;
  around.rest.most += open * semantics::Weight(question.x, question.max, question.scale);
}

}  // namespace sluice
