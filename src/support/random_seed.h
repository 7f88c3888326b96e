// Seeds for callers without one.
#pragma once

#include <cstdint>

namespace sluice {

// 64 bits from the operating system, in 0.5 us; std::random_device, which takes 24 us on a virtual
// machine, only where there is no getentropy or it fails. Throws when neither gives any.
uint64_t RandomSeed();

}  // namespace sluice
