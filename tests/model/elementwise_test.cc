// The functions of one number, against those of the C library in fp64.
#include "model/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace sluice::model {
namespace {

// Every 37th float of both signs up to `largest`: 100 million and more in a run would take a
// minute.
void ForManyFloats(float largest, const std::function<void(float)>& check) {
  const uint32_t end = semantics::BitsOf(largest);
  for (uint32_t bits = 0; bits < end; bits += 1024 + 37) {
    check(semantics::FloatOf(bits));
    check(-semantics::FloatOf(bits));
  }
}

double UnitsInTheLastPlace(float found, double wanted) {
  const double unit = std::nextafter(std::fabs(static_cast<float>(wanted)), INFINITY) -
                      std::fabs(static_cast<float>(wanted));
  return std::fabs(found - wanted) / unit;
}

TEST(Exp, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0.0;
  ForManyFloats(kExpHigh, [&](float x) {
    if (x < kExpLow) return;
    worst = std::max(worst, UnitsInTheLastPlace(Exp(x), std::exp(static_cast<double>(x))));
  });
  EXPECT_LT(worst, 2.0);
  EXPECT_GT(worst, 0.5);  // no polynomial is that good: the comparison would be broken
}

TEST(Exp, IsOneAtZeroAndDefinedEverywhere) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-INFINITY), 0.0f);
  EXPECT_EQ(Exp(-1e4f), 0.0f);
  EXPECT_EQ(Exp(INFINITY), INFINITY);
  EXPECT_EQ(Exp(1e4f), INFINITY);
  EXPECT_TRUE(std::isnan(Exp(NAN)));
  EXPECT_GT(Exp(kExpLow), 0.0f);
  EXPECT_LT(Exp(kExpHigh), INFINITY);
}

TEST(Exp, NeverFallsByMoreThanItsError) {
  float last = 0.0f;
  for (float x = kExpLow; x < kExpHigh; x += 0.0007f) {
    const float y = Exp(x);
    EXPECT_GT(y, last * (1.0f - 0x1p-21f)) << x;
    last = y;
  }
}

// Relative errors: three roundings beside Exp's.
TEST(Silu, IsXTimesSigmoid) {
  ForManyFloats(80.0f, [](float x) {
    const double wanted = x / (1.0 + std::exp(-static_cast<double>(x)));
    ASSERT_NEAR(Silu(x), wanted, std::fabs(wanted) * 0x1p-21 + 0x1p-149) << x;
  });
}

TEST(GeluTanh, IsTheFormulaWithTanh) {
  ForManyFloats(20.0f, [](float x) {
    const double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * std::pow(static_cast<double>(x), 3));
    // 1 + tanh(u) without the cancellation that it has for negative u.
    const double wanted = x / (1.0 + std::exp(-2.0 * u));
    // An error of u's last place is one of e^-2u times |2u|, which is 90 where Exp still counts.
    ASSERT_NEAR(GeluTanh(x), wanted, std::fabs(wanted) * 0x1p-15 + 0x1p-120) << x;
  });
}

TEST(SoftCap, IsATanhThatNeverExceedsTheCap) {
  ForManyFloats(1e6f, [](float x) {
    const float y = SoftCap(x, 30.0f);
    // Absolute: 1 - e loses the low bits of small values, which no softmax can tell from zero.
    ASSERT_NEAR(y, 30.0 * std::tanh(x / 30.0), 30.0 * 0x1p-22) << x;
    ASSERT_LE(std::fabs(y), 30.0f);
    ASSERT_EQ(std::signbit(y), std::signbit(x));
  });
}

}  // namespace
}  // namespace sluice::model
