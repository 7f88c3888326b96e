// The weight over its whole domain: every fp32 value of t in [-41, 0].
#include "semantics/weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace sluice::semantics {
namespace {

constexpr uint32_t kLargestT = 0x80000000u;   // -0
constexpr uint32_t kSmallestT = 0xc2240000u;  // -41

struct Findings {
  int64_t values = 0;
  int64_t rises = 0;            // W(t) > W(the next larger t)
  double relative_error = 0.0;  // against exp2 in fp64, for t > -12
};

// Bits ascend as t falls. `first` is compared with the value before it as well.
Findings Check(uint32_t first, uint32_t last) {
  Findings found;
  uint64_t previous = WeightOf(FloatOf(first == kLargestT ? first : first - 1));
  for (uint32_t bits = first; bits <= last; ++bits) {
    const float t = FloatOf(bits);
    const uint64_t w = WeightOf(t);
    found.rises += w > previous ? 1 : 0;
    previous = w;
    ++found.values;
    if (t > -12.0f) {
      const double exact = std::exp2(static_cast<double>(t)) * 0x1p40;
      const double error = std::abs(static_cast<double>(w) - exact) / exact;
      if (error > found.relative_error) found.relative_error = error;
    }
  }
  return found;
}

Findings CheckInParallel(uint32_t first, uint32_t last) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Findings> parts(threads);
  std::vector<std::thread> pool;
  const uint64_t span = uint64_t{last} - first + 1;
  for (unsigned i = 0; i < threads; ++i) {
    pool.emplace_back([&, i] {
      parts[i] = Check(static_cast<uint32_t>(first + span * i / threads),
                       static_cast<uint32_t>(first + span * (i + 1) / threads - 1));
    });
  }
  Findings all;
  for (unsigned i = 0; i < threads; ++i) {
    pool[i].join();
    all.values += parts[i].values;
    all.rises += parts[i].rises;
    all.relative_error = std::max(all.relative_error, parts[i].relative_error);
  }
  return all;
}

TEST(Weight, NeverRisesAndIsAccurateOverEveryValueOfT) {
  const Findings found = CheckInParallel(kLargestT, kSmallestT);
  EXPECT_EQ(found.values, 1109655553);  // and -0 itself
  EXPECT_EQ(found.rises, 0);
  EXPECT_LE(found.relative_error, 1.7e-7);
}

}  // namespace
}  // namespace sluice::semantics
