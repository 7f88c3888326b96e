// Reasoning, content and calls of a chat's choice, as messages and their deltas have them.
#pragma once

#include <string>
#include <string_view>

#include "server/api/response/choice_delta.h"

namespace sluice::server {

// Nine letters and digits, which some templates require of an id: others in each response, the same
// wherever a response says it again.
std::string CallId(std::string_view response, int32_t choice, int32_t call);

// The members of a message: content, and reasoning_content and tool_calls where there are any.
void AppendMessageParts(std::string& out, std::string_view response, const ChoiceDelta& choice);
// The members of a delta. A call has its id and its name with the first one; its arguments are in
// as many as they came in.
void AppendDeltaParts(std::string& out, std::string_view response, const ChoiceDelta& choice);

}  // namespace sluice::server
