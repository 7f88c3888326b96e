// The messages of Anthropic's API: a role, and a text or blocks.
//
//   user       text; tool_result, with a text or blocks of text
//   assistant  text; thinking, which is its reasoning; tool_use; redacted_thinking, which is left
//   out
//
// Messages of one role that follow one another are one message. Blocks of other types are refused
// by name.
#pragma once

#include <string>
#include <vector>

#include "server/api/request/conversation.h"

namespace sluice::server {

// Reads the list, and adds fields that are not known.
void ReadMessageBlocks(const RequestValue& messages, Conversation& to,
                       std::vector<std::string>& unknown);
// A text, or blocks of text, which are joined by line feeds.
std::string ReadTextBlocks(const RequestValue& value, std::vector<std::string>& unknown);

}  // namespace sluice::server
