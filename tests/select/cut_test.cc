// What is made of a Cut: masked rows, bitmasks and lists equal the definition, whatever row the Cut
// came from.
#include <gtest/gtest.h>

#include <vector>

#include "tests/select/everything.h"
#include "tests/support/any_cut.h"
#include "tests/support/backends.h"
#include "tests/support/guarded_row.h"

namespace sluice::test {
namespace {

class UseCut : public BackendTest {};

// Three rows of a width, each with a Cut.
struct Rows {
  std::vector<std::vector<float>> rows;
  std::vector<Cut> cuts;

  Rows(int64_t vocab, Random& random) {
    for (int r = 0; r < 3; ++r) {
      rows.push_back(AnyRow(vocab, random));
      cuts.push_back(AnyCut(rows.back(), random));
    }
  }
};

void ExpectSameLists(const Lists& actual, const Lists& expected) {
  EXPECT_TRUE(SameSequence(actual.ids, expected.ids));
  EXPECT_TRUE(SameSequence(actual.logits, expected.logits));
  EXPECT_TRUE(SameSequence(actual.weights, expected.weights));
}

// All memory of the batch is compared, so a write beside a row shows.
TEST_P(UseCut, MaskEqualsTheDefinition) {
  Random random(1);
  for (const int64_t vocab : kBlockWidths) {
    for (int i = 0; i < 40; ++i) {
      const Rows rows(vocab, random);
      const int64_t padding = random.Below(20);
      Batch actual(rows.rows, dtype(), padding);
      Batch expected(rows.rows, dtype(), padding);
      Mask(actual.mutable_view(), rows.cuts, {backend()});
      Mask(expected.mutable_view(), rows.cuts, {Backend::kRef});
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t id = 0; id < vocab + (r < 2 ? padding : 0); ++id) {
          ASSERT_TRUE(SameBits(actual.Get(r, id), expected.Get(r, id))) << vocab << " " << id;
        }
      }
    }
  }
}

TEST_P(UseCut, KeptBitmaskEqualsTheDefinition) {
  Random random(2);
  for (const int64_t vocab : kBlockWidths) {
    const size_t words = static_cast<size_t>((vocab + 31) / 32);
    for (int i = 0; i < 40; ++i) {
      const Rows rows(vocab, random);
      const Batch batch(rows.rows, dtype(), random.Below(20));
      std::vector<int32_t> actual(3 * words, -1);
      std::vector<int32_t> expected(3 * words, 7);
      KeptBitmask(batch.view(), rows.cuts, actual, {backend()});
      KeptBitmask(batch.view(), rows.cuts, expected, {Backend::kRef});
      ASSERT_TRUE(SameSequence(actual, expected)) << vocab;
    }
  }
}

TEST_P(UseCut, CollectEqualsTheDefinition) {
  Random random(3);
  for (const int64_t vocab : kBlockWidths) {
    for (int i = 0; i < 20; ++i) {
      const Rows rows(vocab, random);
      const Batch batch(rows.rows, dtype(), random.Below(20));
      const SelectParams params{.temperature = random.Coin() ? 0.7f : 0.01f};
      const SelectInput input{batch.view(), {&params, 1}};
      for (const CandidateOrder order : {CandidateOrder::kById, CandidateOrder::kByRank}) {
        SCOPED_TRACE(testing::Message() << "width " << vocab);
        ExpectSameLists(Collected(input, rows.cuts, order, backend()),
                        Collected(input, rows.cuts, order, Backend::kRef));
        if (HasFailure()) return;
      }
    }
  }
}

// Long enough for whatever a backend does with long lists only.
TEST_P(UseCut, CollectEqualsTheDefinitionOnLongRows) {
  Random random(4);
  for (const RowKind kind : kAllRowKinds) {
    const Batch batch({MakeRow(kind, 5000, random)}, dtype());
    const SelectParams params;
    const SelectInput input{batch.view(), {&params, 1}};
    const std::vector<Cut> cuts = Selected(input, backend()).cuts;
    ExpectSameLists(Collected(input, cuts, CandidateOrder::kByRank, backend()),
                    Collected(input, cuts, CandidateOrder::kByRank, Backend::kRef));
  }
}

TEST_P(UseCut, OutputsThatNobodyWantsAreNotWritten) {
  Random random(5);
  const Rows rows(100, random);
  const Batch batch(rows.rows, dtype());
  const SelectParams params;
  const SelectInput input{batch.view(), {&params, 1}};
  const Lists all = Collected(input, rows.cuts, CandidateOrder::kById, backend());
  Lists some = all;
  some.ids.assign(all.ids.size(), 7);
  some.weights.assign(all.weights.size(), 7);
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend()}));
  const Execution execution{backend(), {}, workspace.span()};
  Collect(input, rows.cuts, CandidateOrder::kById, {some.offsets, some.ids, {}, {}}, execution);
  Collect(input, rows.cuts, CandidateOrder::kById, {some.offsets, {}, {}, some.weights}, execution);
  Collect(input, rows.cuts, CandidateOrder::kById, {some.offsets}, execution);
  EXPECT_TRUE(SameSequence(some.ids,
                           Collected(input, rows.cuts, CandidateOrder::kById, Backend::kRef).ids));
  EXPECT_TRUE(SameSequence(
      some.weights, Collected(input, rows.cuts, CandidateOrder::kById, Backend::kRef).weights));
}

TEST_P(UseCut, TouchesNothingBesideTheRow) {
  Random random(6);
  for (const int64_t vocab : kBlockWidths) {
    for (const GuardSide side : {GuardSide::kFront, GuardSide::kBack}) {
      const std::vector<float> values = AnyRow(vocab, random);
      const GuardedRow row(values, dtype(), side);
      const SelectParams params;
      const std::vector<Cut> cuts = {AnyCut(values, random)};
      KeptIds(row.view(), cuts, backend());
      Collected({row.view(), {&params, 1}}, cuts, CandidateOrder::kByRank, backend());
      Mask(row.mutable_view(), cuts, {backend()});
    }
  }
}

SLUICE_FOR_EACH_BACKEND(UseCut);

}  // namespace
}  // namespace sluice::test
