#include "python/values/output.h"

#include <algorithm>
#include <utility>

#include "python/errors.h"
#include "python/text.h"
#include "python/values/arrays.h"

namespace sluice::python {
namespace {

nb::list ListOf(const std::vector<int32_t>& ids) {
  nb::list list;
  for (const int32_t id : ids) list.append(id);
  return list;
}

// One value a token.
template <typename T>
nb::object PerToken(nb::handle self, std::vector<T> engine::LogprobColumns::* column) {
  RequestOutput& output = nb::cast<RequestOutput&>(self);
  if (!output.head.has_logprobs) return nb::none();
  return AsNumpy(self, (output.tokens.scores.*column).data(), {output.tokens.ids.size()});
}
// A list a token.
template <typename T>
nb::object Lists(nb::handle self, std::vector<T> engine::LogprobColumns::* column) {
  RequestOutput& output = nb::cast<RequestOutput&>(self);
  if (!output.head.has_logprobs) return nb::none();
  const auto width = static_cast<size_t>(output.tokens.scores.width);
  return AsNumpy(self, (output.tokens.scores.*column).data(), {output.tokens.ids.size(), width});
}

template <typename T>
nb::object PerPromptToken(nb::handle self, std::vector<T> engine::LogprobColumns::* column) {
  RequestOutput& output = nb::cast<RequestOutput&>(self);
  if (!output.HasPrompt()) return nb::none();
  return AsNumpy(self, (output.prompt.*column).data(), {(output.prompt.*column).size()});
}
template <typename T>
nb::object PromptLists(nb::handle self, std::vector<T> engine::LogprobColumns::* column) {
  RequestOutput& output = nb::cast<RequestOutput&>(self);
  if (!output.HasPrompt()) return nb::none();
  const auto width = static_cast<size_t>(1 + *output.head.prompt_logprobs);
  return AsNumpy(self, (output.prompt.*column).data(), {output.prompt.ranks.size(), width});
}

std::string Repr(nb::handle self) {
  constexpr size_t kShort = 40;
  const RequestOutput& output = nb::cast<const RequestOutput&>(self);
  std::string text = nb::repr(TextOf(output.text)).c_str();
  if (text.size() > kShort) {
    text.resize(kShort);
    while (!text.empty() && (static_cast<uint8_t>(text.back()) & 0xC0) == 0x80) text.pop_back();
    if (!text.empty() && static_cast<uint8_t>(text.back()) >= 0xC0) text.pop_back();
    text += "...";
  }
  std::string repr = "Output(id=" + std::to_string(output.head.id) + ", text=" + text;
  repr += ", output_tokens=" + std::to_string(output.output_tokens) + ", finish=";
  if (output.end == GenerationEnd::kNone) return repr + "None)";
  return repr.append("'").append(Name(output.end)).append("')");
}

constexpr const char* kOutputDoc =
    R"(What an engine's client has to say about one request.

``text`` and ``ids`` are what is new, all so far, or everything at the end, as the request's mode says;
``finish`` is None until the last one. With ``logprobs=N``, ``logprobs`` and ``ranks`` have an element for
each of the ids, ``top_ids`` and ``top_logprobs`` a row: the token, then the N most likely ones. With
``prompt_logprobs=N``, the first output has those of every token of the prompt but the first.

    >>> with sluice.EngineClient.local("models/default") as client:
    ...     output = client.generate("Once upon a", max_tokens=3, temperature=0, logprobs=2)
    >>> output  # doctest: +ELLIPSIS
    Output(id=..., text=' time there was', output_tokens=3, finish='length')
    >>> output.ids == output.top_ids[:, 0].tolist() and output.top_logprobs.shape
    (3, 3))";

}  // namespace

