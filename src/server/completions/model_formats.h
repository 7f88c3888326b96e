// The forms in which a server's model writes calls and reasoning, and what a request makes of them.
#pragma once

#include <string_view>

#include "server/api/request/completion_request.h"
#include "sluice/model_text.hpp"
#include "sluice/reasoning.hpp"

namespace sluice::server {

struct ModelFormats {
  ToolFormat tools = ToolFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  // Markers are special tokens of the model, so that a detokenizer has to show these.
  bool has_special_markers = false;
  int64_t reasoning_budget = -1;  // tokens of reasoning where a chat has none of its own; -1: none
};

// As ServerOptions has them. Throws Error for a budget where the form of reasoning has no end.
ModelFormats FormatsOf(const ModelText& text, std::string_view tools, std::string_view reasoning,
                       int64_t reasoning_budget = -1);

// Gives a chat the format of its output, the end of its reasoning, and the grammar of its calls
// where it has to have one. Throws ApiFailure for calls and budgets that the model has no form for.
void ChooseOutput(CompletionRequest& asked, const ModelFormats& formats, std::string_view prompt);

}  // namespace sluice::server
