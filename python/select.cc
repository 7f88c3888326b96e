// select, mask_, kept_bitmask and candidates: which tokens of a row are kept.
#include "sluice/select.hpp"

#include <string>
#include <vector>

#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/results.h"
#include "python/values/rows.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

// What these calls have in common. Cuts come from `cuts=`, or are selected.
struct SelectCall {
  Arguments arguments;
  MatrixArgument logits;
  RowParams params;
  SelectExecution execution;

  SelectCall(Keywords own, nb::handle logits_object, nb::handle params_object, nb::kwargs kwargs,
             Access access = Access::kRead)
      : arguments(kRowKeywords | own, kwargs),
        logits(GetMatrix("logits", logits_object, access)),
        params(params_object, arguments, logits.view.rows),
        execution(ExecutionFrom(arguments)) {
    params.CheckSeeds();
  }

  SelectInput input() const { return InputOf(logits.Logits(), params); }

  // Fills `cuts` and, when there is room for them, `masses`.
  void Select(std::span<Cut> cuts, std::span<CutMass> masses) {
    execution.workspace = Workspace(SelectWorkspaceBytes(logits.Logits(), execution));
    const nb::gil_scoped_release release;
    research::Select(input(), execution.select_by, cuts, masses, execution);
  }

  std::span<const Cut> GetCuts(std::vector<Cut>& selected) {
    if (const nb::handle given = arguments[Keyword::cuts]; given.is_valid()) {
      return CutsFrom("cuts", given).rows;
    }
    selected.resize(static_cast<size_t>(logits.view.rows));
    Select(selected, {});
    return selected;
  }
};

nb::object DoSelect(nb::handle logits, nb::handle params, nb::kwargs kwargs) {
  SelectCall call({Keyword::masses, Keyword::out}, logits, params, kwargs);
  const auto output = OutputFor<Cuts>(call.arguments[Keyword::out], "Cuts");
  Cuts& cuts = *output.result;
  FitRows(cuts.rows, call.logits.view.rows);
  Fit("masses", cuts.masses, call.arguments.Flag(Keyword::masses) ? cuts.rows.size() : 0);
  cuts.is_row = call.logits.is_row;
  call.Select(cuts.rows, cuts.masses);
  return output.object;
}

nb::object DoMask(nb::handle logits, nb::handle params, nb::kwargs kwargs) {
  SelectCall call({Keyword::cuts}, logits, params, kwargs, Access::kWrite);
  std::vector<Cut> selected;
  const std::span<const Cut> cuts = call.GetCuts(selected);
  {
    const nb::gil_scoped_release release;
    Mask(call.logits.MutableLogits(), cuts, call.execution);
  }
  return nb::borrow(logits);
}

nb::object DoKeptBitmask(nb::handle logits, nb::handle params, nb::kwargs kwargs) {
  SelectCall call({Keyword::cuts, Keyword::out}, logits, params, kwargs);
  std::vector<Cut> selected;
  const std::span<const Cut> cuts = call.GetCuts(selected);
  const int64_t rows = call.logits.view.rows;
  const int64_t words = (call.logits.view.columns + 31) / 32;
  const auto fill = [&](std::span<int32_t> bitmask) {
    const nb::gil_scoped_release release;
    KeptBitmask(call.logits.Logits(), cuts, bitmask, call.execution);
  };
  if (const nb::handle out = call.arguments[Keyword::out]; out.is_valid()) {
    const auto given = call.logits.is_row
                           ? GetElements<int32_t>("out", out, Access::kWrite, {words})
                           : GetElements<int32_t>("out", out, Access::kWrite, {rows, words});
    fill(given.values);
    return nb::borrow(out);
  }
  const auto width = static_cast<size_t>(words);
  const auto made = call.logits.is_row ? MakeNumpy<int32_t>({width})
                                       : MakeNumpy<int32_t>({static_cast<size_t>(rows), width});
  fill(made.values);
  return made.object;
}

CandidateOrder OrderFrom(nb::handle order) {
  if (!order.is_valid()) return CandidateOrder::kById;
  if (PyUnicode_Check(order.ptr())) {
    const auto name = nb::cast<std::string>(order);
    if (name == "id") return CandidateOrder::kById;
    if (name == "rank") return CandidateOrder::kByRank;
  }
  ThrowValue("order", Describe(order), "id, rank");
}

