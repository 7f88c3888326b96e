#include "server/api/request/conversation.h"

#include <utility>

#include "server/api/json_text.h"

namespace sluice::server {
namespace {

void Join(std::optional<std::string>& to, std::string_view text) {
  if (!to.has_value()) {
    to = text;
  } else {
    to->append("\n").append(text);
  }
}

void AppendMember(std::string& out, std::string_view name, std::string_view text) {
  out.append(",\"").append(name).append("\":");
  AppendQuoted(out, text);
}

}  // namespace

void Conversation::Begin(std::string_view role, bool continues) {
  if (is_open_ && continues && role == role_) return;
  End();
  role_ = role;
  is_open_ = true;
  has_calls_ = has_text_ = ends_in_reasoning_ = false;
}

void Conversation::AddText(std::string_view text, std::string_view field) {
  CheckText(text, field, to_.refused_texts);
  Join(content_, text);
  if (text.empty()) return;
  has_text_ = true;
  ends_in_reasoning_ = false;
}

void Conversation::AddReasoning(std::string_view text, std::string_view field) {
  CheckText(text, field, to_.refused_texts);
  Join(reasoning_, text);
  ends_in_reasoning_ = true;
}

void Conversation::AddCall(const std::string& id, const std::string& tool,
                           std::string_view arguments, std::string_view field) {
  CheckText(tool, field, to_.refused_texts);
  CheckText(id, field, to_.refused_texts);
  CheckJson(arguments, field, to_.refused_texts);
  AppendCall(calls_, id, tool, arguments);
  has_calls_ = true;
  ends_in_reasoning_ = false;
  tools_[id] = tool;
}

void Conversation::AddResult(const std::string& id, std::string text, const std::string& id_field,
                             std::string_view text_field) {
  const auto call = tools_.find(id);
  if (call == tools_.end()) {
    ThrowInvalid(id_field, RequestValue::Quoted(id), "the id of a call before it");
  }
  CheckText(text, text_field, to_.refused_texts);
  AppendSoFar();
  has_results_ = true;
  ChatMessage result = {.role = "tool", .content = std::move(text)};
  AppendMember(result.others, "tool_call_id", id);
  AppendMember(result.others, "name", call->second);
  AppendMessage(to_, result);
}

void Conversation::End() {
  const bool has_none = !content_.has_value() && !reasoning_.has_value() && !has_calls_;
  if (is_open_ && has_none && !has_results_) content_ = "";
  AppendSoFar();
  is_open_ = has_results_ = false;
}

void Conversation::EndWithoutEmptyAnswer() {
  if (role_ != "assistant" || has_text_ || has_calls_) return End();
  content_.reset();
  is_open_ = false;
}

void Conversation::AppendSoFar() {
  const bool has_calls = !calls_.with_objects.empty();
  if (!content_.has_value() && !reasoning_.has_value() && !has_calls) return;
  ChatMessage message = {.role = role_, .content = std::exchange(content_, {})};
  if (reasoning_.has_value()) AppendMember(message.others, "reasoning_content", *reasoning_);
  reasoning_.reset();
  message.calls = std::exchange(calls_, {});
  EndCalls(message.calls);
  AppendMessage(to_, message);
}

}  // namespace sluice::server
