// The step of a sluice.Sampler from a sluice.CertifiedHead.
#include <algorithm>
#include <string>
#include <utility>

#include "python/execution.h"
#include "python/head/certified_head.h"
#include "python/sampler.h"
#include "python/values/objects.h"

namespace sluice::python {
namespace {

std::vector<RequestHandle> HandlesFrom(nb::handle requests, const PythonSampler& sampler) {
  if (!PyList_Check(requests.ptr()) && !PyTuple_Check(requests.ptr())) {
    ThrowType("requests", Describe(requests), "a list of requests");
  }
  std::vector<RequestHandle> handles;
  for (const nb::handle object : requests) {
    const auto* const handle = ObjectIn<RequestHandle>(object);
    if (handle == nullptr) {
      ThrowType("requests", Describe(object),
                "handles of Sampler.add: drafts and forced tokens are for Sampler.step");
    }
    if (const auto logprobs = sampler.LogprobsOf(*handle); logprobs.has_value()) {
      ThrowValue("logprobs", std::to_string(*logprobs),
                 "None: they are measured on all logits, which dense_head has");
    }
    handles.push_back(*handle);
  }
  return handles;
}

}  // namespace

nb::object PythonSampler::StepFromHead(nb::handle head_object, nb::handle hidden_object,
                                       nb::handle requests, nb::kwargs kwargs) {
  const Arguments arguments(Keywords{Keyword::bitmask, Keyword::out, Keyword::with_cuts,
                                     Keyword::backend, Keyword::threads},
                            kwargs);
  auto* const head = ObjectIn<PythonCertifiedHead>(head_object);
  if (head == nullptr) ThrowType("head", Describe(head_object), "sluice.CertifiedHead");
  const MatrixArgument hidden = GetMatrix("hidden", hidden_object);
  const std::vector<RequestHandle> handles = HandlesFrom(requests, *this);
  const PythonCertifiedHead::Bitmask bitmask = head->BitmaskFrom(arguments, hidden);
  Execution execution;
  execution.backend = BackendFrom(arguments[Keyword::backend]);
  execution.parallel = ParallelFrom(arguments[Keyword::threads]);
  const bool with_cuts = arguments.Flag(Keyword::with_cuts);
  const auto output = OutputFor<TokenResults>(arguments[Keyword::out], "TokenResults");
  TokenResults& tokens = *output.result;
  FitRows(tokens.rows, hidden.view.rows);
  std::vector<TokenResult> rows(tokens.rows.size());  // a call that is refused changes nothing
  execution.workspace =
      Workspace(SampleFromHeadWorkspaceBytes(head->head(), hidden.view.rows, execution));
  head->Count(Call([&](Sampler& own) {
    const nb::gil_scoped_release release;
    const CertifiedInput input{hidden.view, bitmask.words()};
    if (with_cuts) return own.StepFromHead(head->head(), input, handles, rows, {}, execution);
    return IdsInto(rows, [&](auto ids, auto statuses) {
      return own.StepIdsFromHead(head->head(), input, handles, ids, statuses, {}, execution);
    });
  }));
  tokens.Begin(false, with_cuts);
  std::copy(rows.begin(), rows.end(), tokens.rows.begin());
  return output.object;
}

}  // namespace sluice::python
