// What callers may rely on about the answer: a Cut and everything made from it agree, and order,
// ties and temperature mean what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/select/everything.h"
#include "tests/support/backends.h"

namespace sluice::test {
namespace {

class SelectPromise : public BackendTest {};

// The whole memory of the batch is compared, so a changed kept token, a write into the padding or a
// touched row with a status all show.
TEST_P(SelectPromise, MaskWritesMinusInfinityToDroppedTokensAndNoOtherBit) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Mixed mixed = MixedRows(seed);
    Batch batch(mixed.rows, dtype());
    const std::vector<Cut> cuts =
        Selected({batch.view(), mixed.params, mixed.keys}, backend()).cuts;
    const auto kept = KeptIds(batch.view(), cuts, backend());
    const std::vector<std::byte> before(batch.bytes().begin(), batch.bytes().end());

    Mask(batch.mutable_view(), cuts, {backend()});
    const std::vector<std::byte> after(batch.bytes().begin(), batch.bytes().end());

    std::vector<std::byte> expected = before;
    const uint32_t fp32 = 0xff800000u;
    const uint16_t half = dtype() == DType::kBf16 ? 0xff80 : 0xfc00;
    const void* minus_infinity = dtype() == DType::kF32 ? static_cast<const void*>(&fp32) : &half;
    for (size_t r = 0; r < cuts.size(); ++r) {
      if (cuts[r].status != RowStatus::kOk) continue;
      const std::byte* row =
          static_cast<const std::byte*>(batch.view().Row(static_cast<int64_t>(r)));
      for (int32_t id = 0; id < batch.view().vocab; ++id) {
        if (std::binary_search(kept[r].begin(), kept[r].end(), id)) continue;
        const size_t at = static_cast<size_t>(row - batch.bytes().data()) +
                          static_cast<size_t>(id) * SizeOf(dtype());
        std::memcpy(&expected[at], minus_infinity, SizeOf(dtype()));
      }
    }
    EXPECT_TRUE(SameSequence(after, expected)) << "seed " << seed;
  }
}

// Four descriptions of one set, each checked against the row itself.
TEST_P(SelectPromise, CutBitmaskCandidatesAndMaskDescribeOneSet) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Mixed mixed = MixedRows(seed);
    Batch batch(mixed.rows, dtype());
    const SelectInput input{batch.view(), mixed.params, mixed.keys};
    const Selection selection = Selected(input, backend());
    const auto kept = KeptIds(batch.view(), selection.cuts, backend());
    const Lists by_id = Collected(input, selection.cuts, CandidateOrder::kById, backend());
    const Lists by_rank = Collected(input, selection.cuts, CandidateOrder::kByRank, backend());
    for (size_t r = 0; r < kept.size(); ++r) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " row " << r);
      EXPECT_EQ(static_cast<int64_t>(kept[r].size()), selection.cuts[r].count);
      const int64_t row = static_cast<int64_t>(r);
      const auto begin = by_id.offsets[r];
      const auto end = by_id.offsets[r + 1];
      EXPECT_TRUE(SameSequence(
          std::vector<int32_t>(by_id.ids.begin() + begin, by_id.ids.begin() + end), kept[r]));

      std::vector<int32_t> sorted = kept[r];
      std::stable_sort(sorted.begin(), sorted.end(),
                       [&](int32_t a, int32_t b) { return batch.Get(row, a) > batch.Get(row, b); });
      EXPECT_TRUE(SameSequence(
          std::vector<int32_t>(by_rank.ids.begin() + begin, by_rank.ids.begin() + end), sorted));

      uint64_t mass = 0;
      for (int64_t i = begin; i < end; ++i) {
        const size_t at = static_cast<size_t>(i);
        mass += by_id.weights[at];
        EXPECT_TRUE(SameBits(by_id.logits[at], batch.Get(row, by_id.ids[at])));
        EXPECT_TRUE(SameBits(by_rank.logits[at], batch.Get(row, by_rank.ids[at])));
      }
      // Where the draw's temperature is that of the filters, the weights add up to the kept mass.
      if (mixed.params[r].profile.temperature_stage == TemperatureStage::kBeforeTruncation) {
        EXPECT_EQ(mass, selection.masses[r].kept);
      }
    }
    Mask(batch.mutable_view(), selection.cuts, {backend()});
    for (size_t r = 0; r < kept.size(); ++r) {
      if (selection.cuts[r].status != RowStatus::kOk) continue;
      std::vector<int32_t> unmasked;
      for (int32_t id = 0; id < batch.view().vocab; ++id) {
        if (batch.Get(static_cast<int64_t>(r), id) != -std::numeric_limits<float>::infinity()) {
          unmasked.push_back(id);
        }
      }
      EXPECT_TRUE(SameSequence(unmasked, kept[r])) << "seed " << seed << " row " << r;
    }
  }
}

// Masses are asked for or not: the Cut is the same.
TEST_P(SelectPromise, MassesAreOptional) {
  const Mixed mixed = MixedRows(1);
  const Batch batch(mixed.rows, dtype());
  const SelectInput input{batch.view(), mixed.params, mixed.keys};
  const Workspace workspace(SelectWorkspaceBytes(batch.view(), {backend()}));
  std::vector<Cut> cuts(mixed.rows.size());
  Select(input, cuts, {}, {backend(), {}, workspace.span()});
  EXPECT_TRUE(SameSequence(cuts, Selected(input, backend()).cuts));
}

