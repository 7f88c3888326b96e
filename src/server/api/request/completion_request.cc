#include "server/api/request/completion_request.h"

#include "json/read_param.h"
#include "server/api/json_text.h"
#include "server/api/request/field_names.h"
#include "server/api/request/field_schemas.h"
#include "server/api/request/param_schemas.h"
#include "server/api/request/request_draft.h"
#include "server/api/request/unsupported.h"
#include "support/number.h"

namespace sluice::server {
namespace {

using json::json_type;
using json::Range;

// vLLM's -1 is none. Its other negative seeds are refused: they would not give its tokens.
void ReadSeed(Draft& to, const RequestValue& value) {
  const std::string_view text = json::Trimmed(value.json().raw_json_token());
  if (!text.starts_with('-')) {
    json::ReadParam("seed", value.json(), to.request.params);
    return;
  }
  const std::string shown = value.Shown();
  value.Skip();
  if (text != "-1")
    value.Refuse(shown, "-1 for none, or a whole number in [0, 18446744073709551615]");
  to.request.params.seed.reset();
}

void ReadTruncation(Draft& to, const RequestValue& value) {
  const auto tokens = value.Integer<int64_t>(UpTo(kMostTokens, -1));
  if (tokens == 0) value.Refuse("0", "-1, or a whole number of 1 or more");
  to.request.truncate_prompt_tokens = tokens;
}

void ReadTemperature(Draft& to, const RequestValue& value) {
  const Range range{0, static_cast<double>(to.limits.max_temperature), false};
  to.request.params.temperature = value.Float(range);
}

void ReadStreamOptions(Draft& to, const RequestValue& value) {
  to.has_stream_options = true;
  SeenFields seen;
  value.ForEachField([&](const std::string& field, json::Json json) {
    const std::string name = "stream_options." + field;
    const RequestValue option(name, json);
    const bool is_usage = field == "include_usage";
    const bool is_known = is_usage || field == "continuous_usage_stats";
    if (!is_known || !seen.Add(field) || option.IsNull()) {
      option.Skip();
    } else {
      (is_usage ? to.request.includes_usage : to.request.continuous_usage) = option.Boolean();
    }
  });
}

void ReadPrompt(Draft& to, const RequestValue& value) {
  constexpr const char* kPrompt =
      "a text, a list of token ids, a list of texts or a list of lists of token ids";
  std::vector<PromptInput>& prompts = to.request.prompts;
  if (value.type() == json_type::string) {
    prompts.push_back({.text = value.Text()});
    return;
  }
  std::optional<json_type> type;
  value.ForEachValue(kPrompt, [&](const RequestValue& element) {
    if (!type.has_value()) type = element.type();
    if (element.type() != *type) value.Refuse("a list of different things", kPrompt);
    if (*type == json_type::number) {
      if (prompts.empty()) prompts.push_back({.is_ids = true});
      prompts.back().ids.push_back(element.Integer<int32_t>(json::kIds));
      return;
    }
    if (prompts.size() >= static_cast<size_t>(to.limits.prompts)) {
      value.Refuse("a list of more than " + Number(to.limits.prompts) + " prompts",
                   "at most " + Number(to.limits.prompts) + " prompts");
    }
    if (*type == json_type::string) {
      prompts.push_back({.text = element.Text()});
    } else if (*type == json_type::array) {
      prompts.push_back({.is_ids = true, .ids = element.Ids()});
      if (prompts.back().ids.empty()) value.Refuse("an empty list of ids", kPrompt);
    } else {
      value.Refuse("a list with " + element.Shown(), kPrompt);
    }
  });
  if (prompts.empty()) value.Refuse("an empty list", kPrompt);
}

// Of every API.
constexpr DraftField kCommonFields[] = {
    {"model", R"({"type":"string"})",
     [](Draft& to, const RequestValue& v) { to.request.model = v.Text(); }},
    {"stream", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.streams = v.Boolean(); }},
    {"seed", R"({"type":"integer","minimum":-1,"maximum":18446744073709551615})", ReadSeed},
    {"temperature", R"({"type":"number","minimum":0,"maximum":2})", ReadTemperature},
    {"ignore_eos", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.ignores_end = v.Boolean(); }},
    {"include_stop_str_in_output", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.text.include_stop = v.Boolean(); }},
    {"skip_special_tokens", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) {
       to.request.text.detokenizer.skip_special_tokens = v.Boolean();
     }},
    {"spaces_between_special_tokens", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) {
       to.request.text.detokenizer.spaces_between_special_tokens = v.Boolean();
     }},
    {"add_special_tokens", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.adds_special_tokens = v.Boolean(); }},
    {"parse_special_tokens", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.parses_special_tokens = v.Boolean(); }},
    {"stream_interval", R"({"type":"integer","minimum":1,"maximum":2147483647})",
     [](Draft& to, const RequestValue& v) {
       to.request.stream_interval = v.Integer<int64_t>(UpTo(kMostTokens, 1));
     }},
    {"priority", R"({"type":"integer","minimum":-2147483648,"maximum":2147483647})",
     [](Draft& to, const RequestValue& v) {
       to.request.priority = v.Integer<int32_t>(UpTo(INT32_MAX, INT32_MIN));
     }},
    {"cache_salt", R"({"type":"string"})",
     [](Draft& to, const RequestValue& v) { to.request.cache_salt = v.Text(); }},
    {"truncate_prompt_tokens", R"({"type":"integer","minimum":-1,"maximum":2147483647})",
     ReadTruncation},
};

