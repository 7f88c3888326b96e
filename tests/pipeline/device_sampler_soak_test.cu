// A hundred thousand steps of random requests that join and leave, against the Sampler.
#include "tests/pipeline/device_mix.h"

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

}  // namespace
}  // namespace sluice::test
