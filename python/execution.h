// Where and with what a call runs: backend and algorithm by name, sluice.Threads, and a workspace
// that each thread of Python keeps from call to call.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

#include "python/values/keywords.h"
#include "sluice/execution.hpp"
#include "sluice/research/algorithms.hpp"
#include "support/thread_pool.h"

namespace sluice::python {

namespace nb = nanobind;

inline constexpr Keywords kExecutionKeywords = {Keyword::backend, Keyword::algorithm,
                                                Keyword::threads};

// sluice.Threads.
using Threads = ThreadPool;

Backend BackendFrom(nb::handle name);
ParallelFor ParallelFrom(nb::handle threads);

// An Execution, and the algorithm that selects, which may be one of research.
struct SelectExecution : Execution {
  research::Algorithm select_by = research::Algorithm::kAuto;
};

// Everything but the workspace.
SelectExecution ExecutionFrom(const Arguments& arguments);

// This thread's workspace, of at least so many bytes.
std::span<std::byte> Workspace(size_t bytes);

void BindExecution(nb::module_& module);

}  // namespace sluice::python
