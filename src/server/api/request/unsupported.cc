#include "server/api/request/unsupported.h"

#include <algorithm>
#include <limits>

namespace sluice::server {
namespace {

using json::json_type;

// What does it, by the names of each API.
enum class HintTopic : uint8_t {
  kNone,
  kCalls,
  kLength,
  kStop,
  kBeams,
  kLogprobs,
  kProcessed,
  kIds,
  kPromptIds,
  kTemplate,
  kEffort,
  kBudgetHint,
  kSystem,
  kFormat,
};
struct TopicHints {
  HintTopic topic;
  std::string_view completions;
  std::string_view chats;
  std::string_view messages;
  std::string_view responses;
};
constexpr std::string_view kLogprobsOfChats = "/v1/chat/completions gives log-probabilities";
constexpr std::string_view kIdsOfChats = "/v1/chat/completions gives the ids of tokens";
constexpr std::string_view kCompletionIds = "the prompt of /v1/completions takes token ids";
constexpr std::string_view kMaxTokensDoes = "max_tokens does it";
constexpr std::string_view kTemplateKwargs =
    "chat_template_kwargs has what the chat template reads";
constexpr std::string_view kAnswerIsOne = "the answer is one output";
constexpr std::string_view kIndependent = "n gives independent outputs";
constexpr TopicHints kTopicHints[] = {
    {HintTopic::kCalls, "chats have tools and tool_choice", "tools and tool_choice do it",
     "tools and tool_choice do it", "tools and tool_choice do it"},
    {HintTopic::kLength, kMaxTokensDoes, kMaxTokensDoes, kMaxTokensDoes,
     "max_output_tokens does it"},
    {HintTopic::kStop, "stop does it", "stop does it", "stop_sequences does it", "stop does it"},
    {HintTopic::kBeams, kIndependent, kIndependent, kAnswerIsOne, kAnswerIsOne},
    {HintTopic::kLogprobs, "logprobs does it", "logprobs does it", kLogprobsOfChats,
     kLogprobsOfChats},
    {HintTopic::kProcessed, R"(logprobs_mode = "processed_logprobs" does it)",
     R"(logprobs_mode = "processed_logprobs" does it)", kLogprobsOfChats, kLogprobsOfChats},
    {HintTopic::kIds, "return_token_ids gives the ids", "return_token_ids gives the ids",
     kIdsOfChats, kIdsOfChats},
    {HintTopic::kPromptIds, "prompt takes texts and token ids", kCompletionIds, kCompletionIds,
     kCompletionIds},
    {HintTopic::kTemplate, "chats have chat_template_kwargs", kTemplateKwargs, kTemplateKwargs,
     kTemplateKwargs},
    {HintTopic::kEffort, "chats have chat_template_kwargs, which the chat template reads",
     kTemplateKwargs, "output_config.effort does it", "reasoning.effort does it"},
    {HintTopic::kBudgetHint, "a budget of tokens for reasoning is for chats",
     "thinking_token_budget does it", "thinking.budget_tokens does it",
     "a budget of tokens for reasoning is for /v1/chat/completions"},
    {HintTopic::kSystem, "prompt is the whole text that the model reads",
     "messages may begin with one of the role system", "system does it", "instructions does it"},
    {HintTopic::kFormat, "response_format does it", "response_format does it",
     "output_config.format does it", "text.format does it"},
};

std::string_view HintOf(HintTopic topic, Api api) {
  const TopicHints& names = *std::ranges::find(kTopicHints, topic, &TopicHints::topic);
  if (api == Api::kCompletions) return names.completions;
  if (api == Api::kChat) return names.chats;
  return api == Api::kResponses ? names.responses : names.messages;
}

struct Unsupported {
  std::string_view name;
  std::string_view hint = {};          // what does it here, or why nothing does
  HintTopic topic = HintTopic::kNone;  // in place of the hint
  // The number without effect, as engines that have the field define it.
  double neutral = std::numeric_limits<double>::quiet_NaN();
  // Texts without effect; an object may have one of them as its only field `inner`.
  std::string_view neutral_text = {};
  std::string_view other_text = {};
  std::string_view inner = {};
  bool is_asked_for_by_empty = false;  // {} turns it on
};

constexpr std::string_view kOneModel = "the server has one model, without adapters";
constexpr std::string_view kNoStore =
    "nothing is stored here, and requests have their whole conversation";
constexpr Unsupported kUnsupported[] = {
    // Of one API, in a request of another
    {.name = "background", .hint = kNoStore},
    {.name = "best_of", .topic = HintTopic::kBeams, .neutral = 1},
    {.name = "conversation", .hint = kNoStore},
    {.name = "input", .hint = "it is a field of /v1/responses"},
    {.name = "instructions", .topic = HintTopic::kSystem},
    {.name = "messages", .hint = "/v1/chat/completions and /v1/messages have them"},
    {.name = "output_config", .topic = HintTopic::kFormat},
    {.name = "output_format", .topic = HintTopic::kFormat},
    {.name = "previous_response_id", .hint = kNoStore},
    {.name = "prompt", .hint = "/v1/completions has it"},
    {.name = "system", .topic = HintTopic::kSystem},
    {.name = "text", .topic = HintTopic::kFormat},
    // OpenAI's
    {.name = "audio", .hint = "answers are texts"},
    {.name = "function_call",
     .topic = HintTopic::kCalls,
     .neutral_text = "none",
     .other_text = "auto"},
    {.name = "functions", .topic = HintTopic::kCalls},
    {.name = "max_output_tokens", .topic = HintTopic::kLength},
    {.name = "modalities", .hint = R"(only ["text"] is)", .neutral_text = "text"},
    {.name = "reasoning",
     .topic = HintTopic::kBudgetHint,
     .neutral_text = "none",
     .inner = "effort"},
    {.name = "reasoning_effort", .topic = HintTopic::kEffort, .neutral_text = "none"},
    {.name = "suffix", .hint = "a model continues its prompt"},
    {.name = "tool_choice",
     .topic = HintTopic::kCalls,
     .neutral_text = "none",
     .other_text = "auto"},
    {.name = "tools", .topic = HintTopic::kCalls},
    {.name = "verbosity",
     .hint = "the prompt may say how long it shall be",
     .neutral_text = "medium"},
    {.name = "web_search_options", .hint = "nothing is searched", .is_asked_for_by_empty = true},
    // Anthropic's
    {.name = "container", .hint = "the server runs no tools"},
    {.name = "mcp_servers", .hint = "the server runs no tools; tools has those of clients"},
    // vLLM's, SGLang's, and those of text-generation-inference
    {.name = "bad_words", .hint = "bad_words_token_ids takes lists of token ids"},
    {.name = "chat_template", .hint = "the model's own is used"},
    {.name = "custom_logit_processor", .hint = "logit_bias takes numbers for single tokens"},
    {.name = "documents", .topic = HintTopic::kTemplate},
    {.name = "early_stopping", .hint = "there are no beams"},
    {.name = "guided_whitespace_pattern", .hint = "structured_outputs has disable_any_whitespace"},
    {.name = "input_embeds", .topic = HintTopic::kPromptIds},
    {.name = "input_ids", .topic = HintTopic::kPromptIds},
    {.name = "kv_transfer_params", .hint = "an engine computes the whole request"},
    {.name = "length_penalty", .hint = "there are no beams", .neutral = 1},
    {.name = "logits_processors", .hint = "logit_bias takes numbers for single tokens"},
    {.name = "lora_path", .hint = kOneModel},
    {.name = "lora_request", .hint = kOneModel},
    {.name = "max_new_tokens", .topic = HintTopic::kLength},
    {.name = "min_new_tokens", .hint = "min_tokens does it"},
    {.name = "mm_processor_kwargs", .hint = "prompts are texts"},
    {.name = "no_stop_trim", .hint = "include_stop_str_in_output does it"},
    {.name = "prompt_embeds", .topic = HintTopic::kPromptIds},
    {.name = "repetition_detection", .topic = HintTopic::kStop},
    {.name = "return_hidden_states", .hint = "answers are texts"},
    {.name = "return_logprob", .topic = HintTopic::kLogprobs},
    {.name = "return_tokens_as_token_ids", .topic = HintTopic::kIds},
    {.name = "session_params", .hint = "a request has its whole prompt"},
    {.name = "stop_regex", .topic = HintTopic::kStop},
    {.name = "stop_sequences", .topic = HintTopic::kStop},
    {.name = "thinking",
     .topic = HintTopic::kBudgetHint,
     .neutral_text = "disabled",
     .inner = "type"},
    {.name = "thinking_budget", .topic = HintTopic::kBudgetHint, .neutral = -1},
    {.name = "thinking_budget_tokens", .topic = HintTopic::kBudgetHint, .neutral = -1},
    {.name = "thinking_token_budget", .topic = HintTopic::kBudgetHint, .neutral = -1},
    {.name = "use_beam_search", .topic = HintTopic::kBeams},
    {.name = "vllm_xargs", .hint = "the engine has no such extensions"},
    // llama.cpp's
    {.name = "adaptive_target", .hint = "typical_p and min_p bound surprise", .neutral = -1},
    {.name = "dry_sequence_breakers", .hint = "dry_sequence_breaker_ids takes token ids"},
    {.name = "dynatemp_range", .hint = "temperature is one number", .neutral = 0},
    {.name = "grammar_lazy", .hint = "a grammar begins with the output; structural_tag does it"},
    {.name = "image_data", .hint = "prompts are texts"},
    {.name = "lora", .hint = kOneModel},
    {.name = "min_keep", .hint = "rules keep what they keep, and at least one token", .neutral = 0},
    {.name = "mirostat", .hint = "typical_p and min_p bound surprise", .neutral = 0},
    {.name = "n_indent", .topic = HintTopic::kStop, .neutral = 0},
    {.name = "n_predict", .topic = HintTopic::kLength},
    {.name = "n_probs", .topic = HintTopic::kLogprobs, .neutral = 0},
    {.name = "post_sampling_probs", .topic = HintTopic::kProcessed},
    {.name = "reasoning_budget", .topic = HintTopic::kBudgetHint, .neutral = -1},
    {.name = "reasoning_budget_message", .hint = "reasoning ends with its marker alone"},
    {.name = "reasoning_budget_tokens", .topic = HintTopic::kBudgetHint, .neutral = -1},
    {.name = "repeat_last_n", .hint = "repetition_penalty sees the whole text", .neutral = -1},
    {.name = "repeat_penalty", .hint = "repetition_penalty does it", .neutral = 1},
    {.name = "return_tokens", .topic = HintTopic::kIds},
    {.name = "samplers", .hint = "profile chooses the order of the rules"},
    {.name = "t_max_predict_ms", .topic = HintTopic::kLength, .neutral = 0},
    {.name = "tfs_z", .hint = "min_p and top_n_sigma cut a tail", .neutral = 1},
};
constexpr std::string_view kIgnored[] = {
    "guided_decoding_backend",
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
};

const Unsupported* Find(std::string_view name) {
  const auto* const found = std::ranges::find(kUnsupported, name, &Unsupported::name);
  return found == std::end(kUnsupported) ? nullptr : found;
}

bool IsNeutral(const Unsupported& row, const RequestValue& value) {
  if (value.type() != json_type::string) return false;
  const std::string text = value.Text();
  return text.empty() || text == row.neutral_text || text == row.other_text;
}

// Reads the value, and returns whether it would have an effect.
bool HasEffect(const Unsupported& row, const RequestValue& value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  switch (value.type()) {
    case json_type::null:
      return false;
    case json_type::boolean:
      return value.Boolean();
    case json_type::number:
      return value.Float({-kMost, kMost, false}) != static_cast<float>(row.neutral);
    case json_type::string:
      return !IsNeutral(row, value);
    case json_type::array: {
      bool asks = false;
      value.ForEachValue("a list", [&](const RequestValue& element) {
        if (!row.neutral_text.empty() && IsNeutral(row, element)) return;
        element.Skip();
        asks = true;
      });
      return asks;
    }
    case json_type::object: {
      bool asks = row.is_asked_for_by_empty;
      value.ForEachField([&](const std::string& field, json::Json json) {
        const RequestValue of_field(field, json);
        if (!row.inner.empty() && field == row.inner && IsNeutral(row, of_field)) return;
        of_field.Skip();
        asks = true;
      });
      return asks;
    }
  }
  return true;
}

void Refuse(const Unsupported& row, std::string_view hint, const RequestValue& value) {
  if (!HasEffect(row, value)) return;
  std::string message(row.name);
  message.append(" is not supported: ").append(hint);
  throw ApiFailure({.message = std::move(message),
                    .param = std::string(row.name),
                    .code = "unsupported_parameter"});
}

}  // namespace

bool IsUnsupported(std::string_view name) { return Find(name) != nullptr; }

void RefuseUnsupported(Api api, const RequestValue& value) {
  const Unsupported& row = *Find(value.name());
  Refuse(row, row.topic == HintTopic::kNone ? row.hint : HintOf(row.topic, api), value);
}

void RefuseUnsupported(const RequestValue& value, std::string_view hint, double neutral) {
  Refuse({.name = value.name(), .neutral = neutral}, hint, value);
}

void ThrowUnsupported(const std::string& name, std::string_view value, std::string_view hint) {
  std::string message = name + " = " + RequestValue::Quoted(value) + " is not supported: ";
  throw ApiFailure(
      {.message = message.append(hint), .param = name, .code = "unsupported_parameter"});
}

bool IsIgnored(std::string_view name) {
  return std::ranges::find(kIgnored, name) != std::end(kIgnored);
}

}  // namespace sluice::server
