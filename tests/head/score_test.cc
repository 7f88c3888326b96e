// Intervals from planes: they hold the defined logits, and are the same on every backend.
#include <gtest/gtest.h>

#include "head/certified/score_table.h"
#include "tests/head/intervals.h"
#include "tests/support/first_difference.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr CertificateKind kKinds[] = {CertificateKind::kDither4, CertificateKind::kStrict};

std::vector<float> SomeBias(int64_t vocab, Random& random) {
  std::vector<float> bias;
  for (int64_t v = 0; v < vocab; ++v) bias.push_back(static_cast<float>(3.0 * random.Normal()));
  return bias;
}

TEST(Intervals, HoldEveryLogitOfEveryKindOfHead) {
  Random random(1);
  double worst = 0.0;
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const DType dtype : kAllDTypes) {
      const int64_t dim = random.Between(1, 700);
      const Rows rows = Representable(MakeHead(head_kind, 150, dim, random), dtype);
      const Batch weight(rows, dtype, random.Below(4));
      const std::vector<float> bias = random.Coin() ? SomeBias(150, random) : std::vector<float>();
      for (const CertificateKind kind : kKinds) {
        const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {});
        Rows states;
        for (const HiddenKind hidden_kind : kAllHiddenKinds) {
          states.push_back(MakeHidden(hidden_kind, rows, random));
        }
        const Batch hidden(states, kAllDTypes[random.Below(3)]);
        for (const bool is_refined : {false, true}) {
          if (is_refined && kind != CertificateKind::kStrict) continue;
          const auto scored =
              Scored(*ScoreTables().back(), planes, bias, Matrix(hidden), is_refined);
          for (size_t r = 0; r < scored.size(); ++r) {
            const semantics::Row row{Matrix(hidden).Row(static_cast<int64_t>(r)),
                                     Matrix(hidden).dtype, dim};
            const double error = WorstError(scored[r], Matrix(weight), bias, row);
            ASSERT_LE(error, 1.0) << static_cast<int>(head_kind) << " " << Name(dtype) << " "
                                  << Name(kind) << " dim " << dim << " state " << r;
            if (kind == CertificateKind::kDither4) worst = std::max(worst, error);
          }
        }
      }
    }
  }
  RecordProperty("worst_dither_error", std::to_string(worst));
}

TEST(Intervals, AreTheSameBitsOnEveryBackend) {
  Random random(2);
  for (int n = 0; n < 40; ++n) {
    const int64_t vocab = random.Between(1, 100);
    const int64_t dim = random.Between(1, 500);
    const Rows rows =
        MakeHead(random.Coin() ? HeadKind::kTrained : HeadKind::kHugeNorm, vocab, dim, random);
    const Batch weight(rows, DType::kBf16);
    const std::vector<float> bias = n % 2 == 0 ? SomeBias(vocab, random) : std::vector<float>();
    for (const CertificateKind kind : kKinds) {
      const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {});
      Rows states;
      for (int64_t r = 0; r < n % 7 + 1; ++r) {
        states.push_back(MakeHidden(HiddenKind::kNormal, rows, random));
      }
      const Batch hidden(states, DType::kF32);
      for (const bool is_refined : {false, true}) {
        if (is_refined && kind != CertificateKind::kStrict) continue;
        const auto expected = Scored(kScoreRef, planes, bias, Matrix(hidden), is_refined);
        for (const ScoreTable* table : ScoreTables()) {
          const auto actual = Scored(*table, planes, bias, Matrix(hidden), is_refined);
          for (size_t r = 0; r < actual.size(); ++r) {
            ASSERT_TRUE(SameSequence(actual[r].scores, expected[r].scores)) << n;
            ASSERT_TRUE(SameSequence(actual[r].widths, expected[r].widths)) << n;
          }
        }
      }
    }
  }
}

// Many draws of both the dither and the hidden state. The largest of 10^6 normal errors is
// 4.9 standard deviations, of the 9.5 that the bound allows.
TEST(Intervals, HoldOverManyDraws) {
  Random random(3);
  constexpr int64_t kVocab = 512;
  constexpr int64_t kDim = 256;
  constexpr int64_t kStates = 32;
  double worst = 0.0;
  for (int n = 0; n < 60 / kSlowdown; ++n) {
    const Rows rows = MakeHead(HeadKind::kTrained, kVocab, kDim, random);
    const Batch weight(rows, DType::kBf16);
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = random.Bits()}, {});
    Rows states;
    for (int64_t r = 0; r < kStates; ++r) {
      states.push_back(
          MakeHidden(r % 2 == 0 ? HiddenKind::kNormal : HiddenKind::kPeaked, rows, random));
    }
    const Batch hidden(states, DType::kBf16);
    const auto scored = Scored(*ScoreTables().back(), planes, {}, Matrix(hidden));
    for (size_t r = 0; r < scored.size(); ++r) {
      const semantics::Row row{Matrix(hidden).Row(static_cast<int64_t>(r)), DType::kBf16, kDim};
      worst = std::max(worst, WorstError(scored[r], Matrix(weight), {}, row));
    }
  }
  EXPECT_LE(worst, 0.7);  // 6.9 standard deviations
  EXPECT_GE(worst, 0.3);  // else the bound is not what it is thought to be
}

// Not every float can be squared: such rows have no interval, and no wrong one.
TEST(Intervals, OfWhatOverflowsHaveNoEnd) {
  const Batch weight({{1e30f, 1.0f}, {1.0f, 1.0f}}, DType::kF32);
  const Batch hidden({{1e30f, 1.0f}}, DType::kF32);
  for (const CertificateKind kind : kKinds) {
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {});
    for (const ScoreTable* table : ScoreTables()) {
      const ScoredRow scored = Scored(*table, planes, {}, Matrix(hidden))[0];
      EXPECT_FALSE(scored.widths[0] < INFINITY);
    }
  }
}

}  // namespace
}  // namespace sluice::test
