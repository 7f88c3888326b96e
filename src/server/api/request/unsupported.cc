#include "server/api/request/unsupported.h"

#include <algorithm>
#include <limits>

namespace sluice::server {
namespace {

using json::json_type;

struct Unsupported {
  std::string_view name;
  std::string_view hint = {};  // what does it here, or why nothing does
  // The number without effect, as engines that have the field define it.
  double neutral = std::numeric_limits<double>::quiet_NaN();
  // Texts without effect; an object may have one of them as its only field `inner`.
  std::string_view neutral_text = {};
  std::string_view other_text = {};
  std::string_view inner = {};
  bool is_asked_for_by_empty = false;  // {} turns it on
};

constexpr std::string_view kNoCalls = "chats have tools and tool_choice";
constexpr std::string_view kOneModel = "the server has one model, without adapters";
constexpr std::string_view kNoThinking = "chat_template_kwargs has what the chat template reads";
constexpr std::string_view kChatsThink = "a budget of tokens for reasoning is for chats";
constexpr std::string_view kUseMaxTokens = "max_tokens does it";
constexpr Unsupported kUnsupported[] = {
    // OpenAI's
    {.name = "audio", .hint = "answers are texts"},
    {.name = "function_call", .hint = kNoCalls, .neutral_text = "none", .other_text = "auto"},
    {.name = "functions", .hint = kNoCalls},
    {.name = "max_output_tokens", .hint = kUseMaxTokens},
    {.name = "modalities", .hint = R"(only ["text"] is)", .neutral_text = "text"},
    {.name = "reasoning", .hint = kChatsThink, .neutral_text = "none", .inner = "effort"},
    {.name = "reasoning_effort", .hint = kNoThinking, .neutral_text = "none"},
    {.name = "suffix", .hint = "a model continues its prompt"},
    {.name = "tool_choice", .hint = kNoCalls, .neutral_text = "none", .other_text = "auto"},
    {.name = "tools", .hint = kNoCalls},
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
    {.name = "documents", .hint = "chat_template_kwargs may have them"},
    {.name = "early_stopping", .hint = "there are no beams"},
    {.name = "guided_whitespace_pattern", .hint = "structured_outputs has disable_any_whitespace"},
    {.name = "input_embeds", .hint = "prompt takes texts and token ids"},
    {.name = "input_ids", .hint = "prompt takes token ids"},
    {.name = "kv_transfer_params", .hint = "an engine computes the whole request"},
    {.name = "length_penalty", .hint = "there are no beams", .neutral = 1},
    {.name = "logits_processors", .hint = "logit_bias takes numbers for single tokens"},
    {.name = "lora_path", .hint = kOneModel},
    {.name = "lora_request", .hint = kOneModel},
    {.name = "max_new_tokens", .hint = kUseMaxTokens},
    {.name = "min_new_tokens", .hint = "min_tokens does it"},
    {.name = "mm_processor_kwargs", .hint = "prompts are texts"},
    {.name = "no_stop_trim", .hint = "include_stop_str_in_output does it"},
    {.name = "prompt_embeds", .hint = "prompt takes texts and token ids"},
    {.name = "repetition_detection", .hint = "stop and max_tokens end an output"},
    {.name = "return_hidden_states", .hint = "answers are texts"},
    {.name = "return_logprob", .hint = "logprobs does it"},
    {.name = "return_tokens_as_token_ids", .hint = "return_token_ids gives the ids"},
    {.name = "session_params", .hint = "a request has its whole prompt"},
    {.name = "stop_regex", .hint = "stop takes texts"},
    {.name = "stop_sequences", .hint = "stop does it"},
    {.name = "thinking", .hint = kChatsThink, .neutral_text = "disabled", .inner = "type"},
    {.name = "thinking_budget", .hint = kChatsThink, .neutral = -1},
    {.name = "thinking_budget_tokens", .hint = kChatsThink, .neutral = -1},
    {.name = "thinking_token_budget", .hint = kChatsThink, .neutral = -1},
    {.name = "use_beam_search", .hint = "n gives independent outputs"},
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
    {.name = "n_indent", .hint = "stop may have a text that ends the output", .neutral = 0},
    {.name = "n_predict", .hint = kUseMaxTokens},
    {.name = "n_probs", .hint = "logprobs does it", .neutral = 0},
    {.name = "post_sampling_probs", .hint = R"(logprobs_mode = "processed_logprobs" does it)"},
    {.name = "reasoning_budget", .hint = kChatsThink, .neutral = -1},
    {.name = "reasoning_budget_message", .hint = "reasoning ends with its marker alone"},
    {.name = "reasoning_budget_tokens", .hint = kChatsThink, .neutral = -1},
    {.name = "repeat_last_n", .hint = "repetition_penalty sees the whole text", .neutral = -1},
    {.name = "repeat_penalty", .hint = "repetition_penalty does it", .neutral = 1},
    {.name = "return_tokens", .hint = "return_token_ids gives the ids"},
    {.name = "samplers", .hint = "profile chooses the order of the rules"},
    {.name = "t_max_predict_ms", .hint = "max_tokens bounds the output", .neutral = 0},
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

void Refuse(const Unsupported& row, const RequestValue& value) {
  if (!HasEffect(row, value)) return;
  std::string message(row.name);
  message.append(" is not supported: ").append(row.hint);
  throw ApiFailure({.message = std::move(message),
                    .param = std::string(row.name),
                    .code = "unsupported_parameter"});
}

}  // namespace

bool IsUnsupported(std::string_view name) { return Find(name) != nullptr; }

void RefuseUnsupported(const RequestValue& value) { Refuse(*Find(value.name()), value); }

void RefuseUnsupported(const RequestValue& value, std::string_view hint, double neutral) {
  Refuse({.name = value.name(), .hint = hint, .neutral = neutral}, value);
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
