// sample and logprobs: one token from a row, and how likely tokens are.
#include "python/sample.h"

#include <algorithm>
#include <string>

#include "python/errors.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

nb::object DoSample(nb::handle logits_object, nb::handle params_object, nb::kwargs kwargs) {
  const Arguments arguments(
      kRowKeywords | Keywords{Keyword::cuts, Keyword::out, Keyword::with_cuts}, kwargs);
  const MatrixArgument logits = GetMatrix("logits", logits_object);
  RowParams params(params_object, arguments, logits.view.rows);
  arguments.Flag(Keyword::with_cuts);  // they are there anyway
  SelectExecution execution = ExecutionFrom(arguments);
  const auto output = OutputFor<TokenResults>(arguments[Keyword::out], "TokenResults");
  TokenResults& tokens = *output.result;
  FitRows(tokens.rows, logits.view.rows);
  tokens.Begin(logits.is_row, true);
  const std::vector<uint64_t> seeds = params.ChooseSeeds();
  Fit("seeds", tokens.seeds, seeds.size());
  std::copy(seeds.begin(), seeds.end(), tokens.seeds.begin());
  FitLogprobs(tokens, params, logits.view.columns);

  const nb::handle cuts = arguments[Keyword::cuts];
  const std::span<const Cut> given =
      cuts.is_valid() ? CutsFrom("cuts", cuts).rows : std::span<const Cut>{};
  execution.workspace = Workspace(SelectWorkspaceBytes(logits.Logits(), execution));
  {
    const nb::gil_scoped_release release;
    const SelectInput input = InputOf(logits.Logits(), params);
    if (cuts.is_valid()) {
      Draw(input, params.draw_method(), given, tokens.rows, execution);
    } else {
      research::Sample(input, params.draw_method(), execution.select_by, tokens.rows, execution);
    }
    FillLogprobs(tokens, logits.Logits(), params, execution);
  }
  return output.object;
}

// Any tokens, as if they had been drawn: what Logprobs reads of a result.
void TokensFrom(nb::handle object, const MatrixArgument& logits, const RowParams& params,
                const SelectExecution& execution, TokenResults& tokens) {
  tokens.rows.resize(static_cast<size_t>(logits.view.rows));
  const auto set = [&](size_t row, int32_t id) { tokens.rows[row].id = id; };
  if (IsNumber(object)) {
    const auto id = GetNumber<int32_t>("tokens", object);
    for (size_t row = 0; row < tokens.rows.size(); ++row) set(row, id);
  } else {
    ForEachRowValue<int32_t>("tokens", object, logits.view.rows, RangeOf<int32_t>(), set);
  }
  for (const TokenResult& row : tokens.rows) {
    if (row.id >= 0 && row.id < logits.view.columns) continue;
    ThrowValue("tokens", std::to_string(row.id),
               "[0, " + std::to_string(logits.view.columns - 1) + "]");
  }
  std::vector<Cut> cuts(tokens.rows.size());
  {
    const nb::gil_scoped_release release;
    research::Select(InputOf(logits.Logits(), params), execution.select_by, cuts, {}, execution);
  }
  for (size_t row = 0; row < cuts.size(); ++row) {
    tokens.rows[row].cut = cuts[row];
    tokens.rows[row].status = cuts[row].status;
  }
}

TokenResults DoLogprobs(nb::handle logits_object, nb::handle tokens_object,
                        nb::handle params_object, nb::kwargs kwargs) {
  const Arguments arguments(kRowKeywords, kwargs);
  const MatrixArgument logits = GetMatrix("logits", logits_object);
  const RowParams params(params_object, arguments, logits.view.rows);
  params.CheckSeeds();
  SelectExecution execution = ExecutionFrom(arguments);
  execution.workspace = Workspace(SelectWorkspaceBytes(logits.Logits(), execution));
  TokenResults tokens;
  if (const auto* const given = ObjectIn<TokenResults>(tokens_object)) {
    CheckOneARow("tokens", given->rows.size(), logits.view.rows);
    tokens.rows = given->rows;
  } else {
    TokensFrom(tokens_object, logits, params, execution, tokens);
  }
  tokens.is_row = logits.is_row;
  FitLogprobs(tokens, params, logits.view.columns);
  const nb::gil_scoped_release release;
  const auto lists = tokens.top.width > 0 ? tokens.top.View() : LogprobLists{};
  Logprobs({logits.Logits(), params.logprob_mode(), params.select()}, tokens.rows, lists,
           execution);
  return tokens;
}