CandidateSets DoCandidates(nb::handle logits, nb::handle params, nb::kwargs kwargs) {
  SelectCall call({Keyword::cuts, Keyword::order}, logits, params, kwargs);
  const CandidateOrder order = OrderFrom(call.arguments[Keyword::order]);
  std::vector<Cut> selected;
  const std::span<const Cut> cuts = call.GetCuts(selected);
  CandidateSets sets;
  sets.offsets.push_back(0);
  for (const Cut& cut : cuts) {
    if (cut.count < 0 || cut.count > call.logits.view.columns) {  // the caller wrote into the Cuts
      ThrowValue("cuts.count", std::to_string(cut.count),
                 "[0, " + std::to_string(call.logits.view.columns) + "]");
    }
    sets.offsets.push_back(sets.offsets.back() + cut.count);
  }
  const auto total = static_cast<size_t>(sets.offsets.back());
  sets.ids.resize(total);
  sets.logits.resize(total);
  sets.weights.resize(total);
  call.execution.workspace = Workspace(SelectWorkspaceBytes(call.logits.Logits(), call.execution));
  const nb::gil_scoped_release release;
  Collect(call.input(), cuts, order, {sets.offsets, sets.ids, sets.logits, sets.weights},
          call.execution);
  return sets;
}

constexpr const char* kSelectDoc = R"(Exact selection: the set of tokens that the parameters keep.

``logits``: float32, bfloat16 or float16, [rows, vocabulary] or one row of [vocabulary], for which
the result holds numbers instead of arrays. Every parameter is a number for all rows or one a row. A
number out of range is an Error; in an array it is that row's status. ``masses=True`` computes the
exact masses too; ``out`` is a Cuts of as many rows to write into. XTC needs a seed.

    >>> logits = np.array([[2, 1, 0, -1], [0, 0, 0, 9]], np.float32)
    >>> sluice.select(logits, top_p=0.9)
    Cuts(counts=[3, 1])
    >>> sluice.select(logits, top_k=[1, 2]).counts
    array([1, 2], dtype=int32))";

constexpr const char* kMaskDoc =
    R"(Writes -inf to the tokens that are not kept, in place; returns the logits.

The set is that of ``cuts``, or what select would keep. Rows with a status are left alone.

    >>> logits = np.array([2, 1, 0, -1], np.float32)
    >>> sluice.mask_(logits, top_k=2)
    array([  2.,   1., -inf, -inf], dtype=float32))";

constexpr const char* kBitmaskDoc = R"(The kept sets as bitmasks: bit i of word w is token 32 w + i.

The set is that of ``cuts``, or what select would keep. Rows with a status keep nothing.

    >>> sluice.kept_bitmask(np.array([2, 1, 0, 3], np.float32), top_k=2)
    array([9], dtype=int32))";

constexpr const char* kCandidatesDoc = R"(The kept tokens themselves, with logits and weights.

The set is that of ``cuts``, or what select would keep; in order of "id" or "rank".

    >>> sluice.candidates(np.array([2, 1, 0, 3], np.float32), top_k=2).ids
    array([0, 3], dtype=int32))";

}  // namespace

void BindSelect(nb::module_& module) {
  constexpr const char* kLogits = "logits: typing.Any";
  const auto bind = [&](const char* name, auto function, const char* own, const char* result,
                        const char* doc) {
    module.def(name, function, nb::arg("logits").none(), nb::arg("params").none() = nb::none(),
               nb::arg("kwargs"), nb::sig(RowSignature(name, kLogits, own, result)), doc);
  };
  bind("select", DoSelect, "masses: bool = False, out: Cuts | None = None", "Cuts", kSelectDoc);
  bind("mask_", DoMask, "cuts: Cuts | None = None", "typing.Any", kMaskDoc);
  bind("kept_bitmask", DoKeptBitmask, "cuts: Cuts | None = None, out: typing.Any = None",
       "numpy.typing.NDArray[numpy.int32]", kBitmaskDoc);
  bind("candidates", DoCandidates, "cuts: Cuts | None = None, order: str = 'id'", "Candidates",
       kCandidatesDoc);
}

}  // namespace sluice::python
