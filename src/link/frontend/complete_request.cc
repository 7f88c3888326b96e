// The checks of a frontend before an engine gets the request.
#include <algorithm>
#include <utility>

#include "engine/request_checks.h"
#include "link/frontend/request_table.h"
#include "support/check.h"
#include "support/random_seed.h"

namespace sluice::link {
namespace {

constexpr int64_t kMostChoices = 1 << 24;  // as the noise has room for

void CheckPrompt(std::span<const int32_t> prompt, const EngineInfo& info) {
  const int64_t length = std::ssize(prompt);
  if (length < 1 || length >= info.context) {
    ThrowInvalid("prompt", ToText(length) + " tokens",
                 "1 to " + ToText(info.context - 1) + ", so that one more fits into the context");
  }
  for (const int32_t id : prompt) CheckInRange("prompt", id, 0, info.vocab - 1);
}

void CheckLogprobs(const SamplingParams& params, const EngineInfo& info) {
  if (!params.logprobs.has_value() || info.max_logprobs < 0) return;
  const int64_t listed = *params.logprobs < 0 ? info.vocab : *params.logprobs;
  if (listed <= info.max_logprobs) return;
  ThrowInvalid("logprobs", ToText(int64_t{*params.logprobs}), RangeText(0, info.max_logprobs));
}

// The engine checks the other limits, which differ between engines.
void CheckGrammar(const OutputGrammar& grammar, const EngineInfo& info) {
  CheckInRange("grammar.kind", static_cast<int64_t>(grammar.kind), 0,
               static_cast<int64_t>(GrammarKind::kStructuralTag));
  if (!info.has_grammars) engine::ThrowNoGrammars(grammar.kind);
}

void CheckNoExtras(const EngineExtras& extras) {
  constexpr const char* kOfVllm = "none: only an engine of vLLM takes it";
  if (!extras.cache_salt.empty()) ThrowInvalid("cache_salt", "a text", kOfVllm);
  if (!extras.adapter.empty()) {
    ThrowInvalid("adapter", ToText(std::string_view(extras.adapter)), kOfVllm);
  }
}

}  // namespace

EngineRequest CompleteRequest(ClientRequest&& request, const EngineInfo& info, StopAt stop_at) {
  engine::CheckListSizes(request.params, info.vocab);
  Validate(request.params, info.vocab, info.limits);
  CheckLogprobs(request.params, info);
  CheckPrompt(request.prompt, info);
  CheckInRange("choice", request.choice, 0, kMostChoices - 1);
  if (request.prompt_logprobs.has_value()) {
    CheckInRange("prompt_logprobs", *request.prompt_logprobs, 0,
                 engine::MostPromptLogprobs(info.max_logprobs, info.vocab));
  }
  CheckInRange("max_tokens", request.max_tokens, 0, INT32_MAX);
  if (request.grammar.has_value()) CheckGrammar(*request.grammar, info);
  if (!info.has_extras) CheckNoExtras(request.extras);
  if (request.thinking.has_value()) engine::CheckThinking(*request.thinking);
  CheckInRange("mode", static_cast<int64_t>(request.mode), 0,
               static_cast<int64_t>(OutputMode::kFinal));
  CheckInRange("stream_interval", request.stream_interval, 1, INT32_MAX);

  EngineRequest complete{.params = std::move(request.params),
                         .prompt = std::move(request.prompt),
                         .choice = request.choice,
                         .max_tokens = request.max_tokens,
                         .prompt_logprobs = request.prompt_logprobs,
                         .stop_at = info.has_text ? stop_at : StopAt::kFrontend,
                         .text = std::move(request.text),
                         .grammar = std::move(request.grammar),
                         .thinking = request.thinking,
                         .group = request.group,
                         .priority = request.priority,
                         .extras = std::move(request.extras)};
  if (!complete.params.seed.has_value()) complete.params.seed = RandomSeed();
  if (complete.grammar.has_value()) complete.params.min_tokens = 0;
  if (request.ignores_end && !complete.grammar.has_value()) return complete;
  TokenIds& stops = complete.params.stop_token_ids;
  for (const int32_t id : info.end_tokens) {
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  }
  return complete;
}

}  // namespace sluice::link