RequestOutput::RequestOutput(const OutputHead& request, const ClientOutput& output)
    : head(request),
      text(output.text),
      end(output.end),
      stop(output.stop),
      stop_token(output.stop_token),
      status(output.status),
      message(output.message),
      code(output.code),
      parameter(output.parameter),
      prompt_tokens(output.prompt_tokens),
      output_tokens(output.output_tokens) {
  tokens.Append(output);
  tokens.scores.width = output.logprob_width;  // of an output without tokens too
  if (!output.prompt.IsEmpty()) prompt.Append(engine::LogprobsOf(output.prompt));
}

void RequestOutput::Join(const RequestOutput& later) {
  if (head.mode != OutputMode::kDelta) {
    engine::LogprobColumns of_prompt = std::move(prompt);  // one output alone has them
    *this = later;
    if (prompt.logprobs.empty()) prompt = std::move(of_prompt);
    return;
  }
  text += later.text;
  tokens.Append(later.tokens);
  tokens.scores.width = std::max(tokens.scores.width, later.tokens.scores.width);
  if (!later.prompt.logprobs.empty()) prompt.Append(later.prompt.View());
  end = later.end;
  stop = later.stop;
  stop_token = later.stop_token;
  status = later.status;
  message = later.message;
  code = later.code;
  parameter = later.parameter;
  prompt_tokens = later.prompt_tokens;
  output_tokens = later.output_tokens;
}

void RequestOutput::ThrowIfFailed() const {
  if (end == GenerationEnd::kEngineLost) {
    throw Error(ErrorCode::kUnavailable, "engine", "lost (" + message + ")",
                "an engine that answers");
  }
  if (end == GenerationEnd::kRejected) {
    ThrowValue("request", "rejected (" + message + ")", "what the engine takes");
  }
}

