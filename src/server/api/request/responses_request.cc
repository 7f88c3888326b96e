// The fields of OpenAI's /v1/responses, as those of a chat:
//
//   instructions       a message of the system before all others
//   input              see response_items.h
//   max_output_tokens  max_tokens
//   text               format as ReadFlatFormat has it
//   tools              {"type": "function", "name", "description", "parameters", "strict"}
//   tool_choice        none, auto, required, or {"type": "function", "name"}
//   reasoning          effort: reasoning_effort for the template; "none" as `thinking` of messages
//
// Nothing is stored: what names a response that was, is refused.
#include <array>

#include "server/api/json_text.h"
#include "server/api/request/read_fields.h"
#include "server/api/request/request_draft.h"
#include "server/api/request/response_items.h"
#include "server/api/request/unsupported.h"
#include "support/number.h"

namespace sluice::server {
namespace {

// A member that responses repeat, as it came.
void AppendEcho(Draft& to, std::string_view name, std::string_view json) {
  to.echo.emplace_back(name, json);
}

std::string JsonOfValue(const RequestValue& value) {
  std::string json;
  AppendJson(value, json);
  return json;
}

// Reads an object that responses repeat.
template <typename Read>
void ReadAndEcho(Draft& to, const RequestValue& value, Read read) {
  if (value.type() != json::json_type::object) value.Refuse(value.Shown(), "an object");
  const std::string json = JsonOfValue(value);
  AppendEcho(to, value.name(), json);
  ReadAgain(value.name(), json, read);
}

void ReadInput(Draft& to, const RequestValue& value) {
  Conversation conversation(to.chat);
  ReadResponseInput(value, conversation, to.chat.unknown);
  to.chat.has_messages = true;
}

void ReadInstructions(Draft& to, const RequestValue& value) {
  to.system = value.Text();
  CheckText(*to.system, value.name(), to.chat.refused_texts);
  std::string quoted;
  AppendQuoted(quoted, *to.system);
  AppendEcho(to, value.name(), quoted);
}

void ReadMaxOutputTokens(Draft& to, const RequestValue& value) {
  ReadMaxTokens(to, value);
  to.max_name = "max_output_tokens";
}

void ReadText(Draft& to, const RequestValue& value) {
  constexpr auto kFields = std::to_array<std::string_view>({"format", "verbosity"});
  ReadAndEcho(to, value, [&](const RequestValue& text) {
    ReadFields(text, kFields, "text", to.chat.unknown,
               [&](std::string_view field, const RequestValue& part) {
                 if (field == "format") return ReadFlatFormat(to.grammar, part);
                 const std::string verbosity = part.Text();
                 if (verbosity == "medium") return;
                 ThrowUnsupported(std::string(part.name()), verbosity,
                                  "the prompt may say how long it shall be");
               });
  });
}

void ReadReasoning(Draft& to, const RequestValue& value) {
  constexpr auto kFields =
      std::to_array<std::string_view>({"effort", "summary", "generate_summary"});
  ReadAndEcho(to, value, [&](const RequestValue& reasoning) {
    ReadFields(reasoning, kFields, "reasoning", to.chat.unknown,
               [&](std::string_view field, const RequestValue& part) {
                 if (field == "effort") return ReadEffort(to, part);
                 part.Text();  // reasoning comes whole
               });
  });
}

void ReadFunctions(Draft& to, const RequestValue& value) {
  const std::string json = JsonOfValue(value);
  if (!json.starts_with('[')) value.Refuse(RequestValue::Quoted(json), "a list of functions");
  ReadAgain(value.name(), json, [&](const RequestValue& tools) {
    ReadFlatTools(to.request.tools, tools,
                  {.type = "function",
                   .parameters_key = "parameters",
                   .names = {.name = ".name",
                             .parameters = ".parameters",
                             .strict = ".strict",
                             .choice = "tool_choice.name"}},
                  to.chat.unknown);
  });
  AppendEcho(to, value.name(), json);
}

void ReadFunctionChoice(Draft& to, const RequestValue& value) {
  constexpr auto kFields = std::to_array<std::string_view>({"type", "name"});
  if (value.type() != json::json_type::object) {
    constexpr std::string_view kChoices[] = {"none", "auto", "required"};  // as CallChoice has them
    const bool is_text = value.type() == json::json_type::string;
    const std::string text = is_text ? value.Text() : value.Shown();
    const auto found = std::ranges::find(kChoices, text);
    if (!is_text || found == std::end(kChoices)) {
      value.Refuse(is_text ? RequestValue::Quoted(text) : text,
                   R"(none, auto, required or {"type": "function", "name": ...})");
    }
    to.request.tools.choice = static_cast<CallChoice>(found - std::begin(kChoices));
    return AppendEcho(to, value.name(), RequestValue::Quoted(text));
  }
  ReadAndEcho(to, value, [&](const RequestValue& choice) {
    std::string type;
    std::string name;
    ReadFields(choice, kFields, "tool_choice", to.chat.unknown,
               [&](std::string_view field, const RequestValue& part) {
                 (field == "type" ? type : name) = part.Text();
               });
    if (type != "function") {
      if (type.empty()) ThrowInvalid("tool_choice.type", "", "\"function\"");
      ThrowUnsupported("tool_choice.type", type, "\"function\" chooses one by its name");
    }
    if (name.empty()) ThrowInvalid("tool_choice.name", "", "the name of a tool");
    to.request.tools.named = std::move(name);
    to.request.tools.choice = CallChoice::kRequired;
  });
}

// What may be included beyond what responses have anyway.
void ReadInclude(Draft&, const RequestValue& value) {
  ReadElements(value, "a list of texts", [&](const RequestValue& element) {
    const std::string what = element.Text();
    if (what == "reasoning.encrypted_content") return;  // reasoning is not encrypted
    ThrowUnsupported(std::string(element.name()), what,
                     "responses have all that there is; /v1/chat/completions has logprobs");
  });
}

// Every event that has the response repeats it. The limits are OpenAI's.
void ReadMetadata(Draft& to, const RequestValue& value) {
  constexpr size_t kMostTexts = 16;
  constexpr size_t kNameBytes = 64;
  constexpr size_t kTextBytes = 512;
  size_t texts = 0;
  ReadAndEcho(to, value, [&](const RequestValue& metadata) {
    metadata.ForEachField([&](const std::string& field, json::Json json) {
      if (++texts > kMostTexts) {
        ThrowInvalid("metadata", "more than " + Number(kMostTexts) + " texts",
                     "at most " + Number(kMostTexts) + " texts");
      }
      if (field.size() > kNameBytes) {
        ThrowInvalid("metadata", "a name of " + Number(field.size()) + " bytes",
                     "names of at most " + Number(kNameBytes) + " bytes");
      }
      const std::string name = FieldPath("metadata", field);
      const size_t bytes = RequestValue(name, json).Text().size();
      if (bytes > kTextBytes) {
        ThrowInvalid(name, Number(bytes) + " bytes",
                     "a text of at most " + Number(kTextBytes) + " bytes");
      }
    });
  });
}

// include_obfuscation pads events, so that their sizes say nothing: here none is padded.
void CheckStreamOptions(Draft&, const RequestValue& value) {
  if (value.type() != json::json_type::object) value.Refuse(value.Shown(), "an object");
  value.Skip();
}

void CheckTruncation(Draft&, const RequestValue& value) {
  const std::string text = value.Text();
  if (text == "disabled") return;
  if (text != "auto") value.Refuse(RequestValue::Quoted(text), "disabled");
  ThrowUnsupported("truncation", text, "truncate_prompt_tokens keeps the last tokens");
}

constexpr std::string_view kNoState =
    "nothing is stored here: input has the whole conversation, with the output of responses";
constexpr std::string_view kChatLogprobs = "/v1/chat/completions gives log-probabilities";
constexpr std::string_view kUseMaxOutput = "max_output_tokens does it";
constexpr std::string_view kOneResponse = "a response is one answer";
constexpr DraftField kResponsesFields[] = {
    {"input",
     R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","properties":{"type":{"enum":["message","reasoning","function_call","function_call_output"]}}}}]})",
     ReadInput},
    {"instructions", R"({"type":"string"})", ReadInstructions},
    {"max_output_tokens", R"({"type":"integer","minimum":1,"maximum":2147483647})",
     ReadMaxOutputTokens},
    {"text",
     R"({"type":"object","properties":{"format":{"type":"object","properties":{"type":{"enum":["text","json_object","json_schema","structural_tag"]},"schema":{"type":"object"}}}}})",
     ReadText},
    {"reasoning", R"({"type":"object","properties":{"effort":{"type":"string","minLength":1}}})",
     ReadReasoning},
    {"tools",
     R"({"type":"array","items":{"type":"object","properties":{"type":{"const":"function"},"name":{"type":"string"},"parameters":{"type":"object"},"strict":{"type":"boolean"}},"required":["name"]}})",
     ReadFunctions},
    {"tool_choice",
     R"({"anyOf":[{"enum":["none","auto","required"]},{"type":"object","properties":{"type":{"const":"function"},"name":{"type":"string","minLength":1}},"required":["type","name"]}]})",
     ReadFunctionChoice},
    {"parallel_tool_calls", R"({"type":"boolean"})", ReadOfTools},
    {"include", R"({"type":"array","items":{"type":"string"}})", ReadInclude},
    {"metadata", R"({"type":"object"})", ReadMetadata},
    {"truncation", R"({"enum":["disabled"]})", CheckTruncation},
    {"stream_options", R"({"type":"object"})", CheckStreamOptions},
    {"chat_template_kwargs", R"({"type":"object"})", ReadOfChat},
    {"include_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"separate_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"stop",
     R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","items":{"type":"string","minLength":1},"maxItems":16}]})",
     ReadStop},
    {"previous_response_id", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoState); }},
    {"conversation", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoState); }},
    {"background", "",
     [](Draft&, const RequestValue& v) {
       RefuseUnsupported(v, "nothing is stored here: a response is its request's");
     }},
    {"prompt", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, "input and instructions have it"); }},
    {"max_tokens", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kUseMaxOutput); }},
    {"max_completion_tokens", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kUseMaxOutput); }},
    {"messages", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, "input has them"); }},
    {"n", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kOneResponse, 1); }},
    {"logprobs", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kChatLogprobs); }},
    {"top_logprobs", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kChatLogprobs); }},
    {"prompt_logprobs", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kChatLogprobs); }},
    {"return_token_ids", "",
     [](Draft&, const RequestValue& v) {
       RefuseUnsupported(v, "/v1/chat/completions gives the ids of tokens");
     }},
};

