// Where and with what a call runs. The library has no threads and no memory of its own: both are
// passed in.
//
// All spans of the interface are host memory; only what a view points to may lie on a device. Calls
// may run concurrently with each other as long as they write to different memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/algorithm.hpp"

namespace sluice {

enum class Backend : uint8_t {
  kAuto,       // the fastest one available; the environment variable SLUICE_BACKEND names another
  kRef,        // the scalar definition
  kCpuAvx2,    // vectors of 256 bits
  kCpuAvx512,  // vectors of 512 bits
};

struct BackendInfo {
  Backend backend;
  std::string_view name;
  bool available;
  std::string_view reason;  // why it is not available
};

// All backends of this version, the fastest first.
std::span<const BackendInfo> Backends();

// The backend of that name; "cpu" is the widest available one of the cpu backends. Throws Error
// naming the known ones.
Backend BackendByName(std::string_view name);

// Runs task(state, index, worker) for every index in [0, count), on any threads and in any order.
// `worker` is below `workers` and no two tasks run at once with the same one.
struct ParallelFor {
  using Task = void (*)(void* state, int64_t index, int worker);

  int workers = 1;
  void* context = nullptr;
  void (*run)(void* context, int64_t count, Task task, void* state) = nullptr;  // null is serial
};

struct Execution {
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
  // At least as many bytes as the ...WorkspaceBytes function of the call answers, aligned to
  // kWorkspaceAlignment. Its content afterwards means nothing.
  std::span<std::byte> workspace = {};
  void* stream = nullptr;  // the CUDA stream, for views of device memory
  // How to select. The reference backend has one way only, the definition.
  SelectAlgorithm algorithm = SelectAlgorithm::kAuto;
  std::span<SelectWork> work = {};  // Select and Sample report here: empty, or one a row
};

inline constexpr size_t kWorkspaceAlignment = 64;

}  // namespace sluice
