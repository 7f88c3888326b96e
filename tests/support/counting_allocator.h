// Counts allocations of the process: link counting_allocator.cc into a test that promises none.
#pragma once

#include <cstdint>

namespace sluice::test {

// Number of calls of operator new since the process started.
int64_t AllocationCount();
// What they asked for, all together.
int64_t AllocatedBytes();

// While one lives, operator new throws std::bad_alloc in this thread.
class NoMemory {
 public:
  NoMemory();
  ~NoMemory();
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace sluice::test
