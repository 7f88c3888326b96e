// Which algorithm SelectAlgorithm::kAuto is: a table of measurements, and how it is read. The rows
// are data, in policy.inc; `sluice bench tune` measures a machine and rewrites them.
//
// A wrong row costs time and nothing else: every algorithm gives the same Cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "semantics/rules.h"
#include "sluice/execution.hpp"
#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

// The parts of a request that change which algorithm is fast.
enum class SelectKind : uint8_t {
  kTopK,
  kTopP,
  kTopKTopP,
  kOther,  // every other set of rules, and none
};
inline constexpr size_t kSelectKinds = 4;

// Takes parameters in range, for a row of `vocab` tokens.
constexpr SelectKind KindOf(const SelectParams& params, int64_t vocab) {
  using semantics::Filter;
  const semantics::RuleSet rules = semantics::RulesOf(params, vocab);
  if (rules == semantics::Rules(Filter::kTopK)) return SelectKind::kTopK;
  if (rules == semantics::Rules(Filter::kTopP)) return SelectKind::kTopP;
  if (rules == semantics::Rules(Filter::kTopK, Filter::kTopP)) return SelectKind::kTopKTopP;
  return SelectKind::kOther;
}

// One row: the algorithm for vocabularies above the row before it, up to largest_vocab.
struct PolicyRow {
  Backend backend;
  SelectKind kind;
  int64_t largest_vocab;
  SelectAlgorithm algorithm;
};

inline constexpr PolicyRow kPolicy[] = {
#define SLUICE_POLICY(backend, kind, largest_vocab, algorithm) \
  {Backend::backend, SelectKind::kind, largest_vocab, SelectAlgorithm::algorithm},
#include "select/policy.inc"
#undef SLUICE_POLICY
};

namespace policy {

inline constexpr size_t kRows = sizeof(kPolicy) / sizeof(kPolicy[0]);
inline constexpr size_t kBackends = 4;  // values of Backend

constexpr size_t Group(Backend backend, SelectKind kind) {
  return static_cast<size_t>(backend) * kSelectKinds + static_cast<size_t>(kind);
}

// Where the rows of each backend and kind begin; kRows where there are none.
constexpr std::array<size_t, kBackends * kSelectKinds> FirstRows() {
  std::array<size_t, kBackends * kSelectKinds> first = {};
  for (size_t& index : first) index = kRows;
  for (size_t i = kRows; i-- > 0;) first[Group(kPolicy[i].backend, kPolicy[i].kind)] = i;
  return first;
}
inline constexpr auto kFirstRows = FirstRows();

// Rows of a group stand together and ascend, and its last one reaches the largest vocabulary.
constexpr bool IsWellFormed() {
  for (size_t i = 0; i < kRows; ++i) {
    const PolicyRow& row = kPolicy[i];
    const size_t group = Group(row.backend, row.kind);
    const bool is_last =
        i + 1 == kRows || Group(kPolicy[i + 1].backend, kPolicy[i + 1].kind) != group;
    if (row.algorithm == SelectAlgorithm::kAuto) return false;
    if (is_last && row.largest_vocab != kMaxVocab) return false;
    if (!is_last && row.largest_vocab >= kPolicy[i + 1].largest_vocab) return false;
    if (i != kFirstRows[group] && Group(kPolicy[i - 1].backend, kPolicy[i - 1].kind) != group) {
      return false;
    }
  }
  return true;
}
static_assert(IsWellFormed());

}  // namespace policy

// Never kAuto. vocab is in [1, kMaxVocab]; a backend without rows gets kCertified.
constexpr SelectAlgorithm ChooseAlgorithm(Backend backend, SelectKind kind, int64_t vocab) {
  size_t row = policy::kFirstRows[policy::Group(backend, kind)];
  if (row == policy::kRows) return SelectAlgorithm::kCertified;
  while (kPolicy[row].largest_vocab < vocab) ++row;
  return kPolicy[row].algorithm;
}

}  // namespace sluice
