// The fields of Anthropic's /v1/messages and /v1/messages/count_tokens, as those of a chat:
//
//   system          a message of the system before all others
//   messages        see message_blocks.h; the model goes on with a last message of the assistant,
//                   unless that is empty or has calls
//   max_tokens      has to be there, but to count tokens
//   stop_sequences  stop
//   tools           {"name", "description", "input_schema"}, see ReadFlatTools
//   tool_choice     {"type": auto, any, tool or none, "name", "disable_parallel_tool_use"}
//   thinking        {"type": enabled with "budget_tokens", adaptive or disabled}: enable_thinking
//                   and thinking for the template; disabled leaves reasoning out of the answer, too
//   output_config   format as ReadFlatFormat has it; effort: reasoning_effort for the template
//
// Sampling parameters beyond Anthropic's have the names that they have in chats.
#include <array>

#include "server/api/json_text.h"
#include "server/api/request/message_blocks.h"
#include "server/api/request/read_fields.h"
#include "server/api/request/request_draft.h"
#include "server/api/request/unsupported.h"

namespace sluice::server {
namespace {

void ReadTurns(Draft& to, const RequestValue& value) {
  Conversation conversation(to.chat);
  ReadMessageBlocks(value, conversation, to.chat.unknown);
  if (to.chat.messages.empty()) value.Refuse("an empty message of the assistant", "one of a user");
  to.chat.has_messages = true;
  to.chat.continues_final_message = conversation.ends_in_text();
}

void ReadSystem(Draft& to, const RequestValue& value) {
  to.system = ReadTextBlocks(value, to.chat.unknown);
  CheckText(*to.system, value.name(), to.chat.refused_texts);
}

void ReadSchemaTools(Draft& to, const RequestValue& value) {
  // The prefix cache needs no marks, and input comes in pieces anyway.
  constexpr std::string_view kWithoutEffect[] = {"cache_control", "eager_input_streaming"};
  ReadFlatTools(to.request.tools, value,
                {.type = "custom",
                 .parameters_key = "input_schema",
                 .names = {.name = ".name",
                           .parameters = ".input_schema",
                           .strict = ".strict",
                           .choice = "tool_choice.name"},
                 .without_effect = kWithoutEffect},
                to.chat.unknown);
}

void ReadToolChoice(Draft& to, const RequestValue& value) {
  constexpr auto kFields =
      std::to_array<std::string_view>({"type", "name", "disable_parallel_tool_use"});
  constexpr const char* kTypes = "auto, any, tool or none";
  ToolRequest& tools = to.request.tools;
  std::string type;
  std::string name;
  ReadFields(value, kFields, "tool_choice", to.chat.unknown,
             [&](std::string_view field, const RequestValue& part) {
               if (field == "disable_parallel_tool_use") {
                 tools.is_parallel = !part.Boolean();
               } else {
                 (field == "type" ? type : name) = part.Text();
               }
             });
  if (type == "tool") {
    if (name.empty()) ThrowInvalid("tool_choice.name", "", "the name of a tool");
    tools.named = std::move(name);
  }
  if (type == "none") {
    tools.choice = CallChoice::kNone;
  } else if (type == "any" || type == "tool") {
    tools.choice = CallChoice::kRequired;
  } else if (type != "auto") {
    ThrowInvalid("tool_choice.type", type.empty() ? "" : RequestValue::Quoted(type), kTypes);
  }
}

// A budget with no field that it came from bounds the reasoning of models that reason, and nothing
// of the others: clients send it whatever the model is.
void ReadThinking(Draft& to, const RequestValue& value) {
  constexpr auto kFields = std::to_array<std::string_view>({"type", "budget_tokens", "display"});
  std::string type;
  ReadFields(value, kFields, "thinking", to.chat.unknown,
             [&](std::string_view field, const RequestValue& part) {
               if (field == "budget_tokens") {
                 to.thinking.tokens = part.Integer<int64_t>(UpTo(kMostTokens, 1));
               } else if (field == "type") {
                 type = part.Text();
               } else {
                 part.Skip();
               }
             });
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    ThrowInvalid("thinking.type", type.empty() ? "" : RequestValue::Quoted(type),
                 "enabled, adaptive or disabled");
  }
  if (type != "enabled") {
    to.thinking.tokens.reset();
  } else if (!to.thinking.tokens.has_value()) {
    ThrowInvalid("thinking.budget_tokens", "", "a whole number of 1 or more");
  }
  if (type == "disabled") to.request.tools.includes_reasoning = false;
  if (type != "adaptive") to.reasons = type == "enabled";
}

void ReadOutputConfig(Draft& to, const RequestValue& value) {
  constexpr auto kFields = std::to_array<std::string_view>({"format", "effort"});
  ReadFields(value, kFields, value.name(), to.chat.unknown,
             [&](std::string_view field, const RequestValue& part) {
               if (field == "format") {
                 ReadFlatFormat(to.grammar, part);
               } else {
                 ReadEffort(to, part);
               }
             });
}

void ReadStopSequences(Draft& to, const RequestValue& value) {
  if (value.type() != json::json_type::array) value.Refuse(value.Shown(), "a list of texts");
  ReadStop(to, value);
}

constexpr std::string_view kOneAnswer = "an answer is one message";
constexpr std::string_view kNoLogprobs = "/v1/chat/completions gives log-probabilities";
constexpr std::string_view kNoIds = "/v1/chat/completions gives the ids of tokens";
constexpr DraftField kMessagesFields[] = {
    {"messages",
     R"({"type":"array","minItems":1,"items":{"type":"object","properties":{"role":{"enum":["user","assistant"]},"content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]}},"required":["role","content"]}})",
     ReadTurns},
    {"max_tokens", R"({"type":"integer","minimum":1,"maximum":2147483647})", ReadMaxTokens},
    {"system", R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})",
     ReadSystem},
    {"stop_sequences", R"({"type":"array","items":{"type":"string","minLength":1},"maxItems":16})",
     ReadStopSequences},
    {"tools",
     R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"input_schema":{"type":"object"}},"required":["name"]}})",
     ReadSchemaTools},
    {"tool_choice",
     R"({"type":"object","properties":{"type":{"enum":["auto","any","tool","none"]},"name":{"type":"string"},"disable_parallel_tool_use":{"type":"boolean"}},"required":["type"]})",
     ReadToolChoice},
    {"thinking",
     R"({"type":"object","properties":{"type":{"enum":["enabled","adaptive","disabled"]},"budget_tokens":{"type":"integer","minimum":1}},"required":["type"]})",
     ReadThinking},
    {"output_config",
     R"({"type":"object","properties":{"format":{"type":"object"},"effort":{"type":"string","minLength":1}}})",
     ReadOutputConfig},
    {"output_format", R"({"type":"object"})",
     [](Draft& to, const RequestValue& v) { ReadFlatFormat(to.grammar, v); }},
    {"chat_template_kwargs", R"({"type":"object"})", ReadOfChat},
    {"include_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"separate_reasoning", R"({"type":"boolean"})", ReadOfTools},
    {"stop", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, "stop_sequences does it"); }},
    {"max_completion_tokens", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, "max_tokens does it"); }},
    {"n", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kOneAnswer, 1); }},
    {"logprobs", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoLogprobs); }},
    {"top_logprobs", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoLogprobs); }},
    {"prompt_logprobs", "",
     [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoLogprobs); }},
    {"return_token_ids", "", [](Draft&, const RequestValue& v) { RefuseUnsupported(v, kNoIds); }},
};

}  // namespace

DraftFields MessagesFields() { return kMessagesFields; }

void FinishMessages(Draft& draft) {
  if (draft.request.api == Api::kMessages && !draft.max_tokens.has_value()) {
    ThrowInvalid("max_tokens", "", "a whole number of 1 or more");
  }
  if (draft.system.has_value() && draft.chat.has_messages) {
    PrependSystem(draft.chat, *draft.system);
  }
  FinishChat(draft);
}

}  // namespace sluice::server
