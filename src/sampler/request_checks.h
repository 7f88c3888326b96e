// What the Sampler and the DeviceSampler check alike of requests and of the handles that name them.
#pragma once

#include <cstdint>

#include "sluice/sampler.hpp"

namespace sluice {

void CheckLimits(const Limits& limits);

// Of a request to add: all but its processors.
void CheckNewRequest(const Request& request, int64_t vocab, const Limits& limits);

// Of a request of a step: all but the bitmask. device: of its draft probabilities or draft model.
void CheckStepRequest(const StepRequest& request, DraftMode mode, int64_t vocab, DeviceKind device);

[[noreturn]] void ThrowAllSlotsTaken(int32_t max_requests);
[[noreturn]] void ThrowRemovedRequest();
[[noreturn]] void ThrowRequestTwice();

}  // namespace sluice
