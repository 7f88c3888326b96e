#include "python/execution.h"

#include <memory>
#include <new>
#include <sstream>
#include <string>

#include "json/build_report.h"
#include "python/errors.h"
#include "python/values/numbers.h"
#include "sluice/version.hpp"
#include "support/build_facts.h"

namespace sluice::python {
namespace {

struct Free {
  void operator()(std::byte* memory) const {
    ::operator delete[](memory, std::align_val_t{kWorkspaceAlignment});
  }
};

std::string NameFrom(const char* parameter, nb::handle name) {
  if (!PyUnicode_Check(name.ptr())) ThrowType(parameter, Describe(name), "a name");
  return nb::cast<std::string>(name);
}

nb::list ListBackends() {
  nb::list list;
  for (const BackendInfo& info : Backends()) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["available"] = info.available;
    entry["reason"] = info.reason;
    list.append(entry);
  }
  return list;
}

nb::list ListAlgorithms() {
  nb::list list;
  for (const research::AlgorithmEntry& info : research::Algorithms()) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["when_to_use"] = info.when_to_use;
    entry["limits"] = info.limits;
    entry["source"] = info.source;
    list.append(entry);
  }
  return list;
}

nb::dict Build() {
  nb::dict build;
  build["version"] = kVersionString;
  const BuildFacts facts = ThisBuild();
  build["compiler"] = facts.compiler;
  build["cuda"] = facts.cuda;
  build["assertions"] = facts.has_assertions;
  return build;
}

std::string BuildReport() {
  std::ostringstream json;
  WriteBuildReport(json);
  return json.str();
}

constexpr const char* kThreadsDoc =
    R"(Threads for the rows of a call: ``threads=sluice.Threads(4)``.

They start here and end with the object; no other call of the package starts a thread. The result is
the same with any number. While they serve one call, another one runs without them.

    >>> threads = sluice.Threads(2)
    >>> threads.workers
    2
    >>> sluice.select(np.zeros((3, 8), np.float32), top_k=2, threads=threads).counts
    array([2, 2, 2], dtype=int32))";

}  // namespace

Backend BackendFrom(nb::handle name) {
  return name.is_valid() && !name.is_none() ? BackendByName(NameFrom("backend", name))
                                            : Backend::kAuto;
}

ParallelFor ParallelFrom(nb::handle threads) {
  if (!threads.is_valid() || threads.is_none()) return {};
  Threads* pool = nullptr;
  if (!nb::try_cast(threads, pool)) ThrowType("threads", Describe(threads), "sluice.Threads");
  return pool->parallel();
}

SelectExecution ExecutionFrom(const Arguments& arguments) {
  SelectExecution execution;
  execution.backend = BackendFrom(arguments[Keyword::backend]);
  execution.parallel = ParallelFrom(arguments[Keyword::threads]);
  if (const nb::handle algorithm = arguments[Keyword::algorithm]; algorithm.is_valid()) {
    execution.select_by = research::AlgorithmByName(NameFrom("algorithm", algorithm));
  }
  return execution;
}

std::span<std::byte> Workspace(size_t bytes) {
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    size = 0;
    memory.reset(
        static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kWorkspaceAlignment})));
    size = bytes;
  }
  return {memory.get(), size};
}

void BindExecution(nb::module_& module) {
  nb::class_<Threads>(module, "Threads", kThreadsDoc)
      .def(
          "__init__",
          [](Threads* self, nb::handle workers) {
            new (self) Threads(GetNumber<int>("workers", workers, {1, 1 << 16}));
          },
          nb::arg("workers"), nb::sig("def __init__(self, workers: int) -> None"))
      .def_prop_ro("workers", &Threads::workers, "The number of threads, the caller's included.");

  module.def("backends", ListBackends, nb::sig("def backends() -> list[dict[str, typing.Any]]"),
             R"(All backends of this version, the fastest first, and why one is not available.

    >>> sluice.backends()[-1]
    {'name': 'ref', 'available': True, 'reason': ''})");
  module.def("algorithms", ListAlgorithms, nb::sig("def algorithms() -> list[dict[str, str]]"),
             R"(The ways to select. All give the same answer; an algorithm changes the time only.

    >>> [info["name"] for info in sluice.algorithms()][:2]
    ['auto', 'certified'])");

  module.def("build", Build, nb::sig("def build() -> dict[str, typing.Any]"),
             "What was built: version, compiler, CUDA, and whether assertions are on.");
  module.def("build_report", BuildReport, nb::sig("def build_report() -> str"),
             "What was built and what this machine has, as JSON: for a bug report.");
}

}  // namespace sluice::python
