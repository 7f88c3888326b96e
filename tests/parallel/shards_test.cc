// Vocabulary shards give the answer of the unsplit row, bit for bit.
#include "sluice/shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Rows cut into slices of the given widths, each in memory of its own.
class Split {
 public:
  Split(const std::vector<std::vector<float>>& rows, const std::vector<int64_t>& widths,
        const std::vector<DType>& dtypes) {
    int32_t first_id = 0;
    for (size_t s = 0; s < widths.size(); ++s) {
      std::vector<std::vector<float>> slices;
      for (const auto& row : rows) {
        slices.emplace_back(row.begin() + first_id, row.begin() + first_id + widths[s]);
      }
      parts_.push_back(
          std::make_unique<Batch>(slices, dtypes[s % dtypes.size()], static_cast<int64_t>(s % 3)));
      shards_.push_back({parts_.back()->view(), first_id});
      first_id += static_cast<int32_t>(widths[s]);
    }
  }
  std::span<const Shard> shards() const { return shards_; }
  const Batch& part(size_t s) const { return *parts_[s]; }

 private:
  std::vector<std::unique_ptr<Batch>> parts_;
  std::vector<Shard> shards_;
};

// `count` widths of at least one token that add up to the vocabulary.
std::vector<int64_t> UnevenWidths(int64_t vocab, int64_t count, Random& random) {
  std::vector<int64_t> widths(static_cast<size_t>(std::min(count, vocab)), 1);
  int64_t left = vocab - static_cast<int64_t>(widths.size());
  for (size_t s = 0; s + 1 < widths.size(); ++s) {
    const int64_t more = random.Below(left + 1);
    widths[s] += more;
    left -= more;
  }
  widths.back() += left;
  return widths;
}

void ExpectEqualToUnsplit(const std::vector<std::vector<float>>& rows, DType dtype,
                          const Split& split, std::span<const SelectParams> params,
                          std::span<const NoiseKey> keys, DrawMethod method) {
  const Batch whole(rows, dtype);
  const SelectInput input{whole.view(), params, keys};
  std::vector<Cut> cuts(rows.size());
  SelectShards({split.shards(), params, keys, {}}, cuts, {});
  EXPECT_TRUE(SameSequence(cuts, Selected(input).cuts));
  std::vector<TokenResult> results(rows.size());
  SampleShards({split.shards(), params, keys, {}}, method, results, {});
  EXPECT_TRUE(SameSequence(results, Sampled(input, method)));
}

TEST(Shards, EqualTheUnsplitRowForRandomRowsAndParameters) {
  Random random(1);
  for (const int64_t count : {1, 2, 3, 8}) {
    for (const RowKind kind : kAllRowKinds) {
      for (int i = 0; i < Rounds(120); ++i) {
        const int64_t vocab = random.Between(8, i % 8 == 0 ? 512 : 128);
        const DType dtype = kAllDTypes[i % 3];
        std::vector<std::vector<float>> rows;
        std::vector<SelectParams> params;
        std::vector<NoiseKey> keys;
        for (int r = 0; r < 4; ++r) {
          rows.push_back(MakeRow(kind, vocab, random));
          params.push_back(RandomSelectParams(vocab, random));
          keys.push_back({random.Bits(), static_cast<uint32_t>(r), 0});
        }
        const Split split(rows, UnevenWidths(vocab, count, random), {dtype});
        const DrawMethod method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
        ExpectEqualToUnsplit(rows, dtype, split, params, keys, method);
        ASSERT_FALSE(HasFailure()) << Name(kind) << ", " << count << " shards";
      }
    }
  }
}

TEST(Shards, EqualTheUnsplitRowForHostileRows) {
  Random random(2);
  int number = 0;
  for (const HostileRow& row : HostileRows(31)) {
    const int64_t vocab = static_cast<int64_t>(row.values.size());
    for (const NamedProfile& profile : kProfiles) {
      for (SelectParams params : ExtremeSelectParams()) {
        params.profile = profile.profile;
        ++number;  // each has another number of shards
        const NoiseKey key{random.Bits(), 7, 1};
        for (const int64_t count : {2, 3, 8}) {
          if (!IsTried(number++)) continue;
          const Split split({row.values}, UnevenWidths(vocab, count, random), {DType::kF32});
          const DrawMethod method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
          ExpectEqualToUnsplit({row.values}, DType::kF32, split, {&params, 1}, {&key, 1}, method);
          ASSERT_FALSE(HasFailure()) << row.name << " " << profile.name;
        }
      }
    }
  }
}

