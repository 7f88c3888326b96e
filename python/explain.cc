// explain: why a token of a row was drawn, kept or dropped.
#include "sluice/explain.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/keywords.h"
#include "python/values/numbers.h"
#include "python/values/params.h"
#include "python/values/request.h"
#include "python/values/results.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

// A StageReport with what its place in the Explanation says.
struct NamedReport {
  Stage stage;
  StageReport report;
  bool dropped_here;
};

NamedReport ReportOf(const Explanation& e, Stage stage) {
  return {stage, e[stage], e.dropped_by == stage};
}

nb::object NameOrNone(std::string_view name) { return name.empty() ? nb::none() : nb::cast(name); }
nb::object NumberOrNone(double number) {
  return std::isnan(number) ? nb::none() : nb::cast(number);
}
// Only adjustments have values, and one of theirs may well be NaN.
nb::object ValueOf(const NamedReport& self, float value) {
  return self.stage > Stage::kForced ? nb::none() : nb::cast(value);
}

std::string_view MethodName(DrawMethod method) {
  return method == DrawMethod::kCdf ? "cdf" : "gumbel";
}

Explanation DoExplain(nb::handle logits_object, nb::handle id_object, nb::handle params_object,
                      nb::kwargs kwargs) {
  const Arguments arguments(
      kParamKeywords | Keywords{Keyword::position, Keyword::choice, Keyword::tokens,
                                Keyword::prompt_length, Keyword::bitmask, Keyword::forced,
                                Keyword::processors, Keyword::max_temperature},
      kwargs);
  const MatrixArgument logits = GetMatrix("logits", logits_object);
  const auto id = GetNumber<int32_t>("id", id_object);
  ExplainInput input{.logits = logits.Logits()};
  if (!params_object.is_none()) {
    SamplingParams* given = nullptr;
    if (!nb::try_cast(params_object, given)) {
      ThrowType("params", Describe(params_object), "SamplingParams");
    }
    input.params = *given;
  }
  Assign(arguments, input.params);
  if (const nb::handle limit = arguments[Keyword::max_temperature]; limit.is_valid()) {
    input.limits.max_temperature = GetNumber<float>("max_temperature", limit);
    if (!(input.limits.max_temperature > 0)) {
      ThrowValue("max_temperature", Describe(limit), "above 0");
    }
  }
  std::vector<int32_t> tokens;
  if (const nb::handle given = arguments[Keyword::tokens]; given.is_valid()) {
    tokens = GetInts("tokens", given);
    input.tokens = tokens;
  }
  if (const nb::handle given = arguments[Keyword::prompt_length]; given.is_valid()) {
    input.prompt_length = GetNumber<uint32_t>("prompt_length", given);
  }
  std::optional<Elements<const int32_t>> bitmask;
  if (const nb::handle given = arguments[Keyword::bitmask]; given.is_valid()) {
    bitmask.emplace(GetElements<const int32_t>("bitmask", given, Access::kRead, {-1}));
    input.bitmask = bitmask->values;
  }
  if (const nb::handle given = arguments[Keyword::forced]; given.is_valid()) {
    input.forced = GetNumber<int32_t>("forced", given);
  }
  std::vector<std::unique_ptr<Processor>> processors;
  std::vector<LogitsProcessor> views;
  if (const nb::handle given = arguments[Keyword::processors]; given.is_valid()) {
    processors = ProcessorsFrom(given);
    for (const auto& processor : processors) views.push_back(processor->View());
    input.processors = views;
  }
  input.key = {input.params.seed.value_or(0), static_cast<uint32_t>(tokens.size()), 0};
  if (const nb::handle given = arguments[Keyword::position]; given.is_valid()) {
    input.key.position = GetNumber<uint32_t>("position", given);
  }
  if (const nb::handle given = arguments[Keyword::choice]; given.is_valid()) {
    input.key.choice = GetNumber<uint32_t>("choice", given);
  }
  const nb::gil_scoped_release release;
  return Explain(input, id);
}

constexpr const char* kSignatureHead =
    "def explain(logits: typing.Any, id: int, params: SamplingParams | None = None, *"
    ", tokens: numpy.typing.ArrayLike = (), prompt_length: int = 0, bitmask: typing.Any = None"
    ", forced: int | None = None, processors: collections.abc.Sequence[typing.Callable[..., "
    "typing.Any] | LogitsProcessor] = (), position: int | None = None, choice: int = 0"
    ", max_temperature: float = 2.0";

