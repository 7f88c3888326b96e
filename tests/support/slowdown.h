// How much less of a long test to run under a sanitizer.
#pragma once

namespace sluice::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 8;
#else
inline constexpr int kSlowdown = 1;
#endif

// What a test tries many times, with random values or in all combinations, it tries a third as
// often with a sanitizer, which looks at how memory is used; answers are compared in a build
// without one.
inline constexpr int kShare = kSlowdown == 1 ? 1 : 3;
constexpr int Rounds(int rounds) { return (rounds + kShare - 1) / kShare; }
// The number of a combination is counted through all loops, so that each value of each loop has its
// turn: 3 divides the length of no inner one.
constexpr bool IsTried(int number) { return number % kShare == 0; }

}  // namespace sluice::test
