#include "python/values/request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "python/errors.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "python/values/params.h"
#include "python/values/results.h"
#include "python/values/signature.h"

namespace sluice::python {

// sluice.StepRequest: checked when it is used, because only then its arrays have to be right.
struct StepRequestObject {
  RequestHandle request;
  nb::object drafts, parents, bitmask, forced, probabilities, logits, params, cuts;
};

namespace {

// sluice.LogitsProcessor: a callable and what is known of it.
struct ProcessorObject {
  nb::object function;
  bool argmax_invariant = false;
};

constexpr const char* kProcessorDoc =
    R"(A callable for ``processors`` of Sampler.add, and whether greedy rows may skip it.

It is called as function(tokens, prompt_length, logits) after all penalties; ``logits`` is a
float32 array to change in place, of the request's row. An exception leaves the step.

    >>> def forbid_repeats(tokens, prompt_length, logits):
    ...     logits[tokens] = -np.inf
    >>> sampler = sluice.Sampler(vocab=3)
    >>> request = sampler.add(processors=[forbid_repeats], temperature=0, prompt=[1])
    >>> sampler.step(np.array([[0, 9, 1]], np.float32), [request]).ids
    array([2], dtype=int32)
    >>> sluice.LogitsProcessor(forbid_repeats, argmax_invariant=False).argmax_invariant
    False)";

constexpr const char* kStepRequestDoc =
    R"(One request of a step with more than its row: drafts, a mask, a forced token.

n ``drafts`` take n + 1 consecutive rows of the logits. ``parents`` makes a tree of them: for each the
index of the draft before it, or -1; row i + 1 is then what the target says after draft i.
``bitmask``: int32, ceil(vocab / 32) words a row, one bit a token. ``forced``: the token that the
first row must give. For draft_mode "reject", what the drafts were drawn from, one row a draft:
``draft_probabilities``, or a Sluice draft model's ``draft_logits``, ``draft_params`` and
``draft_cuts``.

    >>> sampler = sluice.Sampler(vocab=3)
    >>> request = sampler.add()
    >>> one = sluice.StepRequest(request, forced=2)
    >>> sampler.step(np.zeros((1, 3), np.float32), [one]).ids
    array([2], dtype=int32))";

constexpr const char* kStepRequestSignature =
    "def __init__(self, request: RequestHandle, *, drafts: numpy.typing.ArrayLike | None = None, "
    "parents: numpy.typing.ArrayLike | None = None, "
    "bitmask: typing.Any = None, forced: int | None = None, draft_probabilities: typing.Any = "
    "None, "
    "draft_logits: typing.Any = None, "
    "draft_params: SamplingParams | collections.abc.Sequence[SamplingParams] | None = None, "
    "draft_cuts: Cuts | None = None) -> None";

StepRequestObject MakeStepRequest(RequestHandle request, nb::kwargs kwargs) {
  const Arguments arguments(
      Keywords{Keyword::drafts, Keyword::parents, Keyword::bitmask, Keyword::forced,
               Keyword::draft_probabilities, Keyword::draft_logits, Keyword::draft_params,
               Keyword::draft_cuts},
      kwargs);
  const auto get = [&](Keyword keyword) {
    return arguments.Has(keyword) ? nb::borrow(arguments[keyword]) : nb::none();
  };
  return {request,
          get(Keyword::drafts),
          get(Keyword::parents),
          get(Keyword::bitmask),
          get(Keyword::forced),
          get(Keyword::draft_probabilities),
          get(Keyword::draft_logits),
          get(Keyword::draft_params),
          get(Keyword::draft_cuts)};
}

}  // namespace

void Processor::Apply(void* self, std::span<const int32_t> tokens, size_t prompt_length,
                      std::span<float> logits) {
  const nb::gil_scoped_acquire acquire;
  // Copies: Python may keep the arrays, but not the memory of the sampler.
  const auto history = MakeNumpy<int32_t>({tokens.size()});
  std::copy(tokens.begin(), tokens.end(), history.values.begin());
  const auto values = MakeNumpy<float>({logits.size()});
  std::copy(logits.begin(), logits.end(), values.values.begin());
  static_cast<Processor*>(self)->function_(history.object, prompt_length, values.object);
  std::copy(values.values.begin(), values.values.end(), logits.begin());
}

std::vector<std::unique_ptr<Processor>> ProcessorsFrom(nb::handle processors) {
  if (!PyList_Check(processors.ptr()) && !PyTuple_Check(processors.ptr())) {
    ThrowType("processors", Describe(processors), "a list of callables");
  }
  std::vector<std::unique_ptr<Processor>> result;
  for (const nb::handle object : processors) {
    if (const auto* const known = ObjectIn<ProcessorObject>(object)) {
      result.push_back(std::make_unique<Processor>(known->function, known->argmax_invariant));
    } else if (PyCallable_Check(object.ptr())) {
      result.push_back(std::make_unique<Processor>(nb::borrow(object), false));
    } else {
      ThrowType("processors", Describe(object), "callables");
    }
  }
  return result;
}

