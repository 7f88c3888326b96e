// Reasoning, content and calls of a chat's choice, as messages and their deltas have them.
#pragma once

#include <string>

#include "server/api/response/choice_delta.h"

namespace sluice::server {

// Nine letters and digits, as some templates require of an id: another one for each call. A
// conversation has calls of several responses, and a client may give these one id.
std::string RandomCallId();

// The members of a message: content, and reasoning_content and tool_calls where there are any.
void AppendMessageParts(std::string& out, const ChoiceDelta& choice);
// The members of a delta. A call has its id and its name with the first one; its arguments are in
// as many as they came in.
void AppendDeltaParts(std::string& out, const ChoiceDelta& choice);

}  // namespace sluice::server
