// What writing and reading an OUTPUT costs a token: printed, and far below the bar on any machine
// that is not overloaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "link/wire/wire.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

TEST(WireCost, OfATokenIsTensOfNanoseconds) {
  constexpr int32_t kRows = 256;
  std::vector<int32_t> ids(kRows);
  std::vector<OutputRow> rows(kRows);
  for (int32_t i = 0; i < kRows; ++i) {
    const auto at = static_cast<size_t>(i);
    ids[at] = 500 * i;
    rows[at] = {.address = {i, 70'000u}, .first_token = 300 + i, .ids = {&ids[at], 1}};
  }
  std::string bytes;
  link::EngineFrame read;
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds least = std::chrono::hours(1);
  for (int round = 0; round < 300; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < 10; ++i) {
      link::WriteOutput({link::FrameType::kOutput, 1ull << 60, 1000}, 1000, 1ll << 50, rows, bytes);
      ASSERT_EQ(link::ReadEngineFrame(bytes, read), "");
    }
    least = std::min<std::chrono::nanoseconds>(least, (Clock::now() - begin) / 10);
  }
  const double cost = static_cast<double>(least.count()) / kRows;
  std::printf("an OUTPUT of %d rows: %zu bytes, written and read in %.1f ns a token\n", kRows,
              bytes.size(), cost);
  // Some 30 on a quiet core, of at most 50: ten times that is a slow machine.
  EXPECT_LT(cost, 500 * kSlowdown * kSlowdown);
}

}  // namespace
}  // namespace sluice::test
