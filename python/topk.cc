// topk: the k largest of each row of scores.
#include "sluice/topk.hpp"

#include <optional>

#include "python/execution.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/results.h"

namespace sluice::python {
namespace {

// The columns of a hint: [requests, columns], or [columns] for one request.
int32_t HintColumns(nb::handle hint, std::vector<int32_t>& indices) {
  Array array = Array::Get("hint", hint, Access::kRead, "an array of int32");
  array.CheckDims("hint", 1, 2);
  const int64_t requests = array.ndim() == 1 ? 1 : array.shape(0);
  const int64_t columns = array.shape(array.ndim() - 1);
  const Elements<const int32_t> elements =
      array.ndim() == 1
          ? GetElements<const int32_t>("hint", hint, Access::kRead, {columns})
          : GetElements<const int32_t>("hint", hint, Access::kRead, {requests, columns});
  indices.assign(elements.values.begin(), elements.values.end());
  return static_cast<int32_t>(columns);
}

nb::object DoTopk(nb::handle scores_object, nb::handle k, nb::kwargs kwargs) {
  const Arguments arguments(
      Keywords{Keyword::lengths, Keyword::hint, Keyword::hint_shift, Keyword::thresholds,
               Keyword::next_n, Keyword::sorted, Keyword::values, Keyword::out, Keyword::backend,
               Keyword::threads},
      kwargs);
  const MatrixArgument scores = GetMatrix("scores", scores_object);
  TopkInput input;
  input.scores = scores.Logits();
  input.k = GetNumber<int32_t>("k", k, {1, static_cast<uint64_t>(kMaxVocab)});
  const auto number = [&](Keyword keyword, int32_t& to) {
    if (arguments.Has(keyword)) to = GetNumber<int32_t>(NameOf(keyword), arguments[keyword]);
  };
  number(Keyword::next_n, input.next_n);
  number(Keyword::hint_shift, input.hint_shift);
  input.sorted = arguments.Flag(Keyword::sorted);
  arguments.Flag(Keyword::values);  // they are there anyway
  std::vector<int32_t> lengths;
  if (const nb::handle given = arguments[Keyword::lengths]; given.is_valid()) {
    if (IsNumber(given)) {
      lengths.assign(static_cast<size_t>(input.scores.rows / std::max(1, input.next_n)),
                     GetNumber<int32_t>("lengths", given));
    } else {
      lengths = GetInts("lengths", given);
    }
    input.lengths = lengths;
  }
  std::vector<int32_t> hint;
  if (const nb::handle given = arguments[Keyword::hint]; given.is_valid()) {
    input.hint_columns = HintColumns(given, hint);
    input.hint = hint;
  }

  std::optional<Elements<float>> thresholds;
  if (const nb::handle given = arguments[Keyword::thresholds]; given.is_valid()) {
    thresholds.emplace(GetElements<float>("thresholds", given, Access::kWrite, {scores.view.rows}));
    input.thresholds = thresholds->values;
  }

  Execution execution;
  execution.backend = BackendFrom(arguments[Keyword::backend]);
  execution.parallel = ParallelFrom(arguments[Keyword::threads]);
  const auto output = OutputFor<TopkResults>(arguments[Keyword::out], "TopkResults");
  TopkResults& top = *output.result;
  const size_t size = static_cast<size_t>(scores.view.rows) * static_cast<size_t>(input.k);
  FitRows(top.statuses, scores.view.rows);
  Fit("indices", top.indices, size);
  Fit("values", top.values, size);
  top.k = input.k;
  top.is_row = scores.is_row;
  execution.workspace = Workspace(TopkWorkspaceBytes(input, execution));
  {
    const nb::gil_scoped_release release;
    Topk(input, top.indices, top.values, top.statuses, execution);
  }
  return output.object;
}

constexpr const char* kTopkSignature =
    "def topk(scores: typing.Any, k: int, *, lengths: numpy.typing.ArrayLike | None = None, "
    "hint: typing.Any = None, hint_shift: int = 0, thresholds: typing.Any = None, "
    "next_n: int = 1, sorted: bool = False, "
    "values: bool = True, out: TopkResults | None = None, backend: str | None = None, "
    "threads: Threads | None = None) -> TopkResults";

constexpr const char* kTopkDoc =
    R"(Exactly the k largest of each row of scores, ties to the lowest index.

Indices ascend, or follow the scores with ``sorted=True``; short rows end in -1. ``lengths`` has one
a request of ``next_n`` rows: row r of it sees its first lengths - next_n + r + 1 scores. ``hint``
(int32, [requests, columns], each shifted by ``hint_shift``) may be stale or wrong: it changes the
time, never the answer. ``thresholds`` (float32, one a row, writable; at first NaN) is read, and holds
for the next call what this one has learnt: it changes the time alone, too. CUDA tensors of torch give tensors on their device (sluice.tensors), less
work with ``values=False``.

    >>> scores = np.array([[1, 3, 2, 3], [5, 6, 7, 8]], np.float32)
    >>> sluice.topk(scores, 2, lengths=[4, 3]).indices
    array([[1, 3],
           [1, 2]], dtype=int32))";

}  // namespace

void BindTopk(nb::module_& module) {
  module.def("topk", DoTopk, nb::arg("scores").none(), nb::arg("k").none(), nb::arg("kwargs"),
             nb::sig(kTopkSignature), kTopkDoc);
}

}  // namespace sluice::python
