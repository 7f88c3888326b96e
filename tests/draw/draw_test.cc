// Draws: one token from a Cut, a pure function of the logits, the parameters and the NoiseKey.
#include "sluice/draw.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "semantics/draw/draw.h"
#include "semantics/draw/noise.h"
#include "semantics/temperature.h"
#include "semantics/weight.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};
constexpr float kMasked = -std::numeric_limits<float>::infinity();

class Draw : public BackendTest {};

std::vector<TokenResult> Drawn(const SelectInput& input, DrawMethod method,
                               std::span<const Cut> cuts, Backend backend) {
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  std::vector<TokenResult> results(cuts.size());
  sluice::Draw(input, method, cuts, results, {backend, {}, workspace.span()});
  return results;
}

// Rows of every kind, each with parameters and a key of its own.
struct Requests {
  std::vector<std::vector<float>> rows;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;

  Requests(int64_t vocab, int count, uint64_t seed) {
    Random random(seed);
    for (int i = 0; i < count; ++i) {
      rows.push_back(
          MakeRow(kAllRowKinds[static_cast<size_t>(i) % std::size(kAllRowKinds)], vocab, random));
      params.push_back(RandomSelectParams(vocab, random));
      keys.push_back({random.Bits(), static_cast<uint32_t>(random.Below(5000)),
                      static_cast<uint32_t>(random.Below(4))});
    }
  }

  // The same requests, those at `order` only and in that order.
  Requests(const Requests& all, const std::vector<size_t>& order) {
    for (const size_t i : order) {
      rows.push_back(all.rows[i]);
      params.push_back(all.params[i]);
      keys.push_back(all.keys[i]);
    }
  }
};

TEST_P(Draw, AfterSelectEqualsSample) {
  for (int64_t vocab : {int64_t{37}, int64_t{500}}) {
    const Requests requests(vocab, 80, 1);
    const Batch batch(requests.rows, dtype());
    const SelectInput input{batch.view(), requests.params, requests.keys};
    const Selection selection = Selected(input, backend());
    for (const DrawMethod method : kMethods) {
      EXPECT_TRUE(SameSequence(Drawn(input, method, selection.cuts, backend()),
                               Sampled(input, method, backend())));
    }
  }
}

TEST_P(Draw, GivesATokenInsideTheCut) {
  const Requests requests(200, 240, 2);
  const Batch batch(requests.rows, dtype());
  const SelectInput input{batch.view(), requests.params, requests.keys};
  const auto kept = KeptIds(batch.view(), Selected(input, backend()).cuts, backend());
  for (const DrawMethod method : kMethods) {
    const auto results = Sampled(input, method, backend());
    for (size_t r = 0; r < results.size(); ++r) {
      ASSERT_EQ(results[r].status, RowStatus::kOk);
      EXPECT_TRUE(std::binary_search(kept[r].begin(), kept[r].end(), results[r].id)) << r;
      EXPECT_EQ(results[r].cut.count, static_cast<int32_t>(kept[r].size()));
    }
  }
}

// The definition once more, over the list of kept ids instead of a walk along the Cut.
TEST_P(Draw, GumbelTakesTheLargestSumOfLogWeightAndNoise) {
  const Requests requests(300, 160, 3);
  const Batch batch(requests.rows, dtype());
  const SelectInput input{batch.view(), requests.params, requests.keys};
  const auto results = Sampled(input, DrawMethod::kGumbel, backend());
  const auto kept = KeptIds(batch.view(), Selected(input, backend()).cuts, backend());
  for (size_t r = 0; r < kept.size(); ++r) {
    const int64_t row = static_cast<int64_t>(r);
    float max = kMasked;
    for (int64_t id = 0; id < batch.view().vocab; ++id) max = std::max(max, batch.Get(row, id));
    const float scale = semantics::ScalesOf(requests.params[r]).draw;
    int32_t best = -1;
    float best_score = 0.0f;
    for (const int32_t id : kept[r]) {
      const uint64_t noise = semantics::NoiseBits(requests.keys[r], semantics::Stream::kTarget, id);
      const float x = batch.Get(row, id);
      const float score = semantics::LogWeight(x, max, scale) + semantics::Gumbel(noise);
      // Equal scores go to the larger value, and only then to the smaller id.
      if (best < 0 || score > best_score || (score == best_score && x > batch.Get(row, best))) {
        best = id;
        best_score = score;
      }
    }
    EXPECT_EQ(results[r].id, best) << r;
  }
}

