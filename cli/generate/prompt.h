// The prompt of a command: where its text comes from, and its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/generate/generation_flags.h"
#include "sluice/model_text.hpp"

namespace sluice::cli {

struct Prompt {
  std::string text = {};  // with --chat after the template
  std::vector<int32_t> ids = {};
  int64_t truncated_tokens = 0;
};

// The prompt as given, before any template. Throws Error when there is none.
std::string ReadPromptText(const GenerationOptions& options);

// Throws Error when it does not fit into the context, unless it may be truncated.
Prompt EncodePrompt(std::string text, const GenerationOptions& options, const ModelText& model,
                    int64_t context);

// Says on standard error how much was left out.
void SayTruncated(const Prompt& prompt, const GenerationOptions& options);

}  // namespace sluice::cli
