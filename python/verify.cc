// verify: which draft tokens the target model agrees with.
#include "sluice/verify.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "python/errors.h"
#include "python/sample.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

// Drafts of all requests, one a row of the target; that of a bonus row is 0 and is not read.
struct DraftRows {
  std::vector<int64_t> first_row = {0};
  std::vector<int32_t> ids;
};

DraftRows DraftsFrom(nb::handle object) {
  DraftRows rows;
  const bool is_text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  if (is_text || !PySequence_Check(object.ptr())) {
    ThrowType("drafts", Describe(object), "one list of token ids for each request");
  }
  for (const nb::handle request : object) {
    for (const int32_t id : GetInts("drafts", request)) rows.ids.push_back(id);
    rows.ids.push_back(0);
    rows.first_row.push_back(static_cast<int64_t>(rows.ids.size()));
  }
  return rows;
}

nb::object DoVerify(nb::handle logits_object, nb::handle drafts_object, nb::handle params_object,
                    nb::kwargs kwargs) {
  const Arguments arguments(
      kRowKeywords | Keywords{Keyword::out, Keyword::draft_probabilities, Keyword::draft_logits,
                              Keyword::draft_params, Keyword::draft_cuts},
      kwargs);
  const MatrixArgument logits = GetMatrix("logits", logits_object);
  logits.array.CheckDims("logits", 2, 2);
  const DraftRows rows = DraftsFrom(drafts_object);
  const auto requests = static_cast<int64_t>(rows.first_row.size()) - 1;
  if (rows.first_row.back() != logits.view.rows) {
    ThrowValue("logits.rows", std::to_string(logits.view.rows),
               "one a draft and one more a request, " + std::to_string(rows.first_row.back()));
  }
  RowParams params(params_object, arguments, requests);
  const std::vector<uint64_t> seeds = params.ChooseSeeds();
  params.SpreadOver(rows.first_row);
  Execution execution = ExecutionFrom(arguments);

  Drafts drafts;
  drafts.first_row = rows.first_row;
  drafts.ids = rows.ids;
  std::optional<MatrixArgument> probabilities;
  if (const nb::handle given = arguments[Keyword::draft_probabilities]; given.is_valid()) {
    probabilities.emplace(GetMatrix("draft_probabilities", given));
    drafts.probabilities = probabilities->view;
  }
  std::optional<MatrixArgument> model_logits;
  std::optional<RowParams> model_params;
  const Arguments none(Keywords{}, nb::kwargs());
  if (const nb::handle given = arguments[Keyword::draft_logits]; given.is_valid()) {
    model_logits.emplace(GetMatrix("draft_logits", given));
    const nb::handle model = arguments[Keyword::draft_params];
    model_params.emplace(model.is_valid() ? model : nb::none(), none, model_logits->view.rows);
    drafts.model = InputOf(model_logits->Logits(), *model_params);
    if (!arguments.Has(Keyword::draft_cuts)) {
      ThrowValue("draft_cuts", "None", "the Cuts that the drafts were drawn from");
    }
    drafts.model_cuts = CutsFrom("draft_cuts", arguments[Keyword::draft_cuts]).rows;
  }

  const auto output = OutputFor<TokenResults>(arguments[Keyword::out], "TokenResults");
  TokenResults& tokens = *output.result;
  FitRows(tokens.rows, logits.view.rows);
  tokens.Begin(false, true);
  Fit("emitted", tokens.emitted, static_cast<size_t>(requests));
  Fit("seeds", tokens.seeds, seeds.size());
  std::copy(seeds.begin(), seeds.end(), tokens.seeds.begin());
  FitLogprobs(tokens, params, logits.view.columns);
  execution.workspace = Workspace(VerifyWorkspaceBytes(logits.Logits(), execution));
  {
    const nb::gil_scoped_release release;
    Verify(InputOf(logits.Logits(), params), drafts, params.draft_mode(), params.draw_method(),
           tokens.rows, tokens.emitted, execution);
    FillLogprobs(tokens, logits.Logits(), params, execution);
  }
  return output.object;
}

constexpr const char* kVerifyDoc =
    R"(Verifies draft tokens: how many the target model agrees with, and the token that follows.

``drafts``: one list of token ids for each request (or a 2-D array); a request with n drafts owns
n + 1 consecutive rows of the logits. Parameters, seed and position are one for all or one a
request; ``position`` is that of a request's first row and counts up from there. The first
emitted[r] rows of request r hold its tokens; the later rows have id -1. ``draft_mode="match"``
never changes what sampling without drafts gives; "reject" is rejection sampling, from
``draft_probabilities``, one row a row of the target, or from the draft model's ``draft_logits``,
``draft_params`` and ``draft_cuts``.

    >>> logits = np.array([[0, 9, 0], [9, 0, 0], [0, 0, 9]], np.float32)
    >>> tokens = sluice.verify(logits, [[1, 2]], temperature=0)
    >>> tokens.ids, tokens.emitted
    (array([ 1,  0, -1], dtype=int32), array([2], dtype=int32)))";

}  // namespace

void BindVerify(nb::module_& module) {
  module.def(
      "verify", DoVerify, nb::arg("logits").none(), nb::arg("drafts").none(),
      nb::arg("params").none() = nb::none(), nb::arg("kwargs"),
      nb::sig(RowSignature(
          "verify", "logits: typing.Any, drafts: collections.abc.Sequence[numpy.typing.ArrayLike]",
          "draft_mode: str | None = None, draw_method: str | None = None, "
          "draft_probabilities: typing.Any = None, draft_logits: typing.Any = None, "
          "draft_params: SamplingParams | collections.abc.Sequence[SamplingParams] | None = None, "
          "draft_cuts: Cuts | None = None, out: TokenResults | None = None, "
          "logprobs: int | None = None, logprob_mode: str | None = None",
          "TokenResults")),
      kVerifyDoc);
}

}  // namespace sluice::python
