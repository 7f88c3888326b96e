// Tests of time that is bounded: what is hostile takes milliseconds where it is, and minutes where
// it is not, so that the bound may be generous to slow machines; a sanitizer gets its share more.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/slowdown.h"

namespace sluice::test {

template <typename Body>
testing::AssertionResult EndsWithin(double seconds, Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const double most = seconds * kSlowdown;
  if (taken.count() <= most) return testing::AssertionSuccess();
  return testing::AssertionFailure() << taken.count() << " s of at most " << most;
}

}  // namespace sluice::test
