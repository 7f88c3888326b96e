// Angles by fixed operations, against the C library in fp64.
#include "model/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/rotary_math.h"

namespace sluice::model {
namespace {

TEST(RotaryMath, LogarithmsAndPowersAreThoseOfTheCLibraryToFifteenDigits) {
  for (double x = 1e-9; x < 1e12; x *= 1.37) {
    EXPECT_NEAR(Log2Exactly(x), std::log2(x), 1e-14 * (1 + std::fabs(std::log2(x)))) << x;
  }
  for (double x = -40; x < 40; x += 0.0173) {
    EXPECT_NEAR(Exp2Exactly(x), std::exp2(x), 1e-14 * std::exp2(x)) << x;
  }
}

TEST(RotaryMath, AnglesAreThoseOfTheCLibraryRoundedToFloat) {
  int64_t differ = 0, all = 0;
  for (double x = 0; x < 200000; x += 0.7309) {
    const Angle angle = AngleOf(x);
    EXPECT_NEAR(angle.cosine, std::cos(x), 1e-10) << x;
    EXPECT_NEAR(angle.sine, std::sin(x), 1e-10) << x;
    differ += static_cast<float>(angle.sine) != static_cast<float>(std::sin(x)) ? 1 : 0;
    ++all;
  }
  // Halfway cases of the last rounding: the error of 1e-15 against a place of 2^-24.
  EXPECT_LT(differ, all / 10000);
}

TEST(Rotary, TurnsPairIByThetaToTheMinusTwoIByDim) {
  const Rotary rotary = MakeRotary(nullptr, 10000.0, 64, 2048);
  ASSERT_EQ(rotary.frequencies.size(), 32u);
  EXPECT_EQ(rotary.frequencies[0], 1.0f);
  for (size_t i = 0; i < 32; ++i) {
    const double wanted = std::pow(10000.0, -2.0 * static_cast<double>(i) / 64);
    EXPECT_NEAR(rotary.frequencies[i], wanted, wanted * 0x1p-22);  // two roundings to fp32
  }
  float cosines[32], sines[32];
  rotary.AnglesAt(0, cosines, sines);
  EXPECT_EQ(cosines[5], 1.0f);
  EXPECT_EQ(sines[5], 0.0f);
  rotary.AnglesAt(1, cosines, sines);
  EXPECT_EQ(cosines[0], static_cast<float>(std::cos(1.0)));
  EXPECT_EQ(sines[0], static_cast<float>(std::sin(1.0)));
}

}  // namespace
}  // namespace sluice::model
