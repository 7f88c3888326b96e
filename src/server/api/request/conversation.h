// The messages that a template reads, from the parts that other APIs have: blocks of a message, or
// items one after the other. What it adds was read, but for special tokens, which it refuses, and
// results of calls that nothing made.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "server/api/request/chat_input.h"

namespace sluice::server {

class Conversation {
 public:
  // It outlives this.
  explicit Conversation(ChatInput& to) : to_(to) {}

  // What follows is of this role. `continues`: of the message before, where that has the role too.
  void Begin(std::string_view role, bool continues);
  // Each names the field that it came in. Texts of a message are joined by line feeds.
  void AddText(std::string_view text, std::string_view field);
  void AddReasoning(std::string_view text, std::string_view field);
  // arguments: a JSON object.
  void AddCall(const std::string& id, const std::string& tool, std::string_view arguments,
               std::string_view field);
  // A message of its own, after what this one has so far.
  void AddResult(const std::string& id, std::string text, const std::string& id_field,
                 std::string_view text_field);
  void End();  // after the last part
  // In place of End: leaves out a last message of the assistant that has nothing in it.
  void EndWithoutEmptyAnswer();

  bool is_empty() const { return role_.empty(); }
  // Whether the last message is the assistant's and ends in text: the model may go on with it.
  bool ends_in_text() const { return role_ == "assistant" && has_text_ && !has_calls_; }
  // Whether it is the assistant's and ends in reasoning, with which no model can go on.
  bool ends_in_reasoning() const { return role_ == "assistant" && ends_in_reasoning_; }

 private:
  void AppendSoFar();

  ChatInput& to_;
  std::string role_ = {};  // of the last message
  bool is_open_ = false;
  bool has_results_ = false;
  bool has_calls_ = false;
  bool has_text_ = false;  // one that is not empty
  bool ends_in_reasoning_ = false;
  std::optional<std::string> content_ = {};
  std::optional<std::string> reasoning_ = {};
  MessageCalls calls_ = {};
  std::unordered_map<std::string, std::string> tools_ = {};  // of all calls, by their ids
};

}  // namespace sluice::server