constexpr const char* kDoc = R"(Why a token of a row was drawn, kept or dropped, stage by stage.

``logits``: one row as it came from the model. ``tokens``: prompt and output so far; the
first ``prompt_length`` of them are the prompt. ``bitmask``: int32, ceil(vocab / 32) words. ``position`` is
the number of ``tokens`` unless given, the seed 0: with a request's history and seed the answer is
that of its Sampler. It sorts the row: for people, not for a hot path.

    >>> logits = np.array([1.5, 0.25, 3, 2.75, -1, 2.5], np.float32)
    >>> why = sluice.explain(logits, 0, top_k=4, top_p=0.8, seed=42)
    >>> print(why)
    top-p dropped it: 0.914 of the mass lies before it, 0.8 is kept
    >>> why.is_kept, why.rank, why.dropped_by
    (False, 4, 'top-p')
    >>> [(stage.name, stage.tokens_left) for stage in why.stages if stage.is_on]
    [('logits', 6), ('top-k', 4), ('top-p', 3), ('draw', 1)])";

constexpr const char* kExplanationDoc = R"(What became of a token; ``str()`` is the sentence.

    >>> why = sluice.explain(np.array([2, 1, 0], np.float32), 2, top_k=2, temperature=0.01)
    >>> why
    Explanation(id=2, 'top-k dropped it: it is number 3, the first 2 are kept')
    >>> why.drawn_id, why["top-k"].quantity, why["top-k"].limit
    (0, 3.0, 2.0))";

constexpr const char* kStageDoc = R"(One stage and one token.

After a filter that is on, a token that came to it is left if ``quantity comparison limit`` holds,
or is_exempt; include/sluice/explain.hpp says what each stage compares.

    >>> why = sluice.explain(np.array([2, 1, 0], np.float32), 1, logit_bias={1: 3}, top_k=2)
    >>> bias, top_k = why["logit bias"], why["top-k"]
    >>> bias.before, bias.after
    (1.0, 4.0)
    >>> top_k.quantity, top_k.comparison, top_k.limit, top_k.dropped_here
    (1.0, '<=', 2.0, False))";

void BindStageReport(nb::module_& module) {
  nb::class_<NamedReport>(module, "StageReport", kStageDoc)
      .def_prop_ro(
          "name", [](const NamedReport& self) { return Name(self.stage); },
          "\"top-p\", \"repetition penalty\", ...")
      .def_prop_ro(
          "is_filter", [](const NamedReport& self) { return IsFilter(self.stage); },
          "It drops tokens by comparing them with each other.")
      .def_prop_ro(
          "is_on", [](const NamedReport& self) { return self.report.is_on; },
          "The parameters turn the stage on.")
      .def_prop_ro(
          "is_left", [](const NamedReport& self) { return self.report.is_left; },
          "The stage keeps the token; for the draw: it was drawn.")
      .def_ro("dropped_here", &NamedReport::dropped_here, "The token ended here.")
      .def_prop_ro(
          "tokens_left", [](const NamedReport& self) { return self.report.tokens_left; },
          "In the row after it.")
      .def_prop_ro(
          "mass_left", [](const NamedReport& self) { return NumberOrNone(self.report.mass_left); },
          nb::sig("def mass_left(self) -> float | None"),
          "Of filters: the share of the adjusted row's mass that is left.")
      .def_prop_ro(
          "before", [](const NamedReport& self) { return ValueOf(self, self.report.before); },
          nb::sig("def before(self) -> float | None"),
          "Of adjustments: the token's value before the stage.")
      .def_prop_ro(
          "after", [](const NamedReport& self) { return ValueOf(self, self.report.after); },
          nb::sig("def after(self) -> float | None"),
          "Of adjustments: the token's value after the stage.")
      .def_prop_ro(
          "quantity", [](const NamedReport& self) { return NumberOrNone(self.report.quantity); },
          nb::sig("def quantity(self) -> float | None"),
          "The token's number that the stage compared.")
      .def_prop_ro(
          "comparison",
          [](const NamedReport& self) { return NameOrNone(Name(self.report.comparison)); },
          nb::sig("def comparison(self) -> str | None"),
          "How the quantity stands to the limit when the stage keeps the token: <, <=, >= or >.")
      .def_prop_ro(
          "limit", [](const NamedReport& self) { return NumberOrNone(self.report.limit); },
          nb::sig("def limit(self) -> float | None"), "What it was compared with.")
      .def_prop_ro(
          "is_exempt", [](const NamedReport& self) { return self.report.is_exempt; },
          "It stays although the comparison fails, because the rule keeps at least one token.")
      .def("__repr__", [](const NamedReport& self) {
        return std::string("StageReport(").append(Name(self.stage)).append(")");
      });
}

