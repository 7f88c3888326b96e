// What a vLLM engine cannot do. docs/plugins/vllm-engine.md has the same list.
#include <algorithm>
#include <vector>

#include "grammar/schema_check.h"
#include "link/vllm/engine_core_request.h"
#include "support/check.h"

namespace sluice::link::vllm {
namespace {

// As the engine's buffers have room: a request with more raises in its step, which ends it.
constexpr int64_t kMostAllowed = 1024;
constexpr int64_t kMostBiases = 1024;
constexpr int64_t kMostStopTokens = 128;
constexpr int64_t kMostBadWords = 128;
constexpr int64_t kMostBadWordTokens = 1024;

constexpr float kMostTemperature = 2.0f;

void Refuse(bool is_bad, std::string_view parameter, std::string value, const char* allowed) {
  if (is_bad) ThrowInvalid(parameter, std::move(value), allowed);
}

void CheckCount(std::string_view parameter, int64_t count, int64_t most) {
  if (count <= most) return;
  ThrowInvalid(parameter, ToText(count) + " entries",
               "at most " + ToText(most) + ": a vLLM engine has no room for more");
}

void CheckSelection(const SamplingParams& params) {
  constexpr const char* kHasNone = ": a vLLM engine has no such rule";
  const auto refuse = [](const char* name, float value, float off) {
    if (value == off) return;
    ThrowInvalid(name, ToText(double{value}), ToText(double{off}) + kHasNone);
  };
  refuse("top_n_sigma", params.top_n_sigma, 0);
  refuse("typical_p", params.typical_p, 1);
  refuse("xtc_probability", params.xtc_probability, 0);
  refuse("dry_multiplier", params.dry_multiplier, 0);
  Refuse(params.temperature > kMostTemperature, "temperature", ToText(double{params.temperature}),
         "[0, 2]: a vLLM engine takes no more");
  Refuse(params.profile != Profile{}, "profile", "another one",
         "vllm: the engine selects as vLLM does");
}

void CheckDraw(const SamplingParams& params) {
  Refuse(params.draw_method != DrawMethod::kGumbel, "draw_method",
         std::string(Name(params.draw_method)), "gumbel: a vLLM engine draws in its own way");
  Refuse(params.draft_mode != DraftMode::kMatch, "draft_mode", std::string(Name(params.draft_mode)),
         "match: how drafts are verified is set where the vLLM engine is started");
  Refuse(params.logprob_mode != LogprobMode::kRawLogprobs, "logprobs_mode",
         std::string(Name(params.logprob_mode)),
         "raw_logprobs: another mode is set where the vLLM engine is started");
}

// The engine has a map, in which one of two entries would be lost.
void CheckBiases(const BiasEntries& biases) {
  std::vector<int32_t> ids;
  for (const BiasEntry& entry : biases) ids.push_back(entry.id);
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return;
  ThrowInvalid("logit_bias", "two entries for " + ToText(int64_t{*twice}), "one for each token");
}

// Where nothing is left to draw, the engine draws all the same, from NaN.
void CheckSomethingIsLeft(const SamplingParams& params) {
  if (!params.allowed_token_ids.has_value()) return;
  const bool are_stops_masked = params.min_tokens > 0;
  const auto is_left = [&](int32_t id) {
    const bool is_stop =
        std::ranges::find(params.stop_token_ids, id) != params.stop_token_ids.end();
    const bool is_bad = std::ranges::any_of(
        params.bad_words, [id](const TokenIds& word) { return word.size() == 1 && word[0] == id; });
    return !is_bad && !(is_stop && are_stops_masked);
  };
  if (std::ranges::any_of(*params.allowed_token_ids, is_left)) return;
  ThrowInvalid(
      "allowed_token_ids",
      ToText(std::ssize(*params.allowed_token_ids)) + " that are all kept from being drawn",
      "one at least that is no bad word and, where min_tokens is above 0, no stop token: "
      "a vLLM engine cannot be left without any");
}

void CheckLists(const SamplingParams& params) {
  CheckCount("logit_bias", std::ssize(params.logit_bias), kMostBiases);
  CheckBiases(params.logit_bias);
  if (params.allowed_token_ids.has_value()) {
    CheckCount("allowed_token_ids", std::ssize(*params.allowed_token_ids), kMostAllowed);
  }
  CheckCount("stop_token_ids", std::ssize(params.stop_token_ids), kMostStopTokens);
  CheckCount("bad_words", std::ssize(params.bad_words), kMostBadWords);
  int64_t tokens = 0;
  for (const TokenIds& word : params.bad_words) tokens += std::ssize(word);
  CheckCount("bad_words", tokens, kMostBadWordTokens);
  CheckSomethingIsLeft(params);
}

// What its frontend checks: an EngineCore compiles any text, and a grammar that cannot be compiled
// ends its own request alone. The schemas are those that its grammar engine, which is Sluice's as
// well, does not ignore a part of.
void CheckGrammar(const OutputGrammar& of, const SamplingParams& params) {
  constexpr const char* kLeavesOut =
      "none together with a grammar: a vLLM engine cannot be left "
      "without a token";
  constexpr GrammarLimits kLimits;
  static_assert(kLimits.text_bytes == size_t{256} << 10);
  const std::string_view name = Name(of.kind);
  Refuse(of.text.size() > kLimits.text_bytes, name, ToText(std::ssize(of.text)) + " bytes",
         "at most 256 KiB");
  Refuse(params.allowed_token_ids.has_value(), "allowed_token_ids", "a list", kLeavesOut);
  Refuse(!params.bad_words.empty(), "bad_words", "a list", kLeavesOut);
  Refuse(params.stop_token_ids.empty(), name, "a grammar",
         "one with end tokens of the model, which the frontend has not been given");
  if (of.kind == GrammarKind::kJsonSchema) grammar::CheckSchema(name, of.text, kLimits.nesting);
  if (of.kind == GrammarKind::kRegex) grammar::CheckRegex(name, "", of.text);
  if (of.kind == GrammarKind::kStructuralTag) {
    grammar::CheckTagSchemas(name, of.text, kLimits.nesting);
  }
}

}  // namespace

void CheckRequest(const EngineRequest& request) {
  if (request.grammar.has_value()) CheckGrammar(*request.grammar, request.params);
  CheckSelection(request.params);
  CheckDraw(request.params);
  CheckLists(request.params);
}

}  // namespace sluice::link::vllm
