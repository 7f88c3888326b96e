#include "python/engine/engine_request.h"

#include <string>

#include "python/engine/engine_parts.h"
#include "python/errors.h"
#include "python/values/numbers.h"
#include "python/values/params.h"
#include "python/values/signature.h"

namespace sluice::python {
namespace {

std::optional<ThinkingBudget> ThinkingFrom(const Arguments& arguments) {
  ThinkingBudget thinking;
  if (const nb::handle format = arguments[Keyword::reasoning_format]; format.is_valid()) {
    if (!PyUnicode_Check(format.ptr())) ThrowType("reasoning_format", Describe(format), "a name");
    thinking.format = ReasoningFormatByName(nb::cast<std::string>(format));
  }
  if (!arguments.Has(Keyword::thinking_budget)) return std::nullopt;
  thinking.tokens = GetNumber<int64_t>("thinking_budget", arguments[Keyword::thinking_budget]);
  if (ReasoningEnd(thinking.format).empty()) {
    ThrowValue("reasoning_format", std::string(Name(thinking.format)),
               "deepseek, mistral or seed with thinking_budget");
  }
  if (thinking.tokens < 0 || thinking.tokens > INT32_MAX) {
    ThrowValue("thinking_budget", std::to_string(thinking.tokens), "[0, 2147483647]");
  }
  return thinking;
}

}  // namespace

ClientRequest EngineRequestFrom(nb::handle params, const Arguments& arguments,
                                const SamplingParams& defaults) {
  ClientRequest request{.params = defaults};
  if (!params.is_none()) {
    SamplingParams* given = nullptr;
    if (!nb::try_cast(params, given)) ThrowType("params", Describe(params), "SamplingParams");
    request.params = *given;
  }
  Assign(arguments, request.params);
  if (const nb::handle most = arguments[Keyword::max_tokens]; most.is_valid()) {
    request.max_tokens = GetNumber<int64_t>("max_tokens", most);
  }
  if (const nb::handle listed = arguments[Keyword::prompt_logprobs]; listed.is_valid()) {
    request.prompt_logprobs = GetNumber<int32_t>("prompt_logprobs", listed);
  }
  if (const nb::handle choice = arguments[Keyword::choice]; choice.is_valid()) {
    request.choice = GetNumber<uint32_t>("choice", choice);
  }
  if (const nb::handle stop = arguments[Keyword::stop]; stop.is_valid()) {
    request.text.stops = TextsFrom("stop", stop);
  }
  request.text.include_stop = arguments.Flag(Keyword::include_stop);
  request.ignores_end = arguments.Flag(Keyword::ignore_eos);
  if (arguments.Has(Keyword::skip_special_tokens)) {
    request.text.detokenizer.skip_special_tokens = arguments.Flag(Keyword::skip_special_tokens);
  }
  if (const nb::handle mode = arguments[Keyword::mode]; mode.is_valid()) {
    if (!PyUnicode_Check(mode.ptr())) ThrowType("mode", Describe(mode), "a name");
    request.mode = OutputModeByName(nb::cast<std::string>(mode));
  }
  if (const nb::handle interval = arguments[Keyword::stream_interval]; interval.is_valid()) {
    request.stream_interval = GetNumber<int64_t>("stream_interval", interval);
  }
  request.grammar = OutputGrammarFrom(arguments);
  request.thinking = ThinkingFrom(arguments);
  return request;
}

void SetOpenReasoning(const Tokenizer& tokenizer, ClientRequest& request) {
  if (!request.thinking.has_value()) return;
  request.thinking->is_open = OpensReasoning(request.thinking->format, tokenizer, request.prompt);
}

std::vector<int32_t> PromptFrom(const Tokenizer& tokenizer, nb::handle prompt) {
  if (!PyUnicode_Check(prompt.ptr())) {
    if (IsNumber(prompt) || PyBytes_Check(prompt.ptr())) {
      ThrowType("prompt", Describe(prompt), "a str, or the ids of one");
    }
    return GetInts("prompt", prompt);
  }
  const auto text = nb::cast<std::string>(prompt);
  const nb::gil_scoped_release release;
  return tokenizer.Encode(text);
}

bool ArePrompts(nb::handle prompt) {
  if (!PyList_Check(prompt.ptr()) && !PyTuple_Check(prompt.ptr())) return false;
  for (const nb::handle first : prompt) {
    return !IsNumber(first);
  }
  return true;
}

const char* EngineRequestSignature(std::string_view name, std::string_view prompt, bool has_mode,
                                   std::string_view result) {
  std::string head = "def ";
  head.append(name).append("(self, ").append(prompt);
  head +=
      ", params: SamplingParams | None = None, *, max_tokens: int = 256"
      ", stop: str | collections.abc.Sequence[str] = (), include_stop: bool = False"
      ", ignore_eos: bool = False, skip_special_tokens: bool = True, choice: int = 0"
      ", prompt_logprobs: int | None = None"
      ", json_schema: dict[str, typing.Any] | str | type | None = None, json_object: bool = False"
      ", regex: str | None = None, grammar: str | None = None"
      ", choices: collections.abc.Sequence[str] | None = None"
      ", thinking_budget: int | None = None, reasoning_format: str = 'deepseek'";
  if (has_mode) head += ", mode: str = 'delta', stream_interval: int = 1";
  return RequestSignature(head, result);
}

}  // namespace sluice::python
