// The second plane of strict planes on a GPU: its intervals are the reference's, it leaves few
// tokens, what it took is said, and the answers are the dense head's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "head/certified/cuda/certified_kernels.h"
#include "tests/head/certified_draws.h"
#include "tests/head/device_head.h"
#include "tests/head/planted.h"
#include "tests/support/params.h"

namespace sluice::test {
namespace {

constexpr HeadPlaneOptions kStrict = {.kind = CertificateKind::kStrict};

template <typename T>
std::vector<T> Read(const T* from, size_t count) {
  std::vector<T> values(count);
  Require(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

Rows States(HiddenKind kind, const Rows& head, int64_t count, Random& random) {
  Rows states;
  for (int64_t r = 0; r < count; ++r) states.push_back(MakeHidden(kind, head, random));
  return states;
}

class RefineCuda : public DeviceTest, public ::testing::WithParamInterface<DType> {
 protected:
  // The call, scored; and the second plane read for every token that reaches `least`, unless they
  // are few.
  static cuda::CertifiedArgs Refined(DeviceHead& device, const Batch& hidden, float least,
                                     int32_t few) {
    device.Ask(hidden, {});
    cuda::QuestionArgument question = {};
    question.k = 1;
    cuda::CertifiedArgs call = cuda::ArgumentOf(device.call(), question);
    call.few_to_refine = few;
    cuda::LaunchEncode(call, nullptr);
    cuda::LaunchScore(call, nullptr);
    const cuda::ProbedEnds probed = {semantics::OrderKey(least), 0, 0};
    for (int32_t r = 0; r < call.memory.rows; ++r) {
      Require(cudaMemcpy(call.memory.probed + r, &probed, sizeof probed, cudaMemcpyHostToDevice));
    }
    cuda::LaunchRefine(call, nullptr);
    Require(cudaDeviceSynchronize());
    return call;
  }
};

// And the ends of tiles are those of their tokens.
TEST_P(RefineCuda, IntervalsByBothPlanesAreThoseOfTheReference) {
  Random random(51);
  for (const int64_t dim : {1, 100, 128, 129, 640, 1100, 8300}) {
    for (const int64_t count : {1, 5, 13}) {
      const int64_t vocab = 16 * random.Between(17, dim > 2000 ? 20 : 40);
      const Rows rows = Representable(MakeHead(HeadKind::kTrained, vocab, dim, random), GetParam());
      const Batch weight(rows, GetParam());
      const std::vector<float> bias = MakeBias(vocab, random);
      const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), kStrict);
      const Batch hidden(States(HiddenKind::kPeaked, rows, count, random),
                         kAllDTypes[random.Below(3)]);
      DeviceHead device(weight, bias, planes);
      const auto first = Scored(kScoreRef, planes, bias, Matrix(hidden));
      const auto both = Scored(kScoreRef, planes, bias, Matrix(hidden), true);
      std::vector<float> uppers;
      for (size_t v = 0; v < static_cast<size_t>(vocab); ++v) {
        uppers.push_back(first[0].scores[v] + first[0].widths[v]);
      }
      std::sort(uppers.begin(), uppers.end(), std::greater<>());
      struct Case {
        float least;
        int32_t few;
      };
      // All, a few of the first row, and a half, of some stretches too few.
      for (const auto& [least, few] :
           {Case{-INFINITY, 0}, Case{uppers[10], 0},
            Case{uppers[static_cast<size_t>(vocab) / 2], static_cast<int32_t>(vocab) / 2}}) {
        const cuda::CertifiedArgs call = Refined(device, hidden, least, few);
        const auto tiles = static_cast<size_t>(call.planes.tiles);
        for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
          const std::string what = std::to_string(vocab) + " x " + std::to_string(dim) + " row " +
                                   std::to_string(r) + " of " + std::to_string(count);
          const auto scores = Read(call.memory.scores + r * tiles * kTileRows, tiles * kTileRows);
          const auto widths = Read(call.memory.widths + r * tiles * kTileRows, tiles * kTileRows);
          const auto tile_least = Read(call.memory.tile_least + r * tiles, tiles);
          const auto tile_most = Read(call.memory.tile_most + r * tiles, tiles);
          const int32_t refined = Read(call.memory.probed + r, 1)[0].refined;
          int32_t changed = 0, reaching = 0;
          for (size_t v = 0; v < static_cast<size_t>(vocab); ++v) {
            auto is_of = [&](const ScoredRow& row) {
              return SameBits(scores[v], row.scores[v]) && SameBits(widths[v], row.widths[v]);
            };
            changed += is_of(first[r]) ? 0 : 1;
            const bool reaches = first[r].scores[v] + first[r].widths[v] >= least;
            reaching += reaches ? 1 : 0;
            ASSERT_TRUE(is_of(both[r]) || is_of(first[r])) << what << " token " << v;
            ASSERT_TRUE(reaches || is_of(first[r])) << what << " token " << v;
            ASSERT_TRUE(few > 0 || !reaches || is_of(both[r])) << what << " token " << v;
          }
          ASSERT_LE(changed, refined) << what;  // a low code of 0 changes nothing
          ASSERT_LE(refined, reaching) << what;
          if (few == 0) {
            ASSERT_EQ(refined, reaching) << what;
          }
          for (size_t t = 0; t < tiles; ++t) {
            float lower = -INFINITY, upper = -INFINITY;
            for (size_t v = t * kTileRows; v < (t + 1) * kTileRows; ++v) {
              if (widths[v] == 0.0f) continue;
              lower = std::max(lower, scores[v] - widths[v]);
              upper = std::max(upper, scores[v] + widths[v]);
            }
            ASSERT_EQ(tile_least[t], lower) << what << " tile " << t;
            ASSERT_EQ(tile_most[t], upper) << what << " tile " << t;
          }
        }
      }
    }
  }
}

TEST_P(RefineCuda, NoLogitLiesOutsideItsInterval) {
  Random random(52);
  for (const HeadKind head_kind : kAllHeadKinds) {
    const int64_t vocab = 16 * random.Between(17, 60);
    const Rows rows =
        Representable(MakeHead(head_kind, vocab, random.Between(1, 500), random), GetParam());
    const Batch weight(rows, GetParam());
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), kStrict);
    Rows states;
    for (const HiddenKind kind : kAllHiddenKinds) states.push_back(MakeHidden(kind, rows, random));
    const Batch hidden(states, DType::kF32);
    DeviceHead device(weight, {}, planes);
    const cuda::CertifiedArgs call = Refined(device, hidden, -INFINITY, 0);
    const auto width = static_cast<size_t>(call.planes.tiles) * kTileRows;
    for (size_t r = 0; r < states.size(); ++r) {
      const ScoredRow scored = {Read(call.memory.scores + r * width, width),
                                Read(call.memory.widths + r * width, width)};
      const semantics::Row state{Matrix(hidden).Row(static_cast<int64_t>(r)), DType::kF32,
                                 Matrix(hidden).columns};
      EXPECT_LE(WorstError(scored, Matrix(weight), {}, state), 1.0)
          << static_cast<int>(head_kind) << " state " << r;
    }
  }
}

