// The run-time library of CUDA without a device, for tests of what runs on the host: device memory
// is the host's, copies are done at once, kernels and graphs do nothing. Any call can be made to
// fail, and what is asked of events can be made to wait. Link with sluice_fake_cuda_runtime
// (CMake).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::test {

struct FakeRuntime {
  struct Copy {
    void* to;
    size_t bytes;
  };

  // The number of the call that fails, of those that can, from 1 on; 0: none does.
  int64_t failing = 0;
  bool are_events_over = true;

  int64_t calls = 0;     // of those that can fail
  int64_t launches = 0;  // of kernels, outside of graphs and in them
  int64_t graphs = 0;    // that were instantiated
  int64_t device_waits = 0;
  int64_t event_waits = 0;
  int64_t held = 0;  // streams, events, graphs and blocks of memory that nobody has given back
  std::vector<Copy> copies;
};

// Of this process; each test begins with `FakeCuda() = {}`.
FakeRuntime& FakeCuda();

}  // namespace sluice::test