// Of completions and chats.
constexpr DraftField kOpenAiFields[] = {
    {"n", R"({"type":"integer","minimum":1,"maximum":128})",
     [](Draft& to, const RequestValue& v) {
       to.request.n = v.Integer<int32_t>(UpTo(to.limits.choices, 1));
     }},
    {"stream_options",
     R"({"type":"object","properties":{"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean"}}})",
     ReadStreamOptions},
    {"stop",
     R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","items":{"type":"string","minLength":1},"maxItems":16}]})",
     ReadStop},
    {"max_tokens", R"({"type":"integer","minimum":0,"maximum":2147483647})", ReadMaxTokens},
    {"max_completion_tokens", R"({"type":"integer","minimum":0,"maximum":2147483647})",
     [](Draft& to, const RequestValue& v) {
       to.max_completion_tokens = v.Integer<int64_t>(UpTo(kMostTokens));
     }},
    {"prompt_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
     [](Draft& to, const RequestValue& v) {
       to.request.prompt_logprobs = v.Integer<int32_t>(UpTo(to.limits.logprobs));
     }},
    {"echo", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.echo = v.Boolean(); }},
    {"return_token_ids", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.returns_token_ids = v.Boolean(); }},
};

constexpr DraftField kCompletionFields[] = {
    {"prompt",
     R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":2147483647}},{"type":"array","minItems":1,"items":{"type":"string"},"maxItems":128},{"type":"array","minItems":1,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":2147483647}},"maxItems":128}]})",
     ReadPrompt},
    {"best_of", R"({"type":"integer","minimum":1,"maximum":128})",
     [](Draft& to, const RequestValue& v) {
       to.best_of = v.Integer<int32_t>(UpTo(to.limits.choices, 1));
     }},
    {"logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
     [](Draft& to, const RequestValue& v) {
       to.request.logprobs = v.Integer<int32_t>(UpTo(to.limits.logprobs));
     }},
};

void ReadOfThinking(Draft& to, const RequestValue& value) { ReadThinkingField(to.thinking, value); }

