// Tests of time that is bounded: what is hostile takes milliseconds where it is, and minutes where
// it is not, so that the bound may be generous to slow machines; a sanitizer gets its share more.
// It is the thread's own time, which other processes do not take.
#pragma once

#include <gtest/gtest.h>

#include <ctime>

#include "tests/support/slowdown.h"

namespace sluice::test {

inline double ThreadSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Body>
testing::AssertionResult EndsWithin(double seconds, Body body) {
  const double start = ThreadSeconds();
  body();
  const double taken = ThreadSeconds() - start;
  const double most = seconds * kSlowdown;
  if (taken <= most) return testing::AssertionSuccess();
  return testing::AssertionFailure() << taken << " s of at most " << most;
}

}  // namespace sluice::test
