// The conversation of a request: messages, and further variables for their template.
//
//   role     system, developer, user, assistant, tool
//   content  a text, or a list of {"type": "text", "text": "..."}, which are joined by line feeds
//            as vLLM does it; an assistant's may be absent or null: an empty one
//   name, tool_call_id, reasoning_content  texts, as they are
//
//   tool_calls  an assistant's: see ReadToolCalls
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/request_value.h"
#include "server/api/request/tool_fields.h"

namespace sluice::server {

struct ChatInput {
  // No string of the conversation may have one of these. They outlive it.
  std::span<const std::string> refused_texts = {};
  bool has_messages = false;
  std::string messages = {};             // the inside of a JSON list
  std::string messages_with_texts = {};  // where they have calls: see MessageCalls
  std::string last_text = {};
  std::string tools = {};            // a JSON list; empty: none
  std::string template_fields = {};  // of chat_template_kwargs: JSON, a comma before each
  SeenFields template_names = {};    // of these
  std::optional<bool> adds_generation_prompt = {};
  bool continues_final_message = false;
  std::vector<std::string> unknown = {};  // "messages[].foo"
};

// One message, which is valid.
struct ChatMessage {
  std::string role = {};
  std::optional<std::string> content = {};
  std::string others = {};  // JSON, a comma before each
  MessageCalls calls = {};
};
// Puts it after the others.
void AppendMessage(ChatInput& to, const ChatMessage& message);
// Puts a message of the system before all others.
void PrependSystem(ChatInput& to, std::string_view content);
// A variable for the template, unless chat_template_kwargs has set it; `json` is its value.
void SetTemplateField(ChatInput& to, std::string_view name, std::string_view json);

// Throws ApiFailure naming `name` where a text, or JSON as AppendJson writes it, has one of these.
void CheckText(std::string_view text, std::string_view name, std::span<const std::string> refused);
void CheckJson(std::string_view json, std::string_view name, std::span<const std::string> refused);

// Reads the field of that name; false where it is none of a ChatInput's.
bool ReadChatField(ChatInput& to, const RequestValue& value);

// The template's variables, with these of its messages. Throws Error without messages, and for what
// cannot be both.
std::string ChatVariables(const ChatInput& chat, const std::string& messages);

}  // namespace sluice::server