constexpr const char* kBudget = R"({"type":"integer","minimum":-1,"maximum":2147483647})";
constexpr DraftField kChatFields[] = {
    {"messages",
     R"({"type":"array","minItems":1,"items":{"type":"object","properties":{"role":{"type":"string"}},"required":["role"]}})",
     ReadOfChat},
    {"add_generation_prompt", R"({"type":"boolean"})", ReadOfChat},
    {"continue_final_message", R"({"type":"boolean"})", ReadOfChat},
    {"chat_template_kwargs", R"({"type":"object"})", ReadOfChat},
    {"tools", R"({"type":"array","items":{"type":"object"}})", ReadOfTools},
    {"tool_choice", R"({"anyOf":[{"type":"string"},{"type":"object"}]})", ReadOfTools},
    {"parallel_tool_calls", R"({"type":"boolean"})", ReadOfTools},
    {"include_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"separate_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"thinking_token_budget", kBudget, ReadOfThinking},
    {"thinking_budget", kBudget, ReadOfThinking},
    {"thinking_budget_tokens", kBudget, ReadOfThinking},
    {"reasoning_budget", kBudget, ReadOfThinking},
    {"reasoning_budget_tokens", kBudget, ReadOfThinking},
    {"reasoning",
     R"({"type":"object","properties":{"max_tokens":{"type":"integer","minimum":0,"maximum":2147483647},"exclude":{"type":"boolean"},"enabled":{"type":"boolean"}},"additionalProperties":false})",
     ReadOfThinking},
    {"thinking",
     R"({"type":"object","properties":{"type":{"enum":["enabled","disabled"]},"budget_tokens":{"type":"integer","minimum":0,"maximum":2147483647}},"required":["type"],"additionalProperties":false})",
     ReadOfThinking},
    {"logprobs", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.has_logprobs = v.Boolean(); }},
    {"top_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
     [](Draft& to, const RequestValue& v) {
       to.top_logprobs = v.Integer<int32_t>(UpTo(to.limits.logprobs));
     }},
};

// In the order in which names are looked up.
std::vector<DraftFields> TablesOf(Api api) {
  switch (api) {
    case Api::kCompletions:
      return {kCompletionFields, kOpenAiFields, kCommonFields};
    case Api::kChat:
      return {kChatFields, kOpenAiFields, kCommonFields};
    case Api::kMessages:
    case Api::kCountTokens:
      return {MessagesFields(), kCommonFields};
    case Api::kResponses:
      return {ResponsesFields(), kCommonFields};
  }
  return {};
}

const DraftField* FindIn(std::span<const DraftFields> tables, std::string_view name) {
  for (const DraftFields fields : tables) {
    if (const DraftField* const field = FieldOf(fields, name)) return field;
  }
  return nullptr;
}

void FinishCompletion(Draft& draft) {
  CompletionRequest& request = draft.request;
  if (request.prompts.empty()) ThrowInvalid("prompt", "", "a text or a list");
  if (draft.best_of.value_or(request.n) != request.n) {
    ThrowInvalid("best_of", Number(*draft.best_of), "the same as n");
  }
  const int64_t choices = std::ssize(request.prompts) * request.n;
  if (choices > draft.limits.choices) {
    ThrowInvalid("n", Number(request.n),
                 "at most " + Number(draft.limits.choices) + " choices of all prompts together");
  }
}