// What a response has where the request has nothing to repeat.
struct Repeated {
  std::string_view member;
  std::string_view json;
};
constexpr Repeated kRepeated[] = {
    {"instructions", "null"}, {"metadata", "{}"},
    {"reasoning", "null"},    {"text", R"({"format":{"type":"text"}})"},
    {"tools", "[]"},          {"tool_choice", R"("auto")"},
};

void AppendFloat(std::string& out, std::string_view name, float value) {
  out.append("\"").append(name).append("\":");
  AppendNumber(out, value);
  out.push_back(',');
}

std::string EchoMembers(const Draft& draft) {
  const CompletionRequest& request = draft.request;
  std::string out;
  for (const Repeated& row : kRepeated) {
    const auto found = std::ranges::find(draft.echo, row.member, &Echo::first);
    out.append("\"").append(row.member).append("\":");
    out.append(found == draft.echo.end() ? row.json : std::string_view(found->second)).append(",");
  }
  out.append(R"("max_output_tokens":)");
  if (request.max_tokens.has_value()) {
    AppendNumber(out, *request.max_tokens);
  } else {
    out.append("null");
  }
  out.append(R"(,"parallel_tool_calls":)").append(request.tools.is_parallel ? "true" : "false");
  out.append(R"(,"previous_response_id":null,"store":false,"truncation":"disabled",)");
  AppendFloat(out, "temperature", request.params.temperature);
  AppendFloat(out, "top_p", request.params.top_p);
  return out;
}

}  // namespace

DraftFields ResponsesFields() { return kResponsesFields; }

void FinishResponses(Draft& draft) {
  CompletionRequest& request = draft.request;
  if (!draft.chat.has_messages) ThrowInvalid("input", "", "a text or a list of one item or more");
  if (draft.system.has_value()) PrependSystem(draft.chat, *draft.system);
  request.echo_members = EchoMembers(draft);
  FinishChat(draft);
}

}  // namespace sluice::server