void BindOutput(nb::module_& module) {
  nb::class_<RequestOutput>(module, "Output", kOutputDoc)
      .def_prop_ro(
          "id", [](const RequestOutput& output) { return output.head.id; },
          "The request, as submit has named it.")
      .def_prop_ro(
          "text", [](const RequestOutput& output) { return TextOf(output.text); },
          "Whole characters, free of stop strings.")
      .def_prop_ro(
          "ids", [](const RequestOutput& output) { return ListOf(output.tokens.ids); },
          nb::sig("def ids(self) -> list[int]"),
          "The tokens that have all of their text out with this output.")
      .def_prop_ro(
          "logprobs",
          [](nb::handle self) { return PerToken(self, &engine::LogprobColumns::logprobs); },
          nb::sig("def logprobs(self) -> numpy.typing.NDArray[numpy.float32] | None"),
          "The log-probability of each of the ids, or None if not requested.")
      .def_prop_ro(
          "ranks", [](nb::handle self) { return PerToken(self, &engine::LogprobColumns::ranks); },
          nb::sig("def ranks(self) -> numpy.typing.NDArray[numpy.int32] | None"),
          "How many tokens are at least as likely as each of the ids, or None.")
      .def_prop_ro(
          "top_ids", [](nb::handle self) { return Lists(self, &engine::LogprobColumns::ids); },
          nb::sig("def top_ids(self) -> numpy.typing.NDArray[numpy.int32] | None"),
          "A row for each of the ids: it, then the N most likely tokens; or None.")
      .def_prop_ro(
          "top_logprobs",
          [](nb::handle self) { return Lists(self, &engine::LogprobColumns::values); },
          nb::sig("def top_logprobs(self) -> numpy.typing.NDArray[numpy.float32] | None"),
          "The log-probabilities of top_ids, or None.")
      .def_prop_ro(
          "prompt_logprobs",
          [](nb::handle self) { return PerPromptToken(self, &engine::LogprobColumns::logprobs); },
          nb::sig("def prompt_logprobs(self) -> numpy.typing.NDArray[numpy.float32] | None"),
          "The log-probability of each token of the prompt but the first, given those before it; "
          "or "
          "None if not requested, and in all outputs but the first.")
      .def_prop_ro(
          "prompt_ranks",
          [](nb::handle self) { return PerPromptToken(self, &engine::LogprobColumns::ranks); },
          nb::sig("def prompt_ranks(self) -> numpy.typing.NDArray[numpy.int32] | None"),
          "How many tokens are at least as likely as each of these, or None.")
      .def_prop_ro(
          "prompt_top_ids",
          [](nb::handle self) { return PromptLists(self, &engine::LogprobColumns::ids); },
          nb::sig("def prompt_top_ids(self) -> numpy.typing.NDArray[numpy.int32] | None"),
          "A row for each of these: it, then the N most likely tokens in its place; or None.")
      .def_prop_ro(
          "prompt_top_logprobs",
          [](nb::handle self) { return PromptLists(self, &engine::LogprobColumns::values); },
          nb::sig("def prompt_top_logprobs(self) -> numpy.typing.NDArray[numpy.float32] | None"),
          "The log-probabilities of prompt_top_ids, or None.")
      .def_prop_ro(
          "finish",
          [](const RequestOutput& output) -> nb::object {
            if (output.end == GenerationEnd::kNone) return nb::none();
            return nb::cast(Name(output.end));
          },
          nb::sig("def finish(self) -> str | None"),
          "None, or why it ended: ``\"stop_string\"``, ``\"stop_token\"``, ``\"length\"``, "
          "``\"context\"``, ``\"status\"``, ``\"cancelled\"``, ``\"rejected\"``, "
          "``\"engine_lost\"``.")
      .def_prop_ro(
          "stop",
          [](const RequestOutput& output) -> nb::object {
            if (output.end != GenerationEnd::kStopString) return nb::none();
            return TextOf(output.stop);
          },
          nb::sig("def stop(self) -> str | None"), "The stop string that ended it, or None.")
      .def_prop_ro(
          "stop_token",
          [](const RequestOutput& output) -> nb::object {
            return output.stop_token < 0 ? nb::none() : nb::cast(output.stop_token);
          },
          nb::sig("def stop_token(self) -> int | None"), "The token that ended it, or None.")
      .def_prop_ro(
          "status", [](const RequestOutput& output) { return output.status; },
          nb::sig("def status(self) -> Status"),
          "With finish ``\"status\"``, why no token could be drawn.")
      .def_prop_ro(
          "message",
          [](const RequestOutput& output) -> nb::object {
            if (output.message.empty()) return nb::none();
            return TextOf(output.message);
          },
          nb::sig("def message(self) -> str | None"), "More about an end that is a failure.")
      .def_prop_ro(
          "code",
          [](const RequestOutput& output) -> nb::object {
            if (output.end != GenerationEnd::kRejected) return nb::none();
            return nb::cast(Name(output.code));
          },
          nb::sig("def code(self) -> str | None"),
          "With finish ``\"rejected\"``: ``\"invalid_value\"`` or ``\"invalid_type\"`` where the "
          "request would be refused again, else ``\"unavailable\"`` or ``\"exhausted\"``.")
      .def_prop_ro(
          "parameter",
          [](const RequestOutput& output) -> nb::object {
            if (output.parameter.empty()) return nb::none();
            return TextOf(output.parameter);
          },
          nb::sig("def parameter(self) -> str | None"), "The parameter that was refused, or None.")
      .def_prop_ro(
          "prompt_tokens", [](const RequestOutput& output) { return output.prompt_tokens; },
          "How many tokens the prompt has.")
      .def_prop_ro(
          "output_tokens", [](const RequestOutput& output) { return output.output_tokens; },
          "How many tokens there were so far, up to and with the one that ended it.")
      .def_prop_ro(
          "seed", [](const RequestOutput& output) { return output.head.seed; },
          "The seed in use: with it the same request gives the same output again.")
      .def("_join", &RequestOutput::Join, nb::arg("later"))
      .def("_raise_if_failed", &RequestOutput::ThrowIfFailed)
      .def("__repr__", &Repr, nb::sig("def __repr__(self) -> str"));
}

}  // namespace sluice::python