TEST_P(Draw, CdfTakesTheFirstIdWhoseRunningMassExceedsTheThreshold) {
  const Requests requests(300, 160, 4);
  const Batch batch(requests.rows, dtype());
  const SelectInput input{batch.view(), requests.params, requests.keys};
  const auto results = Sampled(input, DrawMethod::kCdf, backend());
  const auto kept = KeptIds(batch.view(), Selected(input, backend()).cuts, backend());
  for (size_t r = 0; r < kept.size(); ++r) {
    const int64_t row = static_cast<int64_t>(r);
    float max = kMasked;
    for (int64_t id = 0; id < batch.view().vocab; ++id) max = std::max(max, batch.Get(row, id));
    const float scale = semantics::ScalesOf(requests.params[r]).draw;
    std::vector<semantics::uint128_t> running;
    semantics::uint128_t mass = 0;
    for (const int32_t id : kept[r]) {
      mass += semantics::Weight(batch.Get(row, id), max, scale);
      running.push_back(mass);
    }
    if (mass == 0) continue;  // see ASetWithoutMassGivesItsFirstToken
    const uint64_t uniform = semantics::Uniform64(requests.keys[r], semantics::Stream::kCdf);
    const semantics::uint128_t threshold = (mass * uniform) >> 64;
    const auto drawn = std::upper_bound(running.begin(), running.end(), threshold);
    EXPECT_EQ(results[r].id, kept[r][static_cast<size_t>(drawn - running.begin())]) << r;
  }
}

TEST_P(Draw, GreedyIgnoresFiltersAndSeeds) {
  Random random(5);
  for (const RowKind kind : kAllRowKinds) {
    const Batch batch({MakeRow(kind, 150, random)}, dtype());
    int32_t first = 0;
    for (int32_t id = 1; id < 150; ++id) {
      if (batch.Get(0, id) > batch.Get(0, first)) first = id;
    }
    for (SelectParams params : ExtremeSelectParams()) {
      params.temperature = 0.0f;
      for (const DrawMethod method : kMethods) {
        const NoiseKey key{random.Bits(), 3, 1};
        const auto results = Sampled({batch.view(), {&params, 1}, {&key, 1}}, method, backend());
        EXPECT_EQ(results[0].id, first) << Name(kind);
        EXPECT_EQ(results[0].cut.count, 1);
      }
    }
  }
}

TEST_P(Draw, IsTheSameAloneAndInAnyBatchInAnyOrder) {
  const Requests requests(97, 60, 6);
  const Batch together(requests.rows, dtype());
  std::vector<size_t> order(requests.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Random random(7);
  for (size_t i = order.size() - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(random.Below(static_cast<int64_t>(i) + 1))]);
  }
  order.resize(41);
  const Requests shuffled(requests, order);
  const Batch other(shuffled.rows, dtype(), 0);
  for (const DrawMethod method : kMethods) {
    const auto all = Sampled({together.view(), requests.params, requests.keys}, method, backend());
    const auto some = Sampled({other.view(), shuffled.params, shuffled.keys}, method, backend());
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_TRUE(SameBits(some[i], all[order[i]])) << ::testing::PrintToString(some[i]);
    }
    for (size_t r = 0; r < all.size(); ++r) {
      const auto alone = Sampled(
          {together.row(static_cast<int64_t>(r)), {&requests.params[r], 1}, {&requests.keys[r], 1}},
          method, backend());
      EXPECT_TRUE(SameBits(alone[0], all[r])) << ::testing::PrintToString(alone[0]);
    }
  }
}

TEST_P(Draw, IsTheSameAtAnyStrideAndAnyDTypeThatHoldsTheValues) {
  const Requests requests(83, 40, 8);
  const Batch narrow(requests.rows, dtype(), 5);
  std::vector<std::vector<float>> values = requests.rows;
  for (size_t r = 0; r < values.size(); ++r) {
    for (size_t i = 0; i < values[r].size(); ++i) {
      values[r][i] = narrow.Get(static_cast<int64_t>(r), static_cast<int64_t>(i));
    }
  }
  for (const int64_t padding : {0, 1, 64}) {
    const Batch wide(values, DType::kF32, padding);
    for (const DrawMethod method : kMethods) {
      EXPECT_TRUE(
          SameSequence(Sampled({narrow.view(), requests.params, requests.keys}, method, backend()),
                       Sampled({wide.view(), requests.params, requests.keys}, method, backend())));
    }
  }
}