TEST(Shards, EqualTheUnsplitRowWhereMassesMeetTheirTargetExactly) {
  // At this temperature t = x - m, so that integers have weights that are powers of two.
  constexpr float kPowersOfTwo = 0x1.715476p+0f;
  Random random(7);
  const std::vector<float> shares = {0.5f, 0.25f, 0.75f, 0.125f, 0.875f, 1.0f};
  for (int i = 0; i < Rounds(4000); ++i) {
    const int64_t vocab = random.Between(2, 12);
    std::vector<float> row;
    for (int64_t id = 0; id < vocab; ++id) row.push_back(static_cast<float>(random.Below(4)));
    SelectParams params{.temperature = kPowersOfTwo};
    (i % 2 == 0 ? params.top_p : params.typical_p) = random.Pick(shares);
    if (random.Coin(0.3)) params.min_p = random.Pick(shares);
    if (random.Coin(0.3)) {
      params.xtc_probability = 1.0f;
      params.xtc_threshold = random.Pick(shares);
    }
    params.profile = kProfiles[random.Bits() % std::size(kProfiles)].profile;
    params.profile.temperature_stage = TemperatureStage::kBeforeTruncation;
    const NoiseKey key{random.Bits(), 0, 0};
    const Split split({row}, UnevenWidths(vocab, 2, random), {DType::kF32});
    ExpectEqualToUnsplit({row}, DType::kF32, split, {&params, 1}, {&key, 1}, DrawMethod::kCdf);
  }
}

TEST(Shards, MayHaveDifferentDTypesWhereTheValuesAreTheSame) {
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const int64_t vocab = random.Between(3, 90);
    std::vector<float> row = MakeRow(RowKind::kMid, vocab, random);
    // Multiples of 1/8 below 16 are exact in all three.
    for (float& x : row) x = std::clamp(std::rint(x * 8.0f) * 0.125f, -15.0f, 15.0f);
    const SelectParams params = RandomSelectParams(vocab, random);
    const NoiseKey key{random.Bits(), 0, 0};
    const Split split({row}, UnevenWidths(vocab, 3, random),
                      {DType::kBf16, DType::kF32, DType::kF16});
    ExpectEqualToUnsplit({row}, DType::kF32, split, {&params, 1}, {&key, 1},
                         i % 2 == 0 ? DrawMethod::kGumbel : DrawMethod::kCdf);
  }
}

TEST(Shards, AMaskedShardIsNoTroubleAndAMaskedRowIs) {
  Random random(4);
  std::vector<float> row = MakeRow(RowKind::kMid, 60, random);
  std::fill(row.begin() + 20, row.begin() + 40, kMasked);
  const std::vector<std::vector<float>> rows = {row, std::vector<float>(60, kMasked), row};
  const Split split(rows, {20, 20, 20}, {DType::kF32});
  for (int i = 0; i < 50; ++i) {
    const SelectParams params = RandomSelectParams(60, random);
    const NoiseKey key{random.Bits(), 0, 0};
    ExpectEqualToUnsplit(rows, DType::kF32, split, {&params, 1}, {&key, 1}, DrawMethod::kGumbel);
    std::vector<TokenResult> results(3);
    SampleShards({split.shards(), {&params, 1}, {&key, 1}, {}}, DrawMethod::kCdf, results, {});
    EXPECT_EQ(results[0].status, RowStatus::kOk);
    EXPECT_EQ(results[1].status, RowStatus::kEmptySupport);
    EXPECT_EQ(results[1].id, -1);
    EXPECT_TRUE(SameBits(results[0], results[2]));
  }
}

TEST(Shards, TheWorstTroubleOfAnyShardIsTheRows) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::vector<float> row;
    float top_p;
    RowStatus status;
  };
  const Case cases[] = {
      {{0, 1, inf, 1, 1, 1}, 1.0f, RowStatus::kPosInfInput},
      {{0, 1, inf, 1, nan, 1}, 1.0f, RowStatus::kNanInput},
      {{nan, 1, 1, 1, 1, inf}, 1.0f, RowStatus::kNanInput},
      {{kMasked, kMasked, kMasked, kMasked, kMasked, nan}, 1.0f, RowStatus::kNanInput},
      {{nan, 1, 1, 1, 1, 1}, 0.0f, RowStatus::kBadParam},
      {{kMasked, kMasked, kMasked, kMasked, kMasked, kMasked}, 2.0f, RowStatus::kBadParam},
  };
  for (const Case& c : cases) {
    const SelectParams params{.top_p = c.top_p};
    const NoiseKey key;
    const Split split({c.row}, {2, 2, 2}, {DType::kF32});
    std::vector<Cut> cuts(1);
    SelectShards({split.shards(), {&params, 1}, {&key, 1}, {}}, cuts, {});
    EXPECT_EQ(cuts[0].status, c.status);
    EXPECT_TRUE(SameBits(cuts[0], Selected({Batch({c.row}).view(), {&params, 1}}).cuts[0]));
  }
}

