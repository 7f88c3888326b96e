// The fields of a chat about calls of tools and reasoning:
//
//   tools                [{"type": "function", "function": {"name", "description", "parameters",
//                        "strict"}}], as the chat template gets them
//   tool_choice          none, auto, required, or {"type": "function", "function": {"name"}}
//   parallel_tool_calls  false: one call at most
//   include_reasoning    false: answers leave reasoning out (vLLM)
//   separate_reasoning   false: reasoning stays in the content, with its tags (SGLang)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/request_value.h"
#include "sluice/tool_calls.hpp"

namespace sluice::server {

inline constexpr size_t kMostTools = 128;
inline constexpr size_t kMostToolBytes = size_t{1} << 20;  // of the JSON of all

enum class CallChoice : uint8_t { kNone, kAuto, kRequired };

// What errors call the parts of a tool: after "tools[0]", and of the choice.
struct ToolFieldNames {
  std::string_view name = ".function.name";
  std::string_view parameters = ".function.parameters";
  std::string_view strict = ".function.strict";
  std::string_view choice = "tool_choice.function.name";
};

struct ToolRequest {
  std::vector<Tool> tools = {};  // that may be called
  size_t first = 0;              // the number of the first of these in the request
  std::string json = {};         // all of them, as they came; empty: none
  CallChoice choice = CallChoice::kAuto;
  std::string named = {};  // the one that has to be called
  bool is_parallel = true;
  bool includes_reasoning = true;
  bool separates_reasoning = true;
  ToolFieldNames names = {};

  bool may_call() const { return !tools.empty() && choice != CallChoice::kNone; }
};

// Reads the field of that name. Throws ApiFailure and Error.
void ReadToolField(ToolRequest& to, const RequestValue& value);
// Reads tools without an object `function`, and gives templates the same ones with it:
// {"type", "name", "description", `parameters_key`, "strict"}. A type is `type`, or absent. Other
// members are added to `unknown`, but for those of `without_effect`.
struct FlatTools {
  std::string_view type;
  std::string_view parameters_key;
  ToolFieldNames names;
  std::span<const std::string_view> without_effect = {};
};
void ReadFlatTools(ToolRequest& to, const RequestValue& value, const FlatTools& flat,
                   std::vector<std::string>& unknown);

// When all fields are read: a choice without tools, or of none of them, is an error.
void FinishTools(ToolRequest& tools);

// A message's `tool_calls` as templates read them: most with arguments that are objects, some with
// their text. Empty where the list is.
struct MessageCalls {
  std::string with_objects = {};
  std::string with_texts = {};
};
MessageCalls ReadToolCalls(const RequestValue& value);
// Adds one; arguments: an object.
void AppendCall(MessageCalls& calls, std::string_view id, std::string_view tool,
                std::string_view arguments);
// After the last one of a message.
void EndCalls(MessageCalls& calls);
// The arguments of a call that come as the text of an object: without white space. Throws
// ApiFailure naming `name`.
std::string ArgumentsOfText(std::string_view text, const std::string& name);

}  // namespace sluice::server