TEST_P(Draw, DependsOnEveryPartOfTheKey) {
  // A flat row: two keys give the same token once in 512 draws.
  const Batch batch({std::vector<float>(512, 0.0f)}, dtype());
  const SelectParams params;
  for (const DrawMethod method : kMethods) {
    auto distinct = [&](auto key_of) {
      std::set<int32_t> ids;
      for (uint32_t i = 0; i < 64; ++i) {
        const NoiseKey key = key_of(i);
        ids.insert(Sampled({batch.view(), {&params, 1}, {&key, 1}}, method, backend())[0].id);
      }
      return ids.size();
    };
    EXPECT_EQ(distinct([](uint32_t) { return NoiseKey{9, 8, 7}; }), 1u);
    EXPECT_GT(distinct([](uint32_t i) { return NoiseKey{i, 8, 7}; }), 48u);
    EXPECT_GT(distinct([](uint32_t i) { return NoiseKey{uint64_t{i} << 32, 8, 7}; }), 48u);
    EXPECT_GT(distinct([](uint32_t i) { return NoiseKey{9, i, 7}; }), 48u);
    EXPECT_GT(distinct([](uint32_t i) { return NoiseKey{9, 8, i}; }), 48u);
  }
}

TEST_P(Draw, TheOnlySurvivorIsAlwaysDrawn) {
  const Batch batch({{kMasked, 2.0f, kMasked}}, dtype());
  Random random(9);
  for (int i = 0; i < 1000; ++i) {
    const SelectParams params = RandomSelectParams(3, random);
    const NoiseKey key{random.Bits(), static_cast<uint32_t>(i), 0};
    for (const DrawMethod method : kMethods) {
      EXPECT_EQ(Sampled({batch.view(), {&params, 1}, {&key, 1}}, method, backend())[0].id, 1);
    }
  }
}

TEST_P(Draw, EveryHostileRowGivesAStatusOrAKeptToken) {
  for (const HostileRow& row : HostileRows()) {
    const Batch batch({row.values}, dtype());
    for (const NamedProfile& profile : kProfiles) {
      for (SelectParams params : ExtremeSelectParams()) {
        params.profile = profile.profile;
        const NoiseKey key{11, 12, 0};
        const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
        const Selection selection = Selected(input, backend());
        const auto kept = KeptIds(batch.view(), selection.cuts, backend())[0];
        for (const DrawMethod method : kMethods) {
          const TokenResult result = Sampled(input, method, backend())[0];
          EXPECT_EQ(result.status, selection.cuts[0].status) << row.name;
          if (result.status == RowStatus::kOk) {
            EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), result.id)) << row.name;
          } else {
            EXPECT_EQ(result.id, -1) << row.name;
            EXPECT_TRUE(kept.empty()) << row.name;
          }
        }
      }
    }
  }
}

TEST_P(Draw, ASetWithoutMassGivesItsFirstToken) {
  // The filters see T = 1 and drop the most likely tokens; at the T of the draw what they leave is
  // more than 40 octaves below the maximum. Of ids 4 (-2) and 0 (-3) the first in the order is 4.
  SelectParams xtc{.temperature = 0.01f, .xtc_probability = 1.0f, .xtc_threshold = 0.05f};
  xtc.profile = ProfileByName("llamacpp");
  const Batch row({{-3.0f, 0.0f, -2.0f, -1.0f, -2.0f}}, dtype());

  SelectParams typical{.temperature = 0.01f, .typical_p = 0.5f};
  typical.profile = ProfileByName("llamacpp");
  std::vector<float> flat(31, -2.0f);
  flat[0] = 0.0f;
  const Batch flat_row({flat}, dtype());

  for (uint64_t seed = 0; seed < 100; ++seed) {
    const NoiseKey key{seed, 0, 0};
    const SelectInput input{row.view(), {&xtc, 1}, {&key, 1}};
    EXPECT_EQ(KeptIds(row.view(), Selected(input, backend()).cuts, backend())[0],
              (std::vector<int32_t>{0, 4}));
    EXPECT_EQ(Sampled(input, DrawMethod::kCdf, backend())[0].id, 4);
    // At T = 0.01 one unit of value is 144 of score, and noise stays within 60.
    EXPECT_EQ(Sampled(input, DrawMethod::kGumbel, backend())[0].id, 4);
    const SelectInput flat_input{flat_row.view(), {&typical, 1}, {&key, 1}};
    EXPECT_EQ(Selected(flat_input, backend()).cuts[0].count, 30);
    EXPECT_EQ(Sampled(flat_input, DrawMethod::kCdf, backend())[0].id, 1);
  }
}