// Where no two values are equal, ids play no part: relabelling them relabels the answer.
TEST_P(SelectPromise, PermutedVocabularyPermutesTheAnswer) {
  Random random(4);
  std::vector<float> row(128);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i) * 0.125f - 8.0f;
  std::vector<int32_t> name(row.size());  // the old id of each new one
  for (size_t i = 0; i < name.size(); ++i) name[i] = static_cast<int32_t>(i);
  for (int round = 0; round < 200; ++round) {
    for (size_t i = name.size(); i > 1; --i) {
      std::swap(name[i - 1], name[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
    std::vector<float> shuffled;
    shuffled.reserve(name.size());
    for (const int32_t id : name) shuffled.push_back(row[static_cast<size_t>(id)]);
    const SelectParams params = RandomSelectParams(128, random);
    const NoiseKey key{random.Bits(), 0, 0};
    const Batch batch({row, shuffled}, dtype());
    const Selection selection = Selected({batch.view(), {&params, 1}, {&key, 1}}, backend());
    EXPECT_TRUE(SameBits(selection.cuts[0], selection.cuts[1]));
    EXPECT_EQ(selection.masses[0], selection.masses[1]);
    const auto kept = KeptIds(batch.view(), selection.cuts, backend());
    std::vector<int32_t> renamed;
    for (const int32_t id : kept[1]) renamed.push_back(name[static_cast<size_t>(id)]);
    std::sort(renamed.begin(), renamed.end());
    EXPECT_TRUE(SameSequence(renamed, kept[0]));
  }
}

// The logits are never divided: at a T that merges neighbours in fp32 the order is still theirs.
TEST_P(SelectPromise, TemperatureNeverChangesOrderGreedyOrTopK) {
  const Mixed mixed = MixedRows(5);
  const Batch batch(mixed.rows, dtype());
  const SelectParams ordinary{.top_k = 7};
  const SelectInput input{batch.view(), {&ordinary, 1}};
  const std::vector<Cut> cuts = Selected(input, backend()).cuts;
  const std::vector<int32_t> ranked =
      Collected(input, cuts, CandidateOrder::kByRank, backend()).ids;
  for (const float temperature : {1e-6f, 0.01f, 0.3f, 1.7f, 3e38f}) {
    const SelectParams params{.temperature = temperature, .top_k = 7};
    const SelectInput other{batch.view(), {&params, 1}, {}, {.max_temperature = 3.4e38f}};
    EXPECT_TRUE(SameSequence(Selected(other, backend()).cuts, cuts)) << temperature;
    EXPECT_TRUE(
        SameSequence(Collected(other, cuts, CandidateOrder::kByRank, backend()).ids, ranked))
        << temperature;
  }
  const SelectParams greedy{.temperature = 0.0f};
  const SelectParams first{.top_k = 1};
  EXPECT_TRUE(SameSequence(Selected({batch.view(), {&greedy, 1}}, backend()).cuts,
                           Selected({batch.view(), {&first, 1}}, backend()).cuts));
}

SLUICE_FOR_EACH_BACKEND(SelectPromise);

class SelectTopK : public BackendTest {};

// At every k: whichever group of ties the cut falls into, the lower ids stay.
TEST_P(SelectTopK, KeepsSmallerIdOnTie) {
  const std::vector<float> row = {1, 2, 1, 2, 0, 1, 2, 0};
  const std::vector<int32_t> order = {1, 3, 6, 0, 2, 5, 4, 7};
  const Batch batch({row}, dtype());
  for (int32_t k = 1; k <= 8; ++k) {
    const SelectParams params{.top_k = k};
    std::vector<int32_t> expected(order.begin(), order.begin() + k);
    std::sort(expected.begin(), expected.end());
    const Selection selection = Selected({batch.view(), {&params, 1}}, backend());
    EXPECT_TRUE(SameSequence(KeptIds(batch.view(), selection.cuts, backend())[0], expected)) << k;
  }
}

// -0 and +0 are one value: the lower id comes first whatever its sign, and the boundary is +0.
TEST_P(SelectTopK, TreatsZerosOfBothSignsAsEqual) {
  const Batch batch({{-0.0f, 0.0f, -1.0f}, {0.0f, -0.0f, -1.0f}}, dtype());
  const SelectParams params{.top_k = 1};
  const Selection selection = Selected({batch.view(), {&params, 1}}, backend());
  const Cut expected{.lower = 0.0f, .ties_kept = 1, .count = 1};
  EXPECT_TRUE(SameSequence(selection.cuts, std::vector<Cut>{expected, expected}));
  const std::vector<std::vector<int32_t>> first = {{0}, {0}};
  EXPECT_TRUE(SameSequence(KeptIds(batch.view(), selection.cuts, backend()), first));
}

SLUICE_FOR_EACH_BACKEND(SelectTopK);

}  // namespace
}  // namespace sluice::test