// Rows and states of noise, of which the first plane alone leaves some 500 to 4500 tokens.
class WideIntervalsCuda : public DeviceTest {
 protected:
  static constexpr int64_t kVocab = 20000;
  static constexpr int64_t kDim = 256;

  WideIntervalsCuda()
      : random_(53),
        rows_(MakeHead(HeadKind::kNormal, kVocab, kDim, random_)),
        weight_(rows_, DType::kBf16),
        planes_(HeadPlanes::Build(Matrix(weight_), kStrict)) {}

  // What the second plane was read for, and what was computed, of all rows.
  struct Took {
    int64_t refined;
    int64_t survivors;
  };
  static Took TookBy(const DeviceHead& device) {
    Took took = {};
    for (const int32_t refined : device.refined()) took.refined += refined;
    for (const cuda::HeadRow& row : device.rows()) {
      EXPECT_EQ(row.path, CertifiedPath::kPlanes);
      took.survivors += row.survivors;
    }
    return took;
  }

  Random random_;
  Rows rows_;
  Batch weight_;
  HeadPlanes planes_;
};

TEST_F(WideIntervalsCuda, BothPlanesLeaveFewTokensAndTheAnswersAreTheDenseHeads) {
  DeviceHead device(weight_, {}, planes_);
  for (const int64_t count : {1, 7, 40}) {
    const Batch hidden(States(HiddenKind::kNormal, rows_, count, random_), DType::kBf16);
    device.Ask(hidden, {});
    for (const int32_t k : {1, 10, 50}) {
      const TopResult actual = device.TopK(k);
      const TopResult expected = DenseTopK({Matrix(weight_)}, {Matrix(hidden)}, k);
      EXPECT_TRUE(SameSequence(actual.ids, expected.ids)) << count << " k " << k;
      EXPECT_TRUE(SameSequence(actual.logits, expected.logits)) << count << " k " << k;
      const Took took = TookBy(device);
      // Of one wanted token 100 to 1000 are open, and where they are few they are computed.
      if (k > 1) {
        EXPECT_GT(took.refined, 4 * took.survivors) << count << " k " << k;
      } else if (count > 1) {
        EXPECT_GT(took.refined, took.survivors) << count;
      }
      EXPECT_GE(took.survivors, count * k);
      device.TopK(k);  // and twice the same
      EXPECT_EQ(TookBy(device).refined, took.refined);
      EXPECT_EQ(TookBy(device).survivors, took.survivors);
    }
    const auto rows = static_cast<size_t>(count);
    std::vector<NoiseKey> keys;
    for (uint32_t r = 0; r < rows; ++r) keys.push_back({61, r});
    for (const SelectParams& params :
         {SelectParams{.temperature = 0.0f}, SelectParams{.temperature = 0.1f},
          SelectParams{.temperature = 0.1f, .min_p = 0.1f},
          SelectParams{.temperature = 0.5f, .top_k = 20, .top_p = 0.9f}}) {
      const std::vector<int32_t> actual = device.Sample({rows, params}, keys, DrawMethod::kGumbel);
      const std::vector<TokenResult> expected =
          DenseSample({Matrix(weight_)}, {Matrix(hidden)}, std::vector<SelectParams>(rows, params),
                      keys, DrawMethod::kGumbel);
      for (size_t r = 0; r < rows; ++r) {
        EXPECT_EQ(actual[r], expected[r].id) << count << " row " << r;
      }
      if (count == 1) continue;
      EXPECT_GT(TookBy(device).refined, TookBy(device).survivors)
          << count << " T " << params.temperature << " min-p " << params.min_p;
    }
  }
}

