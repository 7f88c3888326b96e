// dense_head: hidden states to logits, the same bits everywhere.
#include "python/errors.h"
#include "python/execution.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "sluice/head.hpp"

namespace sluice::python {
namespace {

nb::object DoDenseHead(nb::handle weight_object, nb::handle hidden_object, nb::kwargs kwargs) {
  const Arguments arguments(Keywords{Keyword::bias, Keyword::query_start_loc, Keyword::out,
                                     Keyword::backend, Keyword::threads},
                            kwargs);
  const MatrixArgument weight = GetMatrix("weight", weight_object);
  weight.array.CheckDims("weight", 2, 2);
  const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
  DenseHead head{weight.view, {}};
  std::optional<Elements<const float>> bias;
  if (const nb::handle given = arguments[Keyword::bias]; given.is_valid()) {
    bias.emplace(GetElements<const float>("bias", given, Access::kRead, {weight.view.rows}));
    head.bias = bias->values;
  }
  std::vector<int32_t> starts;
  int64_t rows = hidden.view.rows;
  if (const nb::handle given = arguments[Keyword::query_start_loc]; given.is_valid()) {
    starts = GetInts("query_start_loc", given);
    if (starts.empty()) ThrowValue("query_start_loc", "empty", "requests + 1 elements");
    rows = static_cast<int64_t>(starts.size()) - 1;
  }
  Execution execution;
  execution.backend = BackendFrom(arguments[Keyword::backend]);
  execution.parallel = ParallelFrom(arguments[Keyword::threads]);

  const bool is_row = hidden.is_row && starts.empty();
  const int64_t vocab = weight.view.rows;
  const auto project = [&](float* logits, int64_t stride) {
    execution.workspace = Workspace(ProjectWorkspaceBytes(head, hidden.view, execution));
    const nb::gil_scoped_release release;
    Project(head, hidden.view, starts, {logits, rows, vocab, stride}, execution);
  };
  if (const nb::handle out = arguments[Keyword::out]; out.is_valid()) {
    const auto given = is_row ? GetElements<float>("out", out, Access::kWrite, {vocab})
                              : GetElements<float>("out", out, Access::kWrite, {rows, vocab});
    project(given.values.data(), vocab);
    return nb::borrow(out);
  }
  const auto width = static_cast<size_t>(vocab);
  const auto made =
      is_row ? MakeNumpy<float>({width}) : MakeNumpy<float>({static_cast<size_t>(rows), width});
  project(made.values.data(), vocab);
  return made.object;
}

constexpr const char* kDenseHeadSignature =
    "def dense_head(weight: typing.Any, hidden: typing.Any, *, bias: typing.Any = None, "
    "query_start_loc: numpy.typing.ArrayLike | None = None, out: typing.Any = None, "
    "backend: str | None = None, threads: Threads | None = None) "
    "-> numpy.typing.NDArray[numpy.float32]";

constexpr const char* kDenseHeadDoc =
    R"(The vocabulary projection: hidden [positions, dim] times weight [vocab, dim], plus bias.

The sums run in a fixed order, so the bits are the same on every backend, for any batch.
``query_start_loc`` has requests + 1 ascending offsets into the positions; then only the last
position of each request is projected. ``out``: float32, [positions or requests, vocab].

    >>> weight = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    >>> sluice.dense_head(weight, np.array([[2, 3]], np.float32))
    array([[2., 3., 5.]], dtype=float32))";

}  // namespace

void BindDenseHead(nb::module_& module) {
  module.def("dense_head", DoDenseHead, nb::arg("weight").none(), nb::arg("hidden").none(),
             nb::arg("kwargs"), nb::sig(kDenseHeadSignature), kDenseHeadDoc);
}

}  // namespace sluice::python
