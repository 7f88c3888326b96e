#include "server/completions/preparation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "support/check.h"

namespace sluice::server {
namespace {

std::string_view PromptField(Api api) { return api == Api::kChat ? "messages" : "prompt"; }

[[noreturn]] void ThrowPrompt(Api api, std::string message, std::string code = {}) {
  throw ApiFailure({.message = std::move(message),
                    .param = std::string(PromptField(api)),
                    .code = std::move(code)});
}

std::string CheckedModel(const std::string& asked, const std::vector<std::string>& names) {
  if (asked.empty()) return names.front();
  if (std::find(names.begin(), names.end(), asked) != names.end()) return asked;
  throw ApiFailure({.status = 404,
                    .message = "the model " + ToText(std::string_view(asked)) +
                               " does not exist here; there is " +
                               ToText(std::string_view(names.front())),
                    .param = "model",
                    .code = "model_not_found"});
}

std::vector<int32_t> Encode(const CompletionRequest& asked, const PromptInput& prompt,
                            const Tokenizer& tokenizer) {
  if (prompt.is_chat) {
    return EncodeChat(tokenizer, prompt.text, prompt.own, asked.adds_special_tokens);
  }
  return tokenizer.Encode(prompt.text, {.add_special_tokens = asked.adds_special_tokens,
                                        .parse_special_tokens = asked.parses_special_tokens});
}

void CheckLength(const CompletionRequest& asked, int64_t size, int64_t context) {
  if (size == 0) ThrowPrompt(asked.api, "a prompt must have at least one token");
  if (size < context) return;
  // In OpenAI's words, which clients look for.
  const int64_t output = std::max<int64_t>(asked.max_tokens.value_or(1), 1);
  ThrowPrompt(asked.api,
              "This model's maximum context length is " + ToText(context) +
                  " tokens. However, you requested " + ToText(size + output) + " tokens (" +
                  ToText(size) + " in the " + std::string(PromptField(asked.api)) + ", " +
                  ToText(output) + " in the completion). Please reduce the length of the " +
                  std::string(PromptField(asked.api)) + ".",
              "context_length_exceeded");
}

PreparedPrompt PreparePrompt(const CompletionRequest& asked, PromptInput prompt, int64_t context,
                             const Tokenizer& tokenizer) {
  PreparedPrompt prepared;
  prepared.ids = prompt.is_ids ? std::move(prompt.ids) : Encode(asked, prompt, tokenizer);
  const auto size = static_cast<int64_t>(prepared.ids.size());
  CheckLength(asked, size, context);
  prepared.max_tokens = std::min(asked.max_tokens.value_or(INT32_MAX), context - size);
  if (asked.echo) {
    prepared.echo = prompt.is_ids
                        ? tokenizer.Decode(prepared.ids, asked.text.detokenizer.skip_special_tokens)
                        : std::move(prompt.text);
  }
  return prepared;
}

// Templates read arguments of calls as objects, or as their text, and fail with the other one.
ChatText RenderChat(CompletionRequest& asked, const ModelText& text) {
  const std::string variables = std::exchange(asked.chat_variables, {});
  const std::string with_texts = std::exchange(asked.chat_variables_with_texts, {});
  if (with_texts.empty()) return text.RenderChatText(variables);
  try {
    return text.RenderChatText(variables);
  } catch (const Error& error) {
    try {
      return text.RenderChatText(with_texts);
    } catch (const Error&) {
      throw error;
    }
  }
}

PreparedRequest PrepareOrThrow(Api api, std::string_view body, int64_t context,
                               const PreparationSettings& settings) {
  const ModelText& text = settings.text;
  PreparedRequest prepared;
  CompletionRequest& asked = prepared.asked;
  asked = ParseCompletionRequest(api, body, text.generation_config().params, settings.limits);
  prepared.model = CheckedModel(asked.model, settings.model_names);
  try {
    if (api == Api::kChat) {
      ChatText chat = RenderChat(asked, text);
      if (asked.final_message.has_value()) EndWithMessage(chat, *asked.final_message);
      ChooseOutput(asked, settings.formats, chat.text);
      asked.prompts = {{.is_chat = true, .text = std::move(chat.text), .own = std::move(chat.own)}};
    }
    for (PromptInput& prompt : asked.prompts) {
      prepared.prompts.push_back(
          PreparePrompt(asked, std::move(prompt), context, text.tokenizer()));
    }
  } catch (const Error& error) {
    ThrowPrompt(api, error.what());
  }
  asked.prompts.clear();
  return prepared;
}

}  // namespace

Preparation Prepare(Api api, std::string_view body, int64_t context,
                    const PreparationSettings& settings) {
  try {
    return PrepareOrThrow(api, body, context, settings);
  } catch (const ApiFailure& failure) {
    return failure.error();
  } catch (const Error& error) {
    return ToApiError(error);
  } catch (const std::bad_alloc&) {
    return Unavailable("there is no memory for this request");
  } catch (const std::exception& error) {
    return InternalError(error.what());
  }
}

}  // namespace sluice::server
