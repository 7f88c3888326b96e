// What ends of masses say of a token: no more and no less than all masses between them.
#include "semantics/filters/nucleus.h"

#include <gtest/gtest.h>

#include "tests/support/random.h"

namespace sluice::test {
namespace {

using semantics::Between;
using semantics::Membership;

TEST(TopPMembership, IsWhatAllMassesBetweenTheEndsSay) {
  Random random(1);
  const std::vector<float> shares = {0.9f, 0.5f, 0.3f, 1e-12f, 0.99999994f};
  int counts[3] = {};
  for (int n = 0; n < 20000; ++n) {
    const uint64_t unit = random.Coin() ? 1 : uint64_t{1} << 50;
    const auto some = [&] {
      const auto least = static_cast<uint64_t>(random.Below(12));
      return Between{least * unit, (least + static_cast<uint64_t>(random.Below(4))) * unit};
    };
    const Between above = some(), rest = some();
    const float p = random.Pick(shares);
    const TopPBoundary boundary =
        random.Coin() ? TopPBoundary::kExclusive : TopPBoundary::kInclusive;
    bool is_kept = false, is_dropped = false;
    for (uint64_t a = above.least; a <= above.most; a += unit) {
      for (uint64_t b = rest.least; b <= rest.most; b += unit) {
        const uint64_t target = semantics::TargetMass(p, a + b);
        (semantics::TopPKeeps(a, target, boundary) ? is_kept : is_dropped) = true;
      }
    }
    const Membership expected = is_kept && is_dropped ? Membership::kUnknown
                                : is_kept             ? Membership::kKept
                                                      : Membership::kDropped;
    ASSERT_EQ(semantics::TopPMembership(above, rest, p, boundary), expected)
        << above.least << " " << above.most << " " << rest.least << " " << rest.most << " " << p;
    ++counts[static_cast<int>(expected)];
  }
  for (const int count : counts) EXPECT_GT(count, 1000);
}

}  // namespace
}  // namespace sluice::test
