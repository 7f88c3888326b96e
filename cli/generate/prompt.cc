#include "cli/generate/prompt.h"

#include <iostream>

#include "cli/files/file.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {

std::string ReadPromptText(const GenerationOptions& options) {
  if (!options.prompt_path.empty()) return ReadTextFile("prompt-file", options.prompt_path);
  if (!options.prompt.has_value()) {
    throw Error(ErrorCode::kInvalidValue, "PROMPT", "",
                "give a text, '-' for standard input, or --prompt-file FILE");
  }
  return *options.prompt == "-" ? ReadTextFile("PROMPT", "-") : *options.prompt;
}

Prompt EncodePrompt(std::string text, const GenerationOptions& options, const ModelText& model,
                    int64_t context) {
  Prompt prompt{.text = std::move(text)};
  EncodeOptions encoding{.add_special_tokens = options.adds_special_tokens,
                         .parse_special_tokens = options.parses_special_tokens};
  if (options.is_chat) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt.text});
    prompt.text = model.RenderChat(messages);
    // The template has written all special tokens itself.
    encoding = {.add_special_tokens = false, .parse_special_tokens = true};
  }
  prompt.ids = model.tokenizer().Encode(prompt.text, encoding);
  const int64_t length = std::ssize(prompt.ids);
  if (length >= context && !options.truncates_prompt) {
    throw Error(ErrorCode::kInvalidValue, "PROMPT", Number(length) + " tokens",
                "fewer than the " + Number(context) +
                    " of the model's context; --truncate-prompt leaves out its beginning");
  }
  if (options.truncates_prompt) {
    // What the model needs before every text stays.
    const std::vector<int32_t> around = model.tokenizer().Encode("");
    const bool has_first = !around.empty() && !prompt.ids.empty() && prompt.ids[0] == around[0];
    prompt.ids = TruncatePrompt(prompt.ids, context, options.max_tokens, has_first ? 1 : 0);
    prompt.truncated_tokens = length - std::ssize(prompt.ids);
  }
  return prompt;
}

void SayTruncated(const Prompt& prompt, const GenerationOptions& options) {
  if (prompt.truncated_tokens == 0 || options.is_quiet) return;
  std::cerr << "sluice: " << prompt.truncated_tokens << " tokens of the prompt were left out\n";
}

}  // namespace sluice::cli