TEST_F(WideIntervalsCuda, WhatACallReadIsThePlanesAndWhatItsRowsSay) {
  DeviceHead device(weight_, {}, planes_);
  device.Ask(Batch(States(HiddenKind::kNormal, rows_, 3, random_), DType::kBf16), {});
  device.TopK(10);
  const Took took = TookBy(device);
  constexpr int64_t kOfRow = (kDim / 128) * (64 + 2);
  EXPECT_EQ(cuda::BytesRead(device.call().planes, device.rows(), device.refined()),
            (kVocab + took.refined) * kOfRow + took.survivors * kDim * 2);
  std::vector<cuda::HeadRow> rows = device.rows();
  rows[1].path = CertifiedPath::kDense;
  EXPECT_EQ(cuda::BytesRead(device.call().planes, rows),
            kVocab * kOfRow + took.survivors * kDim * 2 + kVocab * kDim * 2);
}

// One token stands far above all others: the second plane is read for that one alone.
TEST_F(WideIntervalsCuda, FewTokensAreComputedAtOnce) {
  Rows states;
  for (const size_t v : {17u, 4000u}) {
    std::vector<float> state = rows_[v];
    for (float& h : state) h *= 50.0f;
    states.push_back(state);
  }
  DeviceHead device(weight_, {}, planes_);
  const Batch hidden(states, DType::kF32);
  device.Ask(hidden, {});
  EXPECT_EQ(device.TopK(1).ids, (std::vector<int32_t>{17, 4000}));
  EXPECT_EQ(device.refined(), (std::vector<int32_t>{1, 1}));
  // Here what the first plane says of the tiles does not reach what both say of the first token.
  const std::vector<int32_t> drawn =
      device.Sample({2, {.min_p = 0.5f}}, {NoiseKey{1, 2}, NoiseKey{3, 4}}, DrawMethod::kGumbel);
  EXPECT_EQ(drawn[0], 17);
  EXPECT_EQ(drawn[1], 4000);
  EXPECT_LT(TookBy(device).survivors, 20);
}