StepArguments::StepArguments(nb::handle object) {
  if (const auto* const request = ObjectIn<StepRequestObject>(object)) {
    view_.request = request->request;
    Read(*request);
  } else if (const auto* const handle = ObjectIn<RequestHandle>(object)) {
    view_.request = *handle;
  } else {
    ThrowType("requests", Describe(object), "handles of Sampler.add or sluice.StepRequest");
  }
}

void StepArguments::Read(const StepRequestObject& object) {
  if (!object.drafts.is_none()) drafts_ = GetInts("drafts", object.drafts);
  view_.drafts = drafts_;
  if (!object.parents.is_none()) parents_ = GetInts("parents", object.parents);
  view_.parents = parents_;
  const auto drafts = static_cast<int64_t>(drafts_.size());
  if (!object.forced.is_none()) view_.forced = GetNumber<int32_t>("forced", object.forced);
  if (!object.bitmask.is_none()) {
    Array bitmask = Array::Get("bitmask", object.bitmask, Access::kRead, "an array of int32");
    bitmask.CheckDims("bitmask", 1, 2);
    const auto words =
        bitmask.ndim() == 1
            ? GetElements<const int32_t>("bitmask", object.bitmask, Access::kRead, {-1})
            : GetElements<const int32_t>("bitmask", object.bitmask, Access::kRead,
                                         {drafts + 1, -1});
    view_.bitmask = words.values;
    bitmask_.emplace(std::move(bitmask));
  }
  if (!object.probabilities.is_none()) {
    probabilities_.emplace(GetMatrix("draft_probabilities", object.probabilities));
    view_.draft_probabilities = probabilities_->view;
  }
  if (!object.logits.is_none()) {
    model_logits_.emplace(GetMatrix("draft_logits", object.logits));
    const Arguments none(Keywords{}, nb::kwargs());
    model_params_.emplace(object.params, none, model_logits_->view.rows);
    view_.draft_model = InputOf(model_logits_->Logits(), *model_params_);
    if (object.cuts.is_none()) {
      ThrowValue("draft_cuts", "None", "the Cuts that the drafts were drawn from");
    }
    cuts_ = object.cuts;
    view_.draft_cuts = CutsFrom("draft_cuts", cuts_).rows;
  }
}

const char* AddSignature() {
  return RequestSignature(
      "def add(self, params: SamplingParams | None = None, *"
      ", prompt: numpy.typing.ArrayLike = (), choice: int = 0, max_new_tokens: int = 256"
      ", processors: collections.abc.Sequence[typing.Callable[..., typing.Any] | "
      "LogitsProcessor] = ()",
      "RequestHandle");
}

void BindRequests(nb::module_& module) {
  nb::class_<RequestHandle>(module, "RequestHandle", R"(Names a request from Sampler.add to remove.

    >>> sluice.Sampler(vocab=6).add()
    RequestHandle(slot=0, generation=0))")
      .def_ro("slot", &RequestHandle::slot, "Where its state lies.")
      .def_ro("generation", &RequestHandle::generation, "Which request of that slot it is.")
      .def(
          "__eq__",
          [](const RequestHandle& self, nb::handle other) {
            const auto* const handle = ObjectIn<RequestHandle>(other);
            return handle != nullptr && self.slot == handle->slot &&
                   self.generation == handle->generation;
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const RequestHandle& self) {
             return nb::hash(nb::make_tuple(self.slot, self.generation));
           })
      .def("__repr__", [](const RequestHandle& self) {
        return "RequestHandle(slot=" + std::to_string(self.slot) +
               ", generation=" + std::to_string(self.generation) + ")";
      });
  nb::class_<ProcessorObject>(module, "LogitsProcessor", kProcessorDoc)
      .def(
          "__init__",
          [](ProcessorObject* self, nb::object function, bool argmax_invariant) {
            if (!PyCallable_Check(function.ptr())) {
              ThrowType("function", Describe(function), "a callable");
            }
            new (self) ProcessorObject{std::move(function), argmax_invariant};
          },
          nb::arg("function"), nb::kw_only(), nb::arg("argmax_invariant") = false)
      .def_ro("argmax_invariant", &ProcessorObject::argmax_invariant,
              "It cannot move the argmax, so greedy rows skip it.");
  nb::class_<StepRequestObject>(module, "StepRequest", kStepRequestDoc)
      .def(
          "__init__",
          [](StepRequestObject* self, RequestHandle request, nb::kwargs kwargs) {
            new (self) StepRequestObject(MakeStepRequest(request, kwargs));
          },
          nb::arg("request"), nb::arg("kwargs"), nb::sig(kStepRequestSignature));
}

}  // namespace sluice::python
