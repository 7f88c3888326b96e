// The input of OpenAI's responses: a text, which is a user's, or items one after the other.
//
//   message               role and content: a text, or parts input_text, output_text and refusal
//   reasoning             content, or the summary where there is none
//   function_call         call_id, name, arguments
//   function_call_output  call_id, output: a text, or parts input_text
//
// Reasoning, texts and calls of the assistant that follow one another are one message. Items of
// other types are refused by name.
#pragma once

#include <string>
#include <vector>

#include "server/api/request/conversation.h"

namespace sluice::server {

// Adds fields that are not known.
void ReadResponseInput(const RequestValue& input, Conversation& to,
                       std::vector<std::string>& unknown);

}  // namespace sluice::server
