// Tests of time that is bounded: what is hostile takes milliseconds where it is, and minutes where
// it is not, so that the bound may be generous to slow machines and to sanitizers.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

namespace sluice::test {

template <typename Body>
testing::AssertionResult EndsWithin(double seconds, Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (taken.count() <= seconds) return testing::AssertionSuccess();
  return testing::AssertionFailure() << taken.count() << " s of at most " << seconds;
}

}  // namespace sluice::test
