// Reasoning as requests ask for it, by the variables that templates read: enable_thinking is that
// of Qwen and GLM, thinking that of DeepSeek and Granite, reasoning_effort that of gpt-oss. Those
// that chat_template_kwargs sets stay as they are.
#pragma once

#include <string>

#include "server/api/json_text.h"
#include "server/api/request/chat_input.h"

namespace sluice::server {

inline void SetReasoning(ChatInput& to, bool is_on) {
  for (const char* const name : {"enable_thinking", "thinking"}) {
    SetTemplateField(to, name, is_on ? "true" : "false");
  }
}

// effort: "none" is no reasoning at all.
inline void SetEffort(ChatInput& to, const RequestValue& value) {
  const std::string effort = value.Text();
  CheckText(effort, value.name(), to.refused_texts);
  if (effort.empty()) value.Refuse("an empty text", "a text such as low, medium or high");
  if (effort == "none") return SetReasoning(to, false);
  std::string quoted;
  AppendQuoted(quoted, effort);
  SetTemplateField(to, "reasoning_effort", quoted);
}

}  // namespace sluice::server
