// Whether an engine can take a request, before anything is kept of it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sluice/engine_messages.hpp"
#include "sluice/step_runner.hpp"
#include "support/check.h"

namespace sluice::engine {

constexpr int64_t kMaxChoice = (int64_t{1} << 24) - 1;  // as NoiseKey has it

// A request is kept until it ends, its lists in the sampler's state as well, and every token that
// is drawn passes them. Real requests are far below; an entry for each id of the vocabulary is as
// much as can mean anything where a list is of single ids.
constexpr int64_t kMostStopIds = 1024;
constexpr int64_t kMostBadWords = 1024;
constexpr int64_t kMostBadWordTokens = 16384;  // of all together: 64 KiB
constexpr int64_t kMostBreakers = 1024;

// Below 0 is the vocabulary. The token itself is one more entry.
inline int64_t MostPromptLogprobs(int32_t max_logprobs, int64_t vocab) {
  const int64_t most = std::min<int64_t>(vocab, INT32_MAX - 1);
  return max_logprobs < 0 ? most : std::min<int64_t>(max_logprobs, most);
}

inline void CheckCount(std::string_view parameter, int64_t count, const char* of_what,
                       int64_t most) {
  if (count > most) ThrowInvalid(parameter, ToText(count) + of_what, "at most " + ToText(most));
}

inline void CheckListSizes(const SamplingParams& params, int64_t vocab) {
  CheckCount("logit_bias", std::ssize(params.logit_bias), " entries", vocab);
  if (params.allowed_token_ids.has_value()) {
    CheckCount("allowed_token_ids", std::ssize(*params.allowed_token_ids), " ids", vocab);
  }
  CheckCount("stop_token_ids", std::ssize(params.stop_token_ids), " ids", kMostStopIds);
  CheckCount("dry_sequence_breakers", std::ssize(params.dry_sequence_breakers), " ids",
             kMostBreakers);
  CheckCount("bad_words", std::ssize(params.bad_words), " sequences", kMostBadWords);
  int64_t tokens = 0;
  for (const TokenIds& word : params.bad_words) tokens += std::ssize(word);
  CheckCount("bad_words", tokens, " tokens", kMostBadWordTokens);
}

[[noreturn]] inline void ThrowNoGrammars(GrammarKind kind) {
  throw Error(ErrorCode::kUnavailable, std::string(Name(kind)), "a grammar",
              "none: this engine has no grammar library. \"pip install --no-deps xgrammar==0.2.8 "
              "apache-tvm-ffi\" where Sluice's engine runs installs it");
}

inline void CheckThinking(const ThinkingBudget& thinking) {
  CheckInRange("thinking.format", static_cast<int64_t>(thinking.format), 0,
               static_cast<int64_t>(ReasoningFormat::kHarmony));
  if (ReasoningEnd(thinking.format).empty()) {
    ThrowInvalid("thinking.format", ToText(Name(thinking.format)),
                 "one with a text that ends reasoning: deepseek, mistral or seed");
  }
  CheckInRange("thinking.tokens", thinking.tokens, 0, INT32_MAX);
}

// Throws Error for the first thing that the runner could not compute.
inline void CheckRequest(const EngineRequest& request, const RunnerInfo& info) {
  const SamplingParams& params = request.params;
  CheckListSizes(params, info.vocab);
  Validate(params, info.vocab, info.limits);
  if (!params.seed.has_value())
    ThrowInvalid("seed", "", "a whole number, which the client chooses");
  if (info.max_logprobs >= 0 && params.logprobs.has_value()) {
    CheckInRange("logprobs", *params.logprobs, 0, info.max_logprobs);
  }
  CheckInRange("choice", request.choice, 0, kMaxChoice);
  if (request.prompt_logprobs.has_value()) {
    CheckInRange("prompt_logprobs", *request.prompt_logprobs, 0,
                 MostPromptLogprobs(info.max_logprobs, info.vocab));
  }
  CheckInRange("max_tokens", request.max_tokens, 0, INT32_MAX);
  CheckInRange("stop_at", static_cast<int64_t>(request.stop_at), 0, 1);
  CheckInRange("text.detokenizer.utf8_errors",
               static_cast<int64_t>(request.text.detokenizer.utf8_errors), 0, 1);
  CheckInRange("text.incomplete", static_cast<int64_t>(request.text.incomplete), 0, 1);
  if (request.grammar.has_value()) {
    CheckInRange("grammar.kind", static_cast<int64_t>(request.grammar->kind), 0,
                 static_cast<int64_t>(GrammarKind::kStructuralTag));
  }
  if (request.thinking.has_value()) CheckThinking(*request.thinking);
  const int64_t length = std::ssize(request.prompt);
  if (length < 1 || length >= info.context) {
    ThrowInvalid("prompt", ToText(length) + " tokens",
                 "1 to " + ToText(info.context - 1) + ", so that one more fits into the context");
  }
  for (const int32_t id : request.prompt) CheckInRange("prompt", id, 0, info.vocab - 1);
}

// Output tokens that it can have.
inline int64_t RoomOf(const EngineRequest& request, const RunnerInfo& info) {
  return std::min(request.max_tokens, info.context - std::ssize(request.prompt));
}

inline void CheckRunnerInfo(const RunnerInfo& info) {
  CheckInRange("runner.vocab", info.vocab, 1, INT32_MAX);
  CheckInRange("runner.context", info.context, 2, INT32_MAX);
  CheckInRange("runner.max_requests", info.max_requests, 1, 1 << 20);
  CheckInRange("runner.max_step_tokens", info.max_step_tokens, 1, INT64_MAX);
  CheckInRange("runner.page_tokens", info.page_tokens, 1, INT32_MAX);
  CheckInRange("runner.pages", info.pages, 1, INT64_MAX);
  CheckInRange("runner.max_given_tokens", info.max_given_tokens, 1, 1 << 20);
  CheckInRange("runner.max_logprobs", info.max_logprobs, -1, INT32_MAX);
  CheckInRange("runner.max_prefixes", info.max_prefixes, 0, 1 << 20);
}

}  // namespace sluice::engine