void BindExplanation(nb::module_& module) {
  nb::class_<Explanation>(module, "Explanation", kExplanationDoc)
      .def_ro("id", &Explanation::id, "The token.")
      .def_ro("status", &Explanation::status,
              "What became of the row; with another than OK, nothing is kept or drawn.")
      .def_ro("logit", &Explanation::logit, "The token's value as it came.")
      .def_ro("adjusted", &Explanation::adjusted, "Its value after masks, bias and penalties.")
      .def_ro("rank", &Explanation::rank, "Its place in the adjusted row, from 1; 0 when masked.")
      .def_prop_ro(
          "probability", [](const Explanation& e) { return NumberOrNone(e.probability); },
          nb::sig("def probability(self) -> float | None"),
          "Its share of the adjusted row's mass, at the temperature that the filters see.")
      .def_prop_ro(
          "kept_probability", [](const Explanation& e) { return NumberOrNone(e.kept_probability); },
          nb::sig("def kept_probability(self) -> float | None"),
          "Its share of the kept mass, at the temperature of the draw.")
      .def_ro("is_kept", &Explanation::is_kept, "Every stage kept it.")
      .def_ro("is_drawn", &Explanation::is_drawn, "It is the token that the row gives.")
      .def_prop_ro(
          "dropped_by",
          [](const Explanation& e) {
            return e.dropped_by.has_value() ? nb::cast(Name(*e.dropped_by)) : nb::none();
          },
          nb::sig("def dropped_by(self) -> str | None"), "The name of the stage that dropped it.")
      .def_ro("drawn_id", &Explanation::drawn_id, "The token that the row gives; -1 is none.")
      .def_prop_ro(
          "draw_method", [](const Explanation& e) { return MethodName(e.draw_method); },
          "\"gumbel\" or \"cdf\".")
      .def_ro("xtc_coin_fell", &Explanation::xtc_coin_fell, "XTC was on, and in effect here.")
      .def_prop_ro(
          "cuts",
          [](const Explanation& e) { return Cuts{.rows = {e.cut}, .masses = {}, .is_row = true}; },
          "The kept set of the row.")
      .def_prop_ro(
          "stages",
          [](const Explanation& e) {
            nb::list stages;
            for (size_t s = 0; s < kStages; ++s) stages.append(ReportOf(e, static_cast<Stage>(s)));
            return stages;
          },
          nb::sig("def stages(self) -> list[StageReport]"), "All of them, in their order.")
      .def(
          "__getitem__",
          [](const Explanation& e, nb::handle name) {
            std::string known;
            for (size_t s = 0; s < kStages; ++s) {
              const auto stage = static_cast<Stage>(s);
              if (PyUnicode_Check(name.ptr()) && nb::cast<std::string>(name) == Name(stage)) {
                return ReportOf(e, stage);
              }
              known.append(known.empty() ? "" : ", ").append(Name(stage));
            }
            ThrowValue("stage", Describe(name), known);
          },
          nb::arg("stage").none(), nb::sig("def __getitem__(self, stage: str, /) -> StageReport"))
      .def_prop_ro(
          "sentence", [](const Explanation& e) { return Sentence(e); },
          "\"top-p dropped it: 0.912 of the mass lies before it, 0.9 is kept\".")
      .def("__str__", [](const Explanation& e) { return Sentence(e); })
      .def("__repr__", [](const Explanation& e) {
        return "Explanation(id=" + std::to_string(e.id) + ", '" + Sentence(e) + "')";
      });
}

}  // namespace

void BindExplain(nb::module_& module) {
  BindStageReport(module);
  BindExplanation(module);
  module.def("explain", DoExplain, nb::arg("logits").none(), nb::arg("id").none(),
             nb::arg("params").none() = nb::none(), nb::arg("kwargs"),
             nb::sig(RequestSignature(kSignatureHead, "Explanation")), kDoc);
}

}  // namespace sluice::python