TEST_P(RefineCuda, OfAHeadThatIsTooWideTheFirstPlaneIsAllThatIsRead) {
  Random random(54);
  const Rows rows = Representable(MakeHead(HeadKind::kNormal, 300, 33000, random), GetParam());
  const Batch weight(rows, GetParam());
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), kStrict));
  const Batch hidden(States(HiddenKind::kPeaked, rows, 2, random), DType::kF32);
  device.Ask(hidden, {});
  const TopResult actual = device.TopK(5);
  EXPECT_TRUE(SameSequence(actual.ids, DenseTopK({Matrix(weight)}, {Matrix(hidden)}, 5).ids));
  EXPECT_EQ(device.refined(), (std::vector<int32_t>{0, 0}));
}

TEST_F(WideIntervalsCuda, ABoundOfBothPlanesATenthSmallerGivesAnotherToken) {
  const PlantedHead planted = DecidedByATenthOfALowBound(random_);
  const Batch weight(planted.rows, DType::kF32);
  const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), kStrict);
  auto first = [&](const HeadPlanes& of) {
    DeviceHead device(weight, {}, of);
    device.Ask(Batch({planted.hidden}, DType::kF32), {});
    const int32_t id = device.TopK(1).ids[0];
    EXPECT_EQ(device.rows()[0].path, CertifiedPath::kPlanes);
    EXPECT_GT(device.refined()[0], 1000);
    return id;
  };
  EXPECT_EQ(first(planes), planted.first);
  const auto changed = std::make_shared<ChangedPlanes>(planes);
  changed->ShrinkLowBounds(0.9f);
  EXPECT_NE(first(PlaneAccess::Make(changed)), planted.first);
}

// Likely tokens that lie together, whose intervals are narrowed, and others that are alone in their
// stretches, which are computed at once: where the nucleus ends is the dense head's all the same.
TEST_F(WideIntervalsCuda, NucleiOfTokensThatAreNarrowedAndOthersThatAreNotAreTheDenseHeads) {
  constexpr size_t kTokens = 4096, kLarge = 128, kWidth = 64;
  Random random(57);
  Rows rows = MakeHead(HeadKind::kNormal, kTokens, kWidth, random);
  std::vector<float> along;
  for (size_t j = 0; j < kWidth; ++j) along.push_back(static_cast<float>(random.Normal()));
  auto make_large = [&](size_t v) {
    const double share = 0.3 + 0.01 * random.Normal();
    for (size_t j = 0; j < kWidth; ++j) rows[v][j] += static_cast<float>(share) * along[j];
  };
  for (size_t v = 0; v < kLarge; ++v) make_large(v);
  for (size_t n = 0; n < 8; ++n) make_large(1000 + 300 * n);
  const Batch weight(rows, DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), kStrict));
  int64_t by_planes = 0;
  for (const float temperature : {0.1f, 0.3f, 1.0f}) {
    for (int n = 0; n < 6; ++n) {
      std::vector<float> state = along;
      for (float& h : state) h += 0.3f * static_cast<float>(random.Normal());
      const Batch hidden({state}, DType::kF32);
      device.Ask(hidden, {});
      for (int step = 1; step < 20; ++step) {
        const SelectParams params = {.temperature = temperature,
                                     .top_p = 0.05f * static_cast<float>(step)};
        for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
          const std::vector<NoiseKey> keys = {{71, static_cast<uint32_t>(100 * n + step)}};
          const std::vector<int32_t> actual = device.Sample({params}, keys, method);
          const std::vector<TokenResult> expected = DenseSample(
              {Matrix(weight)}, {Matrix(hidden)}, std::vector<SelectParams>{params}, keys, method);
          ASSERT_EQ(actual[0], expected[0].id) << temperature << " p " << params.top_p;
          by_planes += device.rows()[0].path == CertifiedPath::kPlanes ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(by_planes, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RefineCuda, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
