#include "server/completions/preparation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "support/check.h"

namespace sluice::server {
namespace {

constexpr size_t kEncodedBytes = size_t{1} << 20;

std::string_view PromptField(Api api) {
  if (api == Api::kResponses) return "input";
  return IsChat(api) ? "messages" : "prompt";
}

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

// In the words of the API, which clients look for. size: of the prompt, in tokens; `at_least`
// where it was not counted to the end.
[[noreturn]] void ThrowTooLong(const CompletionRequest& asked, int64_t size, int64_t context,
                               std::string_view at_least) {
  if (IsOfMessages(asked.api)) {
    ThrowPrompt(asked.api,
                "prompt is too long: " + ToText(size) + " tokens > " + ToText(context) +
                    " maximum" + (at_least.empty() ? "" : "; it has more"),
                "context_length_exceeded");
  }
  const int64_t output = std::max<int64_t>(asked.max_tokens.value_or(1), 1);
  ThrowPrompt(asked.api,
              "This model's maximum context length is " + ToText(context) +
                  " tokens. However, you requested " + std::string(at_least) +
                  ToText(size + output) + " tokens (" + std::string(at_least) + ToText(size) +
                  " in the " + std::string(PromptField(asked.api)) + ", " + ToText(output) +
                  " in the completion). Please reduce the length of the " +
                  std::string(PromptField(asked.api)) + ".",
              "context_length_exceeded");
}
constexpr std::string_view kAtLeast = "at least ";

// A text that has too many tokens whatever they are is not encoded, and others no further than
// needed: the cost of a prompt depends on the context and not on its client. (One that is to be
// truncated or counted needs all of its tokens.)
std::vector<int32_t> Encode(const CompletionRequest& asked, const PromptInput& prompt,
                            int64_t context, const Tokenizer& tokenizer) {
  const auto longest = static_cast<int64_t>(std::max<size_t>(tokenizer.longest_token(), 1));
  const int64_t least = (std::ssize(prompt.text) + longest - 1) / longest;
  const bool is_whole = asked.truncate_prompt_tokens.has_value() || asked.api == Api::kCountTokens;
  if (is_whole) {
    CheckEncodedBytes(PromptField(asked.api), prompt.text.size(), tokenizer, context);
  } else if (least > context) {
    ThrowTooLong(asked, least, context, kAtLeast);
  }
  const EncodeOptions options{.add_special_tokens = asked.adds_special_tokens,
                              .parse_special_tokens = asked.parses_special_tokens,
                              .max_tokens = is_whole ? INT64_MAX : context};
  std::vector<int32_t> ids = prompt.is_chat
                                 ? EncodeChat(tokenizer, prompt.text, prompt.own, options)
                                 : tokenizer.Encode(prompt.text, options);
  if (!is_whole && std::ssize(ids) > context) {
    ThrowTooLong(asked, std::ssize(ids), context, kAtLeast);
  }
  return ids;
}

// vLLM's: the last tokens are kept; -1: as many as leave room for max_tokens.
void Truncate(const CompletionRequest& asked, int64_t context, std::vector<int32_t>& ids) {
  if (!asked.truncate_prompt_tokens.has_value()) return;
  int64_t most = *asked.truncate_prompt_tokens;
  if (most >= context) {
    throw ApiFailure({.message = "truncate_prompt_tokens = " + ToText(most) +
                                 " is not allowed: -1, or fewer than the context of " +
                                 ToText(context) + " tokens",
                      .param = "truncate_prompt_tokens"});
  }
  if (most < 0) {
    const int64_t output = std::max<int64_t>(asked.max_tokens.value_or(1), 1);
    most = context - output;
    if (most < 1) {
      throw ApiFailure({.message = "truncate_prompt_tokens = -1 leaves no token of the prompt: "
                                   "max_tokens = " +
                                   ToText(output) + ", and the context has " + ToText(context),
                        .param = "max_tokens"});
    }
  }
  if (std::ssize(ids) > most) ids.erase(ids.begin(), ids.end() - most);
}

void CheckLength(const CompletionRequest& asked, int64_t size, int64_t context) {
  if (size == 0) ThrowPrompt(asked.api, "a prompt must have at least one token");
  if (size >= context) ThrowTooLong(asked, size, context, "");
}

PreparedPrompt PreparePrompt(const CompletionRequest& asked, PromptInput prompt, int64_t context,
                             const Tokenizer& tokenizer) {
  PreparedPrompt prepared;
  prepared.ids = prompt.is_ids ? std::move(prompt.ids) : Encode(asked, prompt, context, tokenizer);
  const auto whole = prepared.ids.size();
  Truncate(asked, context, prepared.ids);
  const auto size = static_cast<int64_t>(prepared.ids.size());
  if (asked.api == Api::kCountTokens) return prepared;
  CheckLength(asked, size, context);
  prepared.max_tokens = std::min(asked.max_tokens.value_or(INT32_MAX), context - size);
  if (asked.echo) {
    prepared.echo = prompt.is_ids || prepared.ids.size() < whole
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
                               const PreparationSettings& settings,
                               const std::function<bool()>& is_gone) {
  const ModelText& text = settings.text;
  PreparedRequest prepared;
  CompletionRequest& asked = prepared.asked;
  asked = ParseCompletionRequest(api, body, text.generation_config().params, settings.limits);
  prepared.model = CheckedModel(asked.model, settings.model_names);
  if (std::ranges::count(settings.adapters, prepared.model) > 0) asked.adapter = prepared.model;
  try {
    if (IsChat(api)) {
      ChatText chat = RenderChat(asked, text);
      if (asked.final_message.has_value()) {
        EndWithMessage(chat, *asked.final_message,
                       IsOfMessages(api) ? "messages" : "continue_final_message");
      }
      ChooseOutput(asked, settings.formats, chat.text);
      asked.prompts = {{.is_chat = true, .text = std::move(chat.text), .own = std::move(chat.own)}};
    }
    for (PromptInput& prompt : asked.prompts) {
      if (is_gone && is_gone()) throw ApiFailure(Unavailable("the client went away"));
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

size_t MostEncodedBytes(const Tokenizer& tokenizer, int64_t context) {
  return std::max(kEncodedBytes, tokenizer.longest_token() * static_cast<size_t>(context));
}

void CheckEncodedBytes(std::string_view field, size_t bytes, const Tokenizer& tokenizer,
                       int64_t context) {
  const size_t most = MostEncodedBytes(tokenizer, context);
  if (bytes <= most) return;
  throw ApiFailure({.message = "a text of " + std::to_string(bytes) +
                               " bytes is not allowed: at most " + std::to_string(most) +
                               " bytes of one text are encoded",
                    .param = std::string(field)});
}

Preparation Prepare(Api api, std::string_view body, int64_t context,
                    const PreparationSettings& settings, const std::function<bool()>& is_gone) {
  try {
    return PrepareOrThrow(api, body, context, settings, is_gone);
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
