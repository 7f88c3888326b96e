// Counts allocations of the process: link counting_allocator.cc into a test that promises none.
#pragma once

#include <cstdint>

namespace sluice::test {

// Number of calls of operator new since the process started.
int64_t AllocationCount();

}  // namespace sluice::test