constexpr const char* kSampleDoc =
    R"(Samples one token a row: selection, draw and, if requested, log-probabilities.

The token is a function of the row, the parameters and (seed, position, choice), each a number or
one a row: the same alone as in any batch. Rows that share all three share their noise; give each
its own seed, or number them by ``choice``. Without a seed each row gets a random one, reported in
``seeds``.
``logprobs=N`` fills logprobs, ranks and the lists of the N most likely tokens (-1: all) by
``logprob_mode``. ``cuts`` are drawn from as they are. ``out`` is a TokenResults of as many rows to
write into.

    >>> logits = np.array([[2, 1, 0, -1], [0, 0, 0, 9]], np.float32)
    >>> tokens = sluice.sample(logits, temperature=0.8, top_k=2, seed=42, position=7, logprobs=1)
    >>> tokens.ids, tokens.top_ids.shape
    (array([0, 3], dtype=int32), (2, 2))
    >>> sluice.sample(logits[0], top_k=1).ids
    0)";

constexpr const char* kLogprobsDoc = R"(Log-probabilities and ranks of tokens, sampled or not.

``tokens``: a TokenResults of the same rows, or ids; kept sets are then selected for the
processed modes. ``logprobs=N`` adds the lists of the N most likely tokens.

    >>> reported = sluice.logprobs(np.zeros((2, 4), np.float32), [3, 0])
    >>> reported.logprobs, reported.ranks
    (array([-1.3862944, -1.3862944], dtype=float32), array([4, 4], dtype=int32)))";

}  // namespace

void FitLogprobs(TokenResults& tokens, const RowParams& params, int64_t vocab) {
  int64_t width = 0;
  if (const std::optional<int32_t> most_likely = params.logprobs(); most_likely.has_value()) {
    if (*most_likely > vocab) {
      ThrowValue("logprobs", std::to_string(*most_likely), "[-1, " + std::to_string(vocab) + "]");
    }
    width = 1 + (*most_likely < 0 ? vocab : *most_likely);
  }
  tokens.top.Resize(tokens.rows.size(), width);
}

void FillLogprobs(TokenResults& tokens, const LogitsView& logits, const RowParams& params,
                  const Execution& execution) {
  if (tokens.top.width == 0) return;
  Logprobs({logits, params.logprob_mode(), params.select()}, tokens.rows, tokens.top.View(),
           execution);
}

void BindSample(nb::module_& module) {
  constexpr const char* kLogprobs =
      ", draw_method: str | None = None, logprobs: int | None = None"
      ", logprob_mode: str | None = None";
  module.def(
      "sample", DoSample, nb::arg("logits").none(), nb::arg("params").none() = nb::none(),
      nb::arg("kwargs"),
      nb::sig(RowSignature("sample", "logits: typing.Any",
                           std::string("cuts: Cuts | None = None, out: TokenResults | None = None"
                                       ", with_cuts: bool = False") +
                               kLogprobs,
                           "TokenResults")),
      kSampleDoc);
  module.def("logprobs", DoLogprobs, nb::arg("logits").none(), nb::arg("tokens").none(),
             nb::arg("params").none() = nb::none(), nb::arg("kwargs"),
             nb::sig(RowSignature(
                 "logprobs", "logits: typing.Any, tokens: TokenResults | numpy.typing.ArrayLike",
                 "logprobs: int | None = None, logprob_mode: str | None = None", "TokenResults")),
             kLogprobsDoc);
}

}  // namespace sluice::python
