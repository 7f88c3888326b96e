// Batches of rows that differ in every way, and everything that selection can say about them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {

// A batch of different rows of one width, hostile ones among them, with parameters and keys.
struct Mixed {
  std::vector<std::vector<float>> rows;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;
};

inline Mixed MixedRows(uint64_t seed) {
  constexpr int64_t kVocab = 67;
  Random random(seed);
  Mixed mixed;
  for (const RowKind kind : kAllRowKinds) mixed.rows.push_back(MakeRow(kind, kVocab, random));
  for (const HostileRow& hostile : HostileRows(kVocab)) {
    if (hostile.values.size() == kVocab) mixed.rows.push_back(hostile.values);
  }
  for (size_t r = 0; r < mixed.rows.size(); ++r) {
    mixed.params.push_back(RandomSelectParams(kVocab, random));
    mixed.keys.push_back({random.Bits(), static_cast<uint32_t>(r), 0});
  }
  return mixed;
}

struct Lists {
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<uint64_t> weights;
};

inline Lists Collected(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
                       Backend backend, const ParallelFor& parallel = {}) {
  Lists lists;
  for (const Cut& cut : cuts) lists.offsets.push_back(lists.offsets.back() + cut.count);
  const size_t total = static_cast<size_t>(lists.offsets.back());
  lists.ids.resize(total);
  lists.logits.resize(total);
  lists.weights.resize(total);
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend, parallel}));
  Collect(input, cuts, order, {lists.offsets, lists.ids, lists.logits, lists.weights},
          {backend, parallel, workspace.span()});
  return lists;
}

// Everything that selection can say about a batch.
struct Everything {
  Selection selection;
  std::vector<std::vector<int32_t>> kept;
  Lists by_rank;
  std::vector<TokenResult> tokens;
};

inline Everything Everythings(const SelectInput& input, Backend backend) {
  Everything all;
  all.selection = Selected(input, backend);
  all.kept = KeptIds(input.logits, all.selection.cuts, backend);
  all.by_rank = Collected(input, all.selection.cuts, CandidateOrder::kByRank, backend);
  all.tokens = Sampled(input, DrawMethod::kGumbel, backend);
  return all;
}

inline void ExpectSame(const Everything& actual, const Everything& expected) {
  EXPECT_TRUE(SameSequence(actual.selection.cuts, expected.selection.cuts));
  EXPECT_TRUE(SameSequence(actual.selection.masses, expected.selection.masses));
  EXPECT_TRUE(SameSequence(actual.kept, expected.kept));
  EXPECT_TRUE(SameSequence(actual.by_rank.ids, expected.by_rank.ids));
  EXPECT_TRUE(SameSequence(actual.by_rank.logits, expected.by_rank.logits));
  EXPECT_TRUE(SameSequence(actual.by_rank.weights, expected.by_rank.weights));
  EXPECT_TRUE(SameSequence(actual.tokens, expected.tokens));
}

}  // namespace sluice::test
