// The certified head on a GPU at shapes and rows that its kernels take in ways of their own.
#include <algorithm>
#include <cmath>

#include "semantics/draw/noise.h"
#include "semantics/temperature.h"
#include "tests/head/head_on_device.h"
#include "tests/support/params.h"

namespace sluice::test {
namespace {

class ShapesCuda : public HeadOnDevice {};

// Blocks that go through several sixteens of tiles and many stages of copies; two and one blocks to
// a row; hidden states that shared memory has no room for.
TEST_F(ShapesCuda, OfLongAndWideHeadsScoresAreTheReferencesAndTokensTheDenseHeads) {
  struct Case {
    int64_t vocab;
    int64_t dim;
    int64_t states;
  };
  Random random(23);
  for (const Case& of : {Case{40000, 1300, 33}, Case{3000, 64, 70}, Case{300, 10300, 2},
                         Case{300, 5100, 7}, Case{70000, 130, 12}}) {
    const std::string what = std::to_string(of.vocab) + " x " + std::to_string(of.dim);
    const Rows rows = MakeHead(HeadKind::kNormal, of.vocab, of.dim, random);
    const Batch weight(rows, DType::kBf16);
    Rows states;
    for (int64_t r = 0; r < of.states; ++r) {
      states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
    }
    const Batch hidden(states, DType::kF32);
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = 5});
    DeviceHead device(weight, {}, planes);
    const std::vector<ScoredRow> actual = ScoredOnDevice(device, hidden);
    for (const size_t r : {size_t{0}, states.size() / 2, states.size() - 1}) {
      const Batch state({states[r]}, DType::kF32);
      const ScoredRow expected = Scored(kScoreRef, planes, {}, Matrix(state))[0];
      for (size_t v = 0; v < static_cast<size_t>(of.vocab); ++v) {
        ASSERT_TRUE(SameBits(actual[r].scores[v], expected.scores[v]) &&
                    SameBits(actual[r].widths[v], expected.widths[v]))
            << what << " row " << r << " token " << v;
      }
    }
    ExpectTopOfDense(device, {Matrix(weight)}, hidden, {}, 5, what);
    std::vector<NoiseKey> keys;
    for (uint32_t r = 0; r < states.size(); ++r) keys.push_back({41, r});
    for (const SelectParams& params : {SelectParams{}, SelectParams{.temperature = 0.0f}}) {
      ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, {states.size(), params}, keys,
                        DrawMethod::kGumbel, what);
    }
  }
}

// Else every batch of more than eight would be right, and slow.
TEST_F(ShapesCuda, ManyStatesAreScoredByProductsOfWarpgroupsOnHopper) {
  cudaDeviceProp device;
  Require(cudaGetDeviceProperties(&device, 0));
  if (device.major != 9) GTEST_SKIP() << "not a Hopper";
  EXPECT_TRUE(cuda::CanScoreMany());
}

// Of many tokens that may be the first or win, exact logits of the best tiles leave few.
TEST_F(ShapesCuda, FlatRowsAreAskedTwiceAndDrawnAsTheDenseHeads) {
  Random random(24);
  constexpr int64_t kVocab = 60000;
  constexpr size_t kStates = 40;
  const Rows rows = MakeHead(HeadKind::kNormal, kVocab, 64, random);
  const Batch weight(rows, DType::kBf16);
  Rows states;
  for (size_t r = 0; r < kStates; ++r) {
    states.push_back(MakeHidden(HiddenKind::kNormal, rows, random));
    for (float& x : states.back()) x *= 10.0f;
  }
  const Batch hidden(states, DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  const std::vector<ScoredRow> scored = ScoredOnDevice(device, hidden);
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < kStates; ++r) keys.push_back({43, r});
  for (const SelectParams& params : {SelectParams{}, SelectParams{.temperature = 0.0f}}) {
    ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, {kStates, params}, keys,
                      DrawMethod::kGumbel, "flat");
    const std::vector<cuda::HeadRow> how = device.rows();
    const bool is_draw = params.temperature > 0.0f;
    const float scale = semantics::ScalesOf(params).draw;
    int64_t asked_once = 0, survivors = 0;
    for (size_t r = 0; r < kStates; ++r) {
      EXPECT_EQ(how[r].path, CertifiedPath::kPlanes) << r;
      survivors += how[r].survivors;
      auto score_of = [&](size_t v, float x) {
        return x * scale + semantics::Gumbel(semantics::NoiseBits(
                               keys[r], semantics::GumbelStream(keys[r]), static_cast<int32_t>(v)));
      };
      const auto& [scores, widths] = scored[r];
      float first = -INFINITY, best = -INFINITY;
      for (size_t v = 0; v < static_cast<size_t>(kVocab); ++v) {
        first = std::max(first, scores[v] - widths[v]);
        if (is_draw) best = std::max(best, score_of(v, scores[v] - widths[v]));
      }
      for (size_t v = 0; v < static_cast<size_t>(kVocab); ++v) {
        const float upper = scores[v] + widths[v];
        asked_once += upper >= first || (is_draw && score_of(v, upper) >= best) ? 1 : 0;
      }
    }
    EXPECT_LT(2 * survivors, asked_once) << params.temperature;
  }
}

}  // namespace
}  // namespace sluice::test