TEST_P(Draw, RunsOnAnyParallelFor) {
  const Requests requests(120, 50, 13);
  const Batch batch(requests.rows, dtype());
  const SelectInput input{batch.view(), requests.params, requests.keys};
  // Backwards, the rows dealt out to three workers.
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  const ParallelFor parallel{3, nullptr, backwards};
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend(), parallel}));
  for (const DrawMethod method : kMethods) {
    std::vector<TokenResult> results(requests.rows.size());
    Sample(input, method, results, {backend(), parallel, workspace.span()});
    EXPECT_TRUE(SameSequence(results, Sampled(input, method, backend())));
  }
}

TEST_P(Draw, EqualScoresGoToTheSmallerId) {
  // The first seed whose noise is the same fp32 value for ids 0 and 1.
  const NoiseKey key{1792494, 0, 0};
  auto noise = [&](int32_t id) {
    return semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, id));
  };
  ASSERT_TRUE(SameBits(noise(0), noise(1)));
  const Batch batch({{1.0f, 1.0f}}, dtype());
  const SelectParams params;
  EXPECT_EQ(Sampled({batch.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, backend())[0].id,
            0);
}

TEST_P(Draw, ABadRowTouchesNoNeighbour) {
  Requests requests(64, 9, 14);
  for (SelectParams& params : requests.params) params.top_k = 3;
  const Batch good(requests.rows, dtype());
  const auto expected =
      Sampled({good.view(), requests.params, requests.keys}, DrawMethod::kGumbel, backend());
  requests.rows[1][5] = std::numeric_limits<float>::quiet_NaN();
  requests.rows[3].assign(64, kMasked);
  requests.rows[5][0] = std::numeric_limits<float>::infinity();
  requests.params[7].top_p = 0.0f;
  const RowStatus statuses[] = {
      RowStatus::kOk,           RowStatus::kNanInput, RowStatus::kOk,
      RowStatus::kEmptySupport, RowStatus::kOk,       RowStatus::kPosInfInput,
      RowStatus::kOk,           RowStatus::kBadParam, RowStatus::kOk};
  const Batch batch(requests.rows, dtype());
  const auto results =
      Sampled({batch.view(), requests.params, requests.keys}, DrawMethod::kGumbel, backend());
  for (size_t r = 0; r < results.size(); ++r) {
    EXPECT_EQ(results[r].status, statuses[r]) << r;
    if (statuses[r] == RowStatus::kOk) {
      EXPECT_TRUE(SameBits(results[r], expected[r])) << r;
    } else {
      EXPECT_EQ(results[r].id, -1);
    }
  }
}

// Two tokens whose scores lie within a rounding of each other: a noise that is off by its last bit
// gives another winner in many of them.
TEST_P(Draw, NoiseIsTheDefinedOneToTheLastBit) {
  Random random(31);
  for (int i = 0; i < 3000; ++i) {
    const NoiseKey key{.seed = random.Bits(), .position = static_cast<uint32_t>(i)};
    std::vector<float> row(200, -60000.0f);
    const int32_t a = static_cast<int32_t>(random.Below(100));
    const int32_t b = static_cast<int32_t>(random.Between(100, 199));
    auto noise = [&key](int32_t id) {
      return semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, id));
    };
    const bool a_leads = noise(a) < noise(b);  // the one with less noise gets the larger logit
    const float gap = -std::abs(noise(a) - noise(b)) / semantics::TemperatureScale(1.0f);
    row[static_cast<size_t>(a)] = a_leads ? 0.0f : gap;
    row[static_cast<size_t>(b)] = a_leads ? gap : 0.0f;
    const Batch batch({row});
    for (const int32_t top_k : {0, 2}) {  // the whole row, and listed tokens
      const SelectParams params{.top_k = top_k};
      const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
      EXPECT_EQ(Sampled(input, DrawMethod::kGumbel, backend())[0].id,
                Sampled(input, DrawMethod::kGumbel, Backend::kRef)[0].id);
    }
  }
}

SLUICE_FOR_EACH_BACKEND(Draw);

}  // namespace
}  // namespace sluice::test
