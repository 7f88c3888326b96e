// A request while it is read, and the tables of fields that fill it: each API has its own names for
// what all of them can do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/request/chat_input.h"
#include "server/api/request/completion_request.h"
#include "server/api/request/grammar_fields.h"
#include "server/api/request/request_fields.h"
#include "server/api/request/thinking_fields.h"

namespace sluice::server {

using Echo = std::pair<std::string, std::string>;  // a member's name, and its JSON

struct Draft {
  const RequestLimits& limits;
  CompletionRequest request = {};
  ChatInput chat = {};
  GrammarInput grammar = {};
  ThinkingInput thinking = {};
  std::optional<int64_t> max_tokens = {};
  std::optional<int64_t> max_completion_tokens = {};
  std::string_view max_name = "max_tokens";  // the field that max_tokens came in
  std::optional<int32_t> best_of = {};
  bool has_stream_options = false;
  bool has_logprobs = false;  // kChat's, which is true or false
  std::optional<int32_t> top_logprobs = {};
  std::optional<bool> reasons = {};        // whether the model shall, where it can do either
  std::string effort = {};                 // of its reasoning, as JSON; empty: the template's
  std::optional<std::string> system = {};  // the message before all others
  std::vector<Echo> echo = {};             // kResponses: what its responses repeat
};

using DraftField = RequestField<Draft>;
using DraftFields = std::span<const DraftField>;

inline constexpr int32_t kMostTokens = 2147483647;
inline json::Range UpTo(int64_t high, int64_t low = 0) {
  return {static_cast<double>(low), static_cast<double>(high), false};
}

void ReadStop(Draft& to, const RequestValue& value);
// One of "max_tokens", "max_output_tokens".
void ReadMaxTokens(Draft& to, const RequestValue& value);
// Fields of chats by the names that they have there: chat_template_kwargs, tools, ...
void ReadOfChat(Draft& to, const RequestValue& value);
void ReadOfTools(Draft& to, const RequestValue& value);

// "none" is no reasoning at all.
void ReadEffort(Draft& to, const RequestValue& value);

// What the model's template is given, from all that was read.
void FinishChat(Draft& draft);

DraftFields MessagesFields();  // messages_request.cc
void FinishMessages(Draft& draft);
DraftFields ResponsesFields();  // responses_request.cc
void FinishResponses(Draft& draft);

}  // namespace sluice::server
