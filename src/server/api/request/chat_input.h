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
  std::optional<bool> adds_generation_prompt = {};
  bool continues_final_message = false;
  std::vector<std::string> unknown = {};  // "messages[].foo"
};

// Reads the field of that name; false where it is none of a ChatInput's.
bool ReadChatField(ChatInput& to, const RequestValue& value);

// The template's variables, with these of its messages. Throws Error without messages, and for what
// cannot be both.
std::string ChatVariables(const ChatInput& chat, const std::string& messages);

}  // namespace sluice::server