TEST(Shards, HaveTheLimitsThatTheyAreGiven) {
  const Split split({{0, 1, 2, 3}}, {1, 3}, {DType::kF32});
  const SelectParams params{.temperature = 3.0f};
  const NoiseKey key;
  std::vector<Cut> cuts(1);
  SelectShards({split.shards(), {&params, 1}, {&key, 1}, {}}, cuts, {});
  EXPECT_EQ(cuts[0].status, RowStatus::kBadParam);
  SelectShards({split.shards(), {&params, 1}, {&key, 1}, {.max_temperature = 5.0f}}, cuts, {});
  EXPECT_EQ(cuts[0].status, RowStatus::kOk);
  EXPECT_EQ(cuts[0].count, 4);
}

TEST(ShardCut, KeepsOnEachShardWhatTheWholeCutKeepsThere) {
  Random random(5);
  for (int i = 0; i < Rounds(400); ++i) {
    const int64_t vocab = random.Between(3, 70);
    const std::vector<float> row = MakeRow(RowKind::kFewDistinct, vocab, random);
    const SelectParams params = RandomSelectParams(vocab, random);
    const NoiseKey key{random.Bits(), 0, 0};
    const Batch whole({row});
    const Cut cut = Selected({whole.view(), {&params, 1}, {&key, 1}}).cuts[0];
    const Split split({row}, UnevenWidths(vocab, 3, random), {DType::kF32});
    std::vector<int32_t> kept;
    for (size_t s = 0; s < 3; ++s) {
      const int32_t first = split.shards()[s].first_id;
      const auto before = [&](float value) {
        return std::count(row.begin(), row.begin() + first, value);
      };
      const Cut own = ShardCut(cut, before(cut.upper), before(cut.lower));
      const auto ids = KeptIds(split.part(s).view(), {&own, 1})[0];
      for (const int32_t id : ids) kept.push_back(first + id);
    }
    EXPECT_EQ(kept, KeptIds(whole.view(), {&cut, 1})[0]);
  }
}

TEST(Shards, EqualTheUnsplitRowAtTheSizeOfAVocabulary) {
  Random random(6);
  const int64_t vocab = int64_t{1} << 20;
  const std::vector<std::vector<float>> rows = {MakeRow(RowKind::kMid, vocab, random)};
  const SelectParams params{.temperature = 0.8f, .top_k = 1000, .top_p = 0.9f};
  const NoiseKey key{42, 9, 0};
  const Split split(rows, {151643, vocab - 151643}, {DType::kF32});
  ExpectEqualToUnsplit(rows, DType::kF32, split, {&params, 1}, {&key, 1}, DrawMethod::kGumbel);
}

TEST(Shards, NoiseIsKeyedByTheGlobalIdUpToTheLastOne) {
  // Only the last ids of the largest vocabulary can be drawn; the last shard numbers them from 0.
  const int64_t vocab = kMaxVocab;
  std::vector<float> row(static_cast<size_t>(vocab), kMasked);
  for (int64_t id = vocab - 9; id < vocab; ++id) row[static_cast<size_t>(id)] = 1.0f;
  const SelectParams params{.top_k = 8};  // ties: the very last id is dropped
  const Split split({row}, {vocab - 4, 4}, {DType::kBf16});
  const Batch whole({row}, DType::kBf16);
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    for (uint64_t seed = 0; seed < Rounds(2); ++seed) {
      const NoiseKey key{seed, 0, 0};
      std::vector<TokenResult> results(1);
      SampleShards({split.shards(), {&params, 1}, {&key, 1}, {}}, method, results, {});
      EXPECT_TRUE(SameSequence(results, Sampled({whole.view(), {&params, 1}, {&key, 1}}, method)));
      EXPECT_LT(results[0].id, vocab - 1);
    }
  }
}

}  // namespace
}  // namespace sluice::test
