// The helpers that other tests lean on: a comparison that cannot fail proves nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/batch.h"
#include "tests/support/chi_square.h"
#include "tests/support/first_difference.h"
#include "tests/support/random.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// 100,000 draws from .5 .3 .2, against that law and against one that is off by one in a hundred.
TEST(ChiSquare, AcceptsTheRightLawAndDetectsAWrongOne) {
  Random random(1);
  std::vector<int64_t> counts(3);
  for (int i = 0; i < 100000; ++i) {
    const double u = random.Uniform();
    ++counts[u < 0.5 ? 0 : u < 0.8 ? 1 : 2];
  }
  const ChiSquare right = ChiSquareOf(counts, std::vector<double>{0.5, 0.3, 0.2});
  EXPECT_EQ(right.degrees_of_freedom, 2);
  EXPECT_LT(right.statistic, ChiSquareLimit(2));
  const ChiSquare wrong = ChiSquareOf(counts, std::vector<double>{0.51, 0.29, 0.2});
  EXPECT_GT(wrong.statistic, ChiSquareLimit(2));
}

// Cells too rare for the statistic are one cell: a thousand of them may not hide a draw that the
// law forbids, and do not count as degrees of freedom.
TEST(ChiSquare, PoolsRareCells) {
  std::vector<int64_t> counts(1001);
  std::vector<double> law(1001, 1e-6);
  law[0] = 1.0 - 1e-3;
  counts[0] = 99900;
  counts[5] = 100;
  const ChiSquare pooled = ChiSquareOf(counts, law);
  EXPECT_EQ(pooled.degrees_of_freedom, 1);
  EXPECT_NEAR(pooled.statistic, 0.0, 1e-6);
}

// The exact quantiles. The approximation is never below them (a right law would fail more often
// than once in a million) and far above only where the degrees of freedom are few.
TEST(ChiSquare, LimitIsAtLeastTheQuantileOfAMillionth) {
  struct {
    int degrees_of_freedom;
    double quantile;
    double slack;
  } const exact[] = {
      {1, 23.928, 1.16}, {2, 27.631, 1.10}, {10, 46.863, 1.03}, {100, 182.127, 1.01}};
  for (const auto& [k, quantile, slack] : exact) {
    EXPECT_GE(ChiSquareLimit(k), quantile);
    EXPECT_LE(ChiSquareLimit(k), quantile * slack);
  }
}

TEST(SameSequence, NamesTheFirstDifference) {
  const std::vector<int> a = {1, 2, 3, 4};
  const std::vector<int> b = {1, 2, 9, 9};
  EXPECT_TRUE(SameSequence(a, a));
  const ::testing::AssertionResult result = SameSequence(a, b);
  EXPECT_FALSE(result);
  EXPECT_STREQ(result.message(), "first difference at element 2 of 4: 3 instead of 9");
  EXPECT_FALSE(SameSequence(a, std::vector<int>{1, 2, 3}));
}

TEST(SameSequence, ComparesBits) {
  using Values = std::vector<float>;
  EXPECT_TRUE(SameSequence(Values{kNan}, Values{kNan}));
  EXPECT_FALSE(SameSequence(Values{0.0f}, Values{-0.0f}));
  EXPECT_FALSE(SameSequence(std::vector<Cut>{{.lower = 0.0f}}, std::vector<Cut>{{.lower = -0.0f}}));
}

// What lies between the rows would change every answer that read it.
TEST(Batch, PoisonsThePaddingAndKeepsTheValues) {
  for (const DType dtype : kAllDTypes) {
    const Batch batch({{1, 2}, {3, 4}}, dtype, 4);
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(batch.Get(r, i), static_cast<float>(2 * r + i + 1));
      }
      for (int64_t i = 2; i < 6; i += 2) {
        EXPECT_GT(batch.Get(r, i), 1e29f);
        EXPECT_TRUE(std::isnan(batch.Get(r, i + 1)));
      }
    }
    EXPECT_NE(reinterpret_cast<uintptr_t>(batch.view().data) % 64, 0u);
  }
}

// Hostile rows go through every dtype: each stays what its name says. Ties stay ties because
// narrowing is a function; what must not happen is that a value turns infinite or into a zero.
TEST(HostileRows, StayHostileInEveryDType) {
  for (const HostileRow& row : HostileRows()) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      for (const float x : row.values) {
        const float back = Widened(Narrowed(x, dtype), dtype);
        EXPECT_EQ(std::fpclassify(back), std::fpclassify(x))
            << row.name << " " << Name(dtype) << " " << x;
        EXPECT_EQ(std::signbit(back), std::signbit(x)) << row.name << " " << Name(dtype);
      }
    }
  }
}

TEST(Workspace, IsAligned) {
  for (const size_t bytes : {size_t{1}, size_t{64}, size_t{1000}}) {
    const Workspace workspace(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.span().data()) % kWorkspaceAlignment, 0u);
    EXPECT_EQ(workspace.span().size(), bytes);
  }
}

}  // namespace
}  // namespace sluice::test