void Finish(Draft& draft) {
  CompletionRequest& request = draft.request;
  request.max_tokens = draft.max_tokens;
  std::string_view max_name = draft.max_name;
  if (draft.max_completion_tokens.has_value()) {
    request.max_tokens = draft.max_completion_tokens;
    max_name = "max_completion_tokens";
  }
  if (request.max_tokens == 0 && !request.echo) {
    ThrowInvalid(max_name, "0",
                 IsChat(request.api) ? "1 or more" : "1 or more; 0 only where echo is true");
  }
  const int64_t min_tokens = request.params.min_tokens;
  if (request.max_tokens.has_value() && min_tokens > *request.max_tokens) {
    ThrowInvalid("min_tokens", Number(min_tokens), std::string("at most ").append(max_name));
  }
  if (draft.has_stream_options && !request.streams) {
    ThrowInvalid("stream_options", "an object", "nothing where stream is not true");
  }
  if (request.streams && request.prompt_logprobs.has_value()) {
    ThrowInvalid("prompt_logprobs", Number(*request.prompt_logprobs),
                 "nothing where stream is true; echo with logprobs streams them");
  }
  if (request.echo && request.prompt_logprobs.has_value()) {
    ThrowInvalid("prompt_logprobs", Number(*request.prompt_logprobs),
                 "nothing where echo is true; logprobs has them then");
  }
  switch (request.api) {
    case Api::kCompletions:
      FinishCompletion(draft);
      break;
    case Api::kChat:
      FinishChat(draft);
      break;
    case Api::kMessages:
    case Api::kCountTokens:
      FinishMessages(draft);
      break;
    case Api::kResponses:
      FinishResponses(draft);
      break;
  }
  request.grammar = std::move(draft.grammar.grammar);
  request.grammar_field = std::move(draft.grammar.field);
  request.params.logprobs = request.logprobs;
  if (request.echo && request.logprobs.has_value()) request.prompt_logprobs = request.logprobs;
}

// The names that an unknown one may have been meant to be.
std::vector<std::string_view> KnownNames(std::span<const DraftFields> tables) {
  std::vector<std::string_view> names;
  for (const DraftFields fields : tables) {
    for (const DraftField& field : fields) {
      if (!field.schema.empty()) names.push_back(field.name);
    }
  }
  for (const std::string_view name : GrammarFields()) names.push_back(name);
  for (const std::string_view name : json::kParamNames) names.push_back(name);
  return names;
}

}  // namespace

void ReadStop(Draft& to, const RequestValue& value) {
  std::vector<std::string>& stops = to.request.text.stops;
  const auto add = [&](std::string stop) {
    const RequestLimits& limits = to.limits;
    const std::string size = Number(stop.size()) + " bytes";
    if (stop.empty()) value.Refuse("an empty text", "texts of one byte or more");
    if (stop.size() > limits.stop_bytes) {
      value.Refuse(size, "texts of at most " + Number(limits.stop_bytes) + " bytes");
    }
    if (stops.size() >= static_cast<size_t>(limits.stops)) {
      value.Refuse("a list of more than " + Number(limits.stops) + " texts",
                   "at most " + Number(limits.stops) + " texts");
    }
    stops.push_back(std::move(stop));
  };
  if (value.type() == json_type::string) {
    add(value.Text());
  } else {
    value.ForEachValue("a text or a list of texts",
                       [&](const RequestValue& stop) { add(stop.Text()); });
  }
}

void ReadMaxTokens(Draft& to, const RequestValue& value) {
  to.max_tokens = value.Integer<int64_t>(UpTo(kMostTokens));
}

void ReadOfChat(Draft& to, const RequestValue& value) { ReadChatField(to.chat, value); }
void ReadOfTools(Draft& to, const RequestValue& value) { ReadToolField(to.request.tools, value); }

void ReadEffort(Draft& to, const RequestValue& value) {
  const std::string effort = value.Text();
  CheckText(effort, value.name(), to.limits.refused_texts);
  if (effort.empty()) value.Refuse("an empty text", "a text such as low, medium or high");
  if (effort == "none") {
    to.reasons = false;
  } else {
    AppendQuoted(to.effort, effort);
  }
}

// By the variables that templates read: enable_thinking is that of Qwen and GLM, thinking that of
// DeepSeek and Granite, reasoning_effort that of gpt-oss.
void SetReasoning(Draft& draft) {
  if (draft.reasons.has_value()) {
    const std::string_view value = *draft.reasons ? "true" : "false";
    SetTemplateField(draft.chat, "enable_thinking", value);
    SetTemplateField(draft.chat, "thinking", value);
  }
  if (!draft.effort.empty()) SetTemplateField(draft.chat, "reasoning_effort", draft.effort);
}

