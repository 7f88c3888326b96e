// A hundred thousand steps of random requests that join and leave, and ten thousand calls of Step
// with all that a step can have, against the Sampler.
#include "tests/sampler/device/device_mix.h"

namespace sluice::test {
namespace {

using DeviceSamplerSoak = DeviceTest;

TEST_F(DeviceSamplerSoak, EqualsTheSamplerForAHundredThousandSteps) {
  Random random(23);
  int64_t steps = 0;
  for (int round = 0; steps < 100000 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Mix mix({.vocab = random.Between(5, 300),
             .dtype = kAllDTypes[round % 3],
             .max_requests = round % 2 == 0 ? 12 : 48,
             .cuts = round % 2 == 1},
            random.Bits());
    for (int step = 0; step < 250 && !HasFailure(); ++step) mix.Step();
    steps += mix.steps();
  }
}

// In parts, so that several processes can share them.
class DeviceSamplerLongRun : public DeviceTest, public ::testing::WithParamInterface<int> {};

TEST_P(DeviceSamplerLongRun, OfTreesProcessorsAndUnreadAnswersEqualsTheSampler) {
  const int part = GetParam();
  Random random(61 + static_cast<uint64_t>(part));
  Mix mix({.vocab = random.Between(20, 300),
           .dtype = kAllDTypes[part % 3],
           .max_requests = part % 2 == 0 ? 8 : 20,
           .max_drafts = part % 2 == 0 ? 8 : 4,
           .cuts = part % 2 == 1,
           .kept = part % 4 == 2,
           .processors = part % 4 != 3,
           .head = part % 5 == 4,
           .unread = part % 4},
          random.Bits());
  while (mix.calls() < 1000 && !HasFailure()) mix.Step();
}

INSTANTIATE_TEST_SUITE_P(, DeviceSamplerLongRun, ::testing::Range(0, 10));

}  // namespace
}  // namespace sluice::test
