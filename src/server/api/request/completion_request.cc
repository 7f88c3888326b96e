#include "server/api/request/completion_request.h"

#include "json/read_param.h"
#include "server/api/request/chat_input.h"
#include "server/api/request/field_names.h"
#include "server/api/request/field_schemas.h"
#include "server/api/request/grammar_fields.h"
#include "server/api/request/param_schemas.h"
#include "server/api/request/request_fields.h"
#include "server/api/request/thinking_fields.h"
#include "server/api/request/unsupported.h"
#include "support/number.h"

namespace sluice::server {
namespace {

using json::json_type;
using json::Range;

constexpr int32_t kMostTokens = 2147483647;

// A request, and what is known of it before all of its fields are.
struct Draft {
  const RequestLimits& limits;
  CompletionRequest request = {};
  ChatInput chat = {};
  GrammarInput grammar = {};
  ThinkingInput thinking = {};
  std::optional<int64_t> max_tokens = {};
  std::optional<int64_t> max_completion_tokens = {};
  std::optional<int32_t> best_of = {};
  bool has_stream_options = false;
  bool has_logprobs = false;  // kChat's, which is true or false
  std::optional<int32_t> top_logprobs = {};
};

Range UpTo(int64_t high, int64_t low = 0) {
  return {static_cast<double>(low), static_cast<double>(high), false};
}

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

constexpr RequestField<Draft> kCommonFields[] = {
    {"model", R"({"type":"string"})",
     [](Draft& to, const RequestValue& v) { to.request.model = v.Text(); }},
    {"n", R"({"type":"integer","minimum":1,"maximum":128})",
     [](Draft& to, const RequestValue& v) {
       to.request.n = v.Integer<int32_t>(UpTo(to.limits.choices, 1));
     }},
    {"stream", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.streams = v.Boolean(); }},
    {"stream_options",
     R"({"type":"object","properties":{"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean"}}})",
     ReadStreamOptions},
    {"stop",
     R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"maxItems":16}]})",
     ReadStop},
    {"seed", R"({"type":"integer","minimum":-1,"maximum":18446744073709551615})", ReadSeed},
    {"temperature", R"({"type":"number","minimum":0,"maximum":2})", ReadTemperature},
    {"max_tokens", R"({"type":"integer","minimum":0,"maximum":2147483647})",
     [](Draft& to, const RequestValue& v) {
       to.max_tokens = v.Integer<int64_t>(UpTo(kMostTokens));
     }},
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
    {"return_token_ids", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.request.returns_token_ids = v.Boolean(); }},
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
    {"truncate_prompt_tokens", R"({"type":"integer","minimum":-1,"maximum":2147483647})",
     ReadTruncation},
};

