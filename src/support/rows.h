// Running a loop over rows on the caller's parallel-for, with the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "sluice/execution.hpp"
#include "sluice/params.hpp"
#include "support/float_environment.h"

namespace sluice {

// The element for a row of an argument that has one for all rows or one a row.
template <typename T>
const T& PerRow(std::span<const T> values, int64_t row) {
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(row)];
}

constexpr size_t RoundUp(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

// A worker's part of the workspace, `bytes` each.
inline std::byte* WorkerWorkspace(const Execution& execution, size_t bytes, int worker) {
  return execution.workspace.data() + static_cast<size_t>(worker) * RoundUp(bytes);
}

inline size_t WorkspaceBytes(const Execution& execution, size_t bytes_a_worker) {
  return static_cast<size_t>(execution.parallel.workers) * RoundUp(bytes_a_worker);
}

// Whether some row's parameters need a key to select.
inline bool AnyXtc(std::span<const SelectParams> params) {
  for (const SelectParams& row : params) {
    if (!(row.xtc_probability == 0.0f)) return true;
  }
  return false;
}

// Not inlined, so that no arithmetic of the body moves out of the environment.
template <typename Body>
[[gnu::noinline]] void CallBody(Body& body, int64_t row, int worker) {
  body(row, worker);
}

// body(row, worker) for every row, each in the defined floating-point environment.
template <typename Body>
void ForEachRow(const ParallelFor& parallel, int64_t rows, Body&& body) {
  auto task = [](void* state, int64_t row, int worker) {
    const FloatEnvironment environment;
    CallBody(*static_cast<std::remove_reference_t<Body>*>(state), row, worker);
  };
  if (parallel.run != nullptr) {
    parallel.run(parallel.context, rows, task, &body);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) task(&body, row, 0);
}

}  // namespace sluice
