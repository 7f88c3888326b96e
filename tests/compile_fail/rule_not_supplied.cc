// An implementation that lacks a rule does not compile.
#include "semantics/rules.h"

struct Row {
  void Greedy() {}
  template <class Floor>
  void KeepFrom(const Floor&) {}
#ifndef SLUICE_MISUSE
  void Typical() {}
#endif
  void BeforeTopK() {}
  void TopK() {}
  void TopP() {}
  void Xtc() {}
  void After(sluice::semantics::Filter) {}
};

void Select(const sluice::SelectParams& params, Row& row) {
  sluice::semantics::ApplyRules(sluice::semantics::RulesOf(params), params, row);
}
