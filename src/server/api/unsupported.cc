#include "server/api/unsupported.h"

#include <algorithm>

namespace sluice::server {
namespace {

using json::json_type;

struct Unsupported {
  std::string_view name;
  std::string_view hint;
};

constexpr std::string_view kNoTools = "tools are not supported";
constexpr std::string_view kNoGrammar = "outputs cannot be bound to a form";
constexpr Unsupported kUnsupported[] = {
    {"audio", "answers are texts"},
    {"bad_words", "bad_words_token_ids takes lists of token ids"},
    {"chat_template", "the model's own is used"},
    {"documents", "chat_template_kwargs may have them"},
    {"function_call", kNoTools},
    {"functions", kNoTools},
    {"guided_choice", kNoGrammar},
    {"guided_grammar", kNoGrammar},
    {"guided_json", kNoGrammar},
    {"guided_regex", kNoGrammar},
    {"logits_processors", "logit_bias takes numbers for single tokens"},
    {"modalities", R"(only ["text"] is)"},
    {"prompt_embeds", "prompt takes texts and token ids"},
    {"response_format", R"(only {"type": "text"} is)"},
    {"return_tokens_as_token_ids", "return_token_ids gives the ids"},
    {"structured_outputs", kNoGrammar},
    {"suffix", "a model continues its prompt"},
    {"tool_choice", kNoTools},
    {"tools", kNoTools},
    {"truncate_prompt_tokens", "a prompt is taken whole or refused"},
    {"use_beam_search", "n gives independent outputs"},
};
constexpr std::string_view kIgnored[] = {
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

// Reads the value, and says whether it asks for something.
bool AsksForSomething(const RequestValue& value) {
  switch (value.type()) {
    case json_type::null:
      return false;
    case json_type::boolean:
      return value.Boolean();
    case json_type::number:
      return true;
    case json_type::string: {
      const std::string text = value.Text();
      const bool is_choice = value.name() == "tool_choice" || value.name() == "function_call";
      return !text.empty() && !(is_choice && (text == "none" || text == "auto"));
    }
    case json_type::array: {
      bool asks = false;
      value.ForEachValue("a list", [&](const RequestValue& element) {
        const bool is_text = value.name() == "modalities" && element.type() == json_type::string;
        if (is_text && element.Text() == "text") return;
        element.Skip();
        asks = true;
      });
      return asks;
    }
    case json_type::object: {
      bool asks = false;
      value.ForEachField([&](const std::string& field, json::Json json) {
        const RequestValue of_field(field, json);
        const bool is_type = value.name() == "response_format" && field == "type" &&
                             of_field.type() == json_type::string;
        if (is_type && of_field.Text() == "text") return;
        of_field.Skip();
        asks = true;
      });
      return asks;
    }
  }
  return true;
}

}  // namespace

bool IsUnsupported(std::string_view name) { return Find(name) != nullptr; }

void RefuseUnsupported(const RequestValue& value) {
  if (!AsksForSomething(value)) return;
  std::string message(value.name());
  message.append(" is not supported: ").append(Find(value.name())->hint);
  throw ApiFailure({.message = std::move(message),
                    .param = std::string(value.name()),
                    .code = "unsupported_parameter"});
}

bool IsIgnored(std::string_view name) {
  return std::ranges::find(kIgnored, name) != std::end(kIgnored);
}

}  // namespace sluice::server
