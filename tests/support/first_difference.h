// Comparing sequences by bits: says where the first difference is, instead of that there is one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>

#include "sluice/cut.hpp"

namespace sluice {

inline void PrintTo(const Cut& cut, std::ostream* out) {
  *out << "Cut{upper " << cut.upper << " drops " << cut.ties_dropped << " ties, lower " << cut.lower
       << " keeps " << cut.ties_kept << " ties, count " << cut.count << ", " << Name(cut.status)
       << "}";
}

inline void PrintTo(const CutMass& mass, std::ostream* out) {
  *out << "CutMass{kept " << mass.kept << ", total " << mass.total << ", margin " << mass.margin
       << "}";
}

inline void PrintTo(const TokenResult& result, std::ostream* out) {
  *out << "TokenResult{id " << result.id << ", " << Name(result.status) << ", logprob "
       << result.logprob << ", rank " << result.rank << ", ";
  PrintTo(result.cut, out);
  *out << "}";
}

namespace test {

// Equal bits in every field: NaN equals the same NaN, -0 differs from +0.
inline bool SameBits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }
inline bool SameBits(const Cut& a, const Cut& b) {
  return SameBits(a.upper, b.upper) && SameBits(a.lower, b.lower) && a == b;
}
inline bool SameBits(const TokenResult& a, const TokenResult& b) {
  return a.id == b.id && a.status == b.status && SameBits(a.logprob, b.logprob) &&
         a.rank == b.rank && SameBits(a.cut, b.cut);
}
template <typename T>
bool SameBits(const T& a, const T& b) {
  return a == b;
}

// EXPECT_TRUE(SameSequence(actual, expected))
template <typename A, typename B>
::testing::AssertionResult SameSequence(const A& actual, const B& expected) {
  if (std::size(actual) != std::size(expected)) {
    return ::testing::AssertionFailure()
           << std::size(actual) << " elements instead of " << std::size(expected);
  }
  for (size_t i = 0; i < std::size(actual); ++i) {
    if (SameBits(actual[i], expected[i])) continue;
    return ::testing::AssertionFailure()
           << "first difference at element " << i << " of " << std::size(actual) << ": "
           << ::testing::PrintToString(actual[i]) << " instead of "
           << ::testing::PrintToString(expected[i]);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace test
}  // namespace sluice