constexpr RequestField<Draft> kCompletionFields[] = {
    {"prompt",
     R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}},{"type":"array","items":{"type":"string"},"maxItems":128},{"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}},"maxItems":128}]})",
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

constexpr void (*kReadChat)(Draft&, const RequestValue&) = [](Draft& to, const RequestValue& v) {
  ReadChatField(to.chat, v);
};
constexpr void (*kReadTool)(Draft&, const RequestValue&) = [](Draft& to, const RequestValue& v) {
  ReadToolField(to.request.tools, v);
};
constexpr void (*kReadThinking)(Draft&, const RequestValue&) =
    [](Draft& to, const RequestValue& v) { ReadThinkingField(to.thinking, v); };
constexpr const char* kBudget = R"({"type":"integer","minimum":-1,"maximum":2147483647})";
constexpr RequestField<Draft> kChatFields[] = {
    {"messages",
     R"({"type":"array","items":{"type":"object","properties":{"role":{"type":"string"}},"required":["role"]}})",
     kReadChat},
    {"add_generation_prompt", R"({"type":"boolean"})", kReadChat},
    {"continue_final_message", R"({"type":"boolean"})", kReadChat},
    {"chat_template_kwargs", R"({"type":"object"})", kReadChat},
    {"tools", R"({"type":"array","items":{"type":"object"}})", kReadTool},
    {"tool_choice", R"({"anyOf":[{"type":"string"},{"type":"object"}]})", kReadTool},
    {"parallel_tool_calls", R"({"type":"boolean"})", kReadTool},
    {"include_reasoning", R"({"type":"boolean"})", kReadTool},
    {"separate_reasoning", R"({"type":"boolean"})", kReadTool},
    {"thinking_token_budget", kBudget, kReadThinking},
    {"thinking_budget", kBudget, kReadThinking},
    {"thinking_budget_tokens", kBudget, kReadThinking},
    {"reasoning_budget", kBudget, kReadThinking},
    {"reasoning_budget_tokens", kBudget, kReadThinking},
    {"reasoning",
     R"({"type":"object","properties":{"max_tokens":{"type":"integer","minimum":0,"maximum":2147483647},"exclude":{"type":"boolean"},"enabled":{"type":"boolean"}},"additionalProperties":false})",
     kReadThinking},
    {"thinking",
     R"({"type":"object","properties":{"type":{"enum":["enabled"]},"budget_tokens":{"type":"integer","minimum":0,"maximum":2147483647}},"required":["type","budget_tokens"],"additionalProperties":false})",
     kReadThinking},
    {"logprobs", R"({"type":"boolean"})",
     [](Draft& to, const RequestValue& v) { to.has_logprobs = v.Boolean(); }},
    {"top_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
     [](Draft& to, const RequestValue& v) {
       to.top_logprobs = v.Integer<int32_t>(UpTo(to.limits.logprobs));
     }},
};

const RequestField<Draft>* Find(Api api, std::string_view name) {
  using Fields = std::span<const RequestField<Draft>>;
  const auto* const common = FieldOf(Fields(kCommonFields), name);
  if (common != nullptr) return common;
  return FieldOf(api == Api::kChat ? Fields(kChatFields) : Fields(kCompletionFields), name);
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
  request.chat_variables = ChatVariables(draft.chat, draft.chat.messages);
  if (!draft.chat.messages_with_texts.empty()) {
    request.chat_variables_with_texts = ChatVariables(draft.chat, draft.chat.messages_with_texts);
  }
  if (draft.chat.continues_final_message) request.final_message = draft.chat.last_text;
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
  const char* max_name = "max_tokens";
  if (draft.max_completion_tokens.has_value()) {
    request.max_tokens = draft.max_completion_tokens;
    max_name = "max_completion_tokens";
  }
  if (request.max_tokens == 0 && !request.echo) {
    ThrowInvalid(max_name, "0", "1 or more; 0 only where echo is true");
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
  if (request.api == Api::kChat) {
    FinishChat(draft);
  } else {
    FinishCompletion(draft);
  }
  request.grammar = std::move(draft.grammar.grammar);
  request.grammar_field = std::move(draft.grammar.field);
  request.params.logprobs = request.logprobs;
  if (request.echo && request.logprobs.has_value()) request.prompt_logprobs = request.logprobs;
}

// The names that an unknown one may have been meant to be.
std::vector<std::string_view> KnownNames(Api api) {
  std::vector<std::string_view> names;
  for (const auto& field : kCommonFields) names.push_back(field.name);
  if (api == Api::kChat) {
    for (const auto& field : kChatFields) names.push_back(field.name);
  } else {
    for (const auto& field : kCompletionFields) names.push_back(field.name);
  }
  for (const std::string_view name : GrammarFields()) names.push_back(name);
  for (const std::string_view name : json::kParamNames) names.push_back(name);
  return names;
}

}  // namespace

std::vector<FieldSchema> CompletionSchemas(Api api) {
  using Fields = std::span<const RequestField<Draft>>;
  std::vector<FieldSchema> schemas;
  AddSchemas(api == Api::kChat ? Fields(kChatFields) : Fields(kCompletionFields), schemas);
  AddSchemas(Fields(kCommonFields), schemas);
  for (const std::string_view name : GrammarFields()) {
    schemas.push_back({name, R"({"description":"what the output must be"})"});
  }
  for (FieldSchema& param : ParamSchemas()) {
    if (Find(api, param.name) == nullptr) schemas.push_back(std::move(param));
  }
  return schemas;
}

CompletionRequest ParseCompletionRequest(Api api, std::string_view body,
                                         const SamplingParams& defaults,
                                         const RequestLimits& limits) {
  Draft draft{limits};
  draft.request.api = api;
  draft.request.params = defaults;
  draft.request.adds_special_tokens = api == Api::kCompletions;
  draft.request.parses_special_tokens = api == Api::kChat;
  draft.chat.refused_texts = limits.refused_texts;
  draft.grammar.max_bytes = limits.grammar_bytes;
  const auto is_known = [&](std::string_view name) {
    return Find(api, name) != nullptr || json::IsParam(name) || IsGrammarField(name) ||
           IsUnsupported(name) || IsIgnored(name);
  };
  draft.request.unknown = ReadBody(body, is_known, [&](const RequestValue& value) {
    if (const RequestField<Draft>* const field = Find(api, value.name())) {
      field->read(draft, value);
    } else if (json::IsParam(value.name())) {
      json::ReadParam(value.name(), value.json(), draft.request.params);
    } else if (IsGrammarField(value.name())) {
      ReadGrammarField(draft.grammar, value);
    } else if (IsUnsupported(value.name())) {
      RefuseUnsupported(value);
    } else {
      value.Skip();
    }
  });
  for (const std::string& name : draft.chat.unknown) AddUnknown(name, draft.request.unknown);
  for (const std::string& name : draft.grammar.unknown) AddUnknown(name, draft.request.unknown);
  if (limits.refuses_unknown && !draft.request.unknown.empty()) {
    throw ApiFailure(UnknownField(draft.request.unknown, KnownNames(api)));
  }
  WithApiErrors([&] { Finish(draft); });
  return std::move(draft.request);
}

}  // namespace sluice::server
