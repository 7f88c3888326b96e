#include "server/api/request/chat_input.h"

#include <algorithm>
#include <array>

#include "server/api/json_text.h"
#include "server/api/request/completion_request.h"
#include "server/api/request/tool_fields.h"
#include "support/number.h"

namespace sluice::server {
namespace {

using json::Json;
using json::json_type;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                    "tool"};
constexpr std::array<std::string_view, 8> kMessageFields = {
    "role",       "content",       "name",   "tool_call_id", "reasoning_content",
    "tool_calls", "function_call", "refusal"};
constexpr const char* kContent = "a text or a list of parts with type \"text\"";
constexpr size_t kMostTemplateFields = 256;
// Variables of a template that fields of the request set.
constexpr std::array<std::string_view, 3> kOwnVariables = {"messages", "add_generation_prompt",
                                                           "continue_final_message"};

void ReadPart(const RequestValue& part, std::string& text) {
  SeenFields seen;
  std::string type;
  std::optional<std::string> content;
  part.ForEachField([&](const std::string& field, Json value) {
    const std::string name = std::string(part.name()).append(".").append(field);
    const RequestValue of_field(name, value);
    if (field == "type" && seen.Add(field)) {
      type = of_field.Text();
      if (type != "text") of_field.Refuse(RequestValue::Quoted(type), "\"text\"");
    } else if (field == "text" && seen.Add(field)) {
      content = of_field.Text();
    } else {
      of_field.Skip();
    }
  });
  if (type.empty()) ThrowInvalid(std::string(part.name()) + ".type", "", "\"text\"");
  if (!content.has_value()) ThrowInvalid(std::string(part.name()) + ".text", "", "a text");
  text.append(*content);
}

std::string ReadContent(const RequestValue& value) {
  if (value.type() == json_type::string) return value.Text();
  std::string text;
  int64_t number = 0;
  value.ForEachValue(kContent, [&](const RequestValue& part) {
    if (number > 0) text.push_back('\n');
    const std::string name = std::string(value.name()).append("[").append(Number(number++)) + "]";
    ReadPart(RequestValue(name, part.json()), text);
  });
  return text;
}

void ReadMessageField(const RequestValue& value, std::string_view field,
                      std::span<const std::string> refused, ChatMessage& to) {
  if (field == "role") {
    to.role = value.Text();
    if (std::ranges::find(kRoles, to.role) == kRoles.end()) {
      value.Refuse(RequestValue::Quoted(to.role), "system, developer, user, assistant or tool");
    }
  } else if (value.IsNull() || field == "refusal") {
    value.Skip();
  } else if (field == "content") {
    to.content = ReadContent(value);
    CheckText(*to.content, value.name(), refused);
  } else if (field == "name" || field == "tool_call_id" || field == "reasoning_content") {
    const std::string text = value.Text();
    CheckText(text, value.name(), refused);
    to.others.append(",\"").append(field).append("\":");
    AppendQuoted(to.others, text);
  } else if (field == "tool_calls") {
    to.calls = ReadToolCalls(value);
    CheckJson(to.calls.with_objects, value.name(), refused);
  } else {
    value.Refuse(value.Shown(), "nothing: tool_calls has the calls of a message");
  }
}

void ReadMessage(const RequestValue& message, ChatInput& to) {
  ChatMessage read;
  SeenFields seen;
  message.ForEachField([&](const std::string& field, Json value) {
    const std::string name = std::string(message.name()).append(".").append(field);
    const bool is_known = std::ranges::find(kMessageFields, field) != kMessageFields.end();
    if (!is_known) AddUnknown("messages[]." + field, to.unknown);
    if (is_known && seen.Add(field)) {
      ReadMessageField(RequestValue(name, value), field, to.refused_texts, read);
    } else {
      RequestValue(name, value).Skip();
    }
  });
  const std::string prefix(message.name());
  if (read.role.empty()) {
    ThrowInvalid(prefix + ".role", "", "system, developer, user, assistant or tool");
  }
  if (!read.content.has_value() && read.role != "assistant") {
    ThrowInvalid(prefix + ".content", "", kContent);
  }
  AppendMessage(to, read);
}

void ReadMessages(const RequestValue& value, ChatInput& to) {
  constexpr const char* kMessages = "a list of one message or more";
  int64_t number = 0;
  value.ForEachValue(kMessages, [&](const RequestValue& message) {
    const std::string name = "messages[" + Number(number++) + "]";
    ReadMessage(RequestValue(name, message.json()), to);
  });
  if (number == 0) value.Refuse("an empty list", kMessages);
  to.has_messages = true;
}

void ReadTemplateFields(const RequestValue& value, ChatInput& to) {
  SeenFields& seen = to.template_names;
  value.ForEachField([&](const std::string& field, Json of_field) {
    const std::string name = std::string(value.name()).append(".").append(field);
    const RequestValue named(name, of_field);
    if (std::ranges::find(kOwnVariables, field) != kOwnVariables.end()) {
      named.Refuse(named.Shown(), "a field of the request itself");
    }
    if (!seen.Add(field)) {
      named.Skip();
      return;
    }
    if (seen.size() > kMostTemplateFields) {
      value.Refuse("more than " + Number(kMostTemplateFields) + " fields",
                   "at most " + Number(kMostTemplateFields) + " fields");
    }
    to.template_fields.push_back(',');
    const size_t begin = to.template_fields.size();
    AppendQuoted(to.template_fields, field);
    to.template_fields.push_back(':');
    AppendJson(named, to.template_fields);
    CheckJson(std::string_view(to.template_fields).substr(begin), name, to.refused_texts);
  });
}

std::string_view JsonOf(bool value) { return value ? "true" : "false"; }

}  // namespace