void FinishChat(Draft& draft) {
  CompletionRequest& request = draft.request;
  if (draft.top_logprobs.value_or(0) > 0 && !draft.has_logprobs) {
    ThrowInvalid("top_logprobs", Number(*draft.top_logprobs), "nothing without logprobs: true");
  }
  if (draft.has_logprobs) request.logprobs = draft.top_logprobs.value_or(0);
  if (request.echo) ThrowInvalid("echo", "true", "false: chats have no prompt to repeat");
  if (!request.parses_special_tokens) {
    ThrowInvalid("parse_special_tokens", "false", "true: templates write special tokens as text");
  }
  if (request.tools.may_call()) draft.chat.tools = request.tools.json;
  FinishTools(request.tools);
  request.thinking_tokens = draft.thinking.tokens;
  request.thinking_field = std::move(draft.thinking.field);
  if (draft.thinking.excludes_reasoning) request.tools.includes_reasoning = false;
  if (draft.thinking.reasons.has_value()) draft.reasons = draft.thinking.reasons;
  SetReasoning(draft);
  request.chat_variables = ChatVariables(draft.chat, draft.chat.messages);
  if (!draft.chat.messages_with_texts.empty()) {
    request.chat_variables_with_texts = ChatVariables(draft.chat, draft.chat.messages_with_texts);
  }
  if (draft.chat.continues_final_message) request.final_message = draft.chat.last_text;
}

std::vector<FieldSchema> CompletionSchemas(Api api) {
  const std::vector<DraftFields> tables = TablesOf(api);
  std::vector<FieldSchema> schemas;
  for (const DraftFields fields : tables) AddSchemas(fields, schemas);
  for (const std::string_view name : GrammarFields()) {
    schemas.push_back({name, R"({"description":"what the output must be"})"});
  }
  for (FieldSchema& param : ParamSchemas()) {
    if (FindIn(tables, param.name) == nullptr) schemas.push_back(std::move(param));
  }
  return schemas;
}

CompletionRequest ParseCompletionRequest(Api api, std::string_view body,
                                         const SamplingParams& defaults,
                                         const RequestLimits& limits) {
  const std::vector<DraftFields> tables = TablesOf(api);
  Draft draft{limits};
  draft.request.api = api;
  draft.request.params = defaults;
  draft.request.adds_special_tokens = api == Api::kCompletions;
  draft.request.parses_special_tokens = IsChat(api);
  draft.chat.refused_texts = limits.refused_texts;
  draft.grammar.max_bytes = limits.grammar_bytes;
  const auto is_known = [&](std::string_view name) {
    return FindIn(tables, name) != nullptr || json::IsParam(name) || IsGrammarField(name) ||
           IsUnsupported(name) || IsIgnored(name);
  };
  draft.request.unknown = ReadBody(body, is_known, [&](const RequestValue& value) {
    if (const DraftField* const field = FindIn(tables, value.name())) {
      field->read(draft, value);
    } else if (json::IsParam(value.name())) {
      json::ReadParam(value.name(), value.json(), draft.request.params);
    } else if (IsGrammarField(value.name())) {
      ReadGrammarField(draft.grammar, value);
    } else if (IsUnsupported(value.name())) {
      RefuseUnsupported(api, value);
    } else {
      value.Skip();
    }
  });
  for (const std::string& name : draft.chat.unknown) AddUnknown(name, draft.request.unknown);
  for (const std::string& name : draft.grammar.unknown) AddUnknown(name, draft.request.unknown);
  if (limits.refuses_unknown && !draft.request.unknown.empty()) {
    throw ApiFailure(UnknownField(draft.request.unknown, KnownNames(tables)));
  }
  WithApiErrors([&] { Finish(draft); });
  return std::move(draft.request);
}

}  // namespace sluice::server
