// Where operator new is a sanitizer's: nothing is counted.
#include "tests/support/counting_allocator.h"

namespace sluice::test {

int64_t AllocationCount() { return 0; }
int64_t AllocatedBytes() { return 0; }

NoMemory::NoMemory() = default;
NoMemory::~NoMemory() = default;

}  // namespace sluice::test