void CheckText(std::string_view text, std::string_view name, std::span<const std::string> refused) {
  for (const std::string& token : refused) {
    if (text.find(token) == std::string_view::npos) continue;
    throw ApiFailure({.message = std::string(name) + " has the text " +
                                 RequestValue::Quoted(token) +
                                 ", which is a special token of the model: this server takes none "
                                 "in messages",
                      .param = std::string(name),
                      .code = "special_token"});
  }
}

// Such JSON spells a text in one way.
void CheckJson(std::string_view json, std::string_view name, std::span<const std::string> refused) {
  for (const std::string& token : refused) {
    std::string quoted;
    AppendQuoted(quoted, token);
    if (json.find(std::string_view(quoted).substr(1, quoted.size() - 2)) !=
        std::string_view::npos) {
      CheckText(token, name, {&token, 1});
    }
  }
}

void AppendMessage(ChatInput& to, const ChatMessage& message) {
  to.last_text = message.content.value_or("");
  std::string common = to.messages.empty() ? R"({"role":")" : R"(,{"role":")";
  common.append(message.role).append(R"(","content":)");
  AppendQuoted(common, to.last_text);
  common.append(message.others);
  const MessageCalls& calls = message.calls;
  const bool has_calls = !calls.with_objects.empty();
  const bool has_texts = has_calls || !to.messages_with_texts.empty();
  if (has_texts && to.messages_with_texts.empty()) to.messages_with_texts = to.messages;
  const auto append = [&](std::string& messages, const std::string& of_message) {
    messages.append(common).append(has_calls ? ",\"tool_calls\":" : "").append(of_message);
    messages.push_back('}');
  };
  append(to.messages, calls.with_objects);
  if (has_texts) append(to.messages_with_texts, calls.with_texts);
}

void PrependSystem(ChatInput& to, std::string_view content) {
  std::string message = R"({"role":"system","content":)";
  AppendQuoted(message, content);
  message.append(to.messages.empty() ? "}" : "},");
  to.messages.insert(0, message);
  if (!to.messages_with_texts.empty()) to.messages_with_texts.insert(0, message);
}

void SetTemplateField(ChatInput& to, std::string_view name, std::string_view json) {
  if (!to.template_names.Add(name)) return;
  to.template_fields.push_back(',');
  AppendQuoted(to.template_fields, name);
  to.template_fields.append(":").append(json);
}

bool ReadChatField(ChatInput& to, const RequestValue& value) {
  if (value.name() == "messages") {
    ReadMessages(value, to);
  } else if (value.name() == "add_generation_prompt") {
    to.adds_generation_prompt = value.Boolean();
  } else if (value.name() == "continue_final_message") {
    to.continues_final_message = value.Boolean();
  } else if (value.name() == "chat_template_kwargs") {
    ReadTemplateFields(value, to);
  } else {
    return false;
  }
  return true;
}

std::string ChatVariables(const ChatInput& chat, const std::string& messages) {
  if (!chat.has_messages) ThrowInvalid("messages", "", "a list of one message or more");
  if (chat.continues_final_message && chat.adds_generation_prompt.value_or(false)) {
    ThrowInvalid("continue_final_message", "true", "false with add_generation_prompt");
  }
  CheckJson(chat.tools, "tools", chat.refused_texts);
  const bool adds = chat.adds_generation_prompt.value_or(!chat.continues_final_message);
  std::string out = "{\"messages\":[" + messages;
  out.append("],\"add_generation_prompt\":").append(JsonOf(adds));
  out.append(",\"continue_final_message\":").append(JsonOf(chat.continues_final_message));
  if (!chat.tools.empty()) out.append(",\"tools\":").append(chat.tools);
  return out.append(chat.template_fields).append("}");
}

void EndWithMessage(ChatText& chat, std::string_view final_message, std::string_view field) {
  const auto refuse = [&](std::string_view why) {
    throw ApiFailure(
        {.message = std::string(field).append(": ").append(why), .param = std::string(field)});
  };
  std::string& prompt = chat.text;
  // Templates may strip a message.
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(final_message.find_first_not_of(kSpace), final_message.size());
  final_message.remove_prefix(begin);
  // It would be found after the end of the message, where the model would begin a new turn.
  if (final_message.empty()) refuse("the last message has no text that the model could go on with");
  const size_t end = final_message.find_last_not_of(kSpace) + 1;
  const size_t at = prompt.rfind(final_message.substr(0, end));
  if (at == std::string::npos) {
    refuse("the model cannot go on with the last message, which the chat template changes");
  }
  const bool is_whole = std::string_view(prompt).substr(at).starts_with(final_message);
  prompt.resize(at + (is_whole ? final_message.size() : end));
  while (!chat.own.empty() && chat.own.back().begin >= prompt.size()) chat.own.pop_back();
  if (!chat.own.empty()) chat.own.back().end = std::min(chat.own.back().end, prompt.size());
}

}  // namespace sluice::server
