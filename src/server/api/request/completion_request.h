// The bodies of completions, chats, messages and responses, read and checked as far as that needs
// no model.
//
// The names are OpenAI's, vLLM's, and those of params.def. Fields that are not known are listed, or
// refused; of a field that comes twice the first one counts; null is as good as absent. What
// would change the answer and cannot be done (tools, suffix, ...) is refused by name. Everything
// else that cannot be is an ApiFailure naming the field.
//
//   best_of         n, or it is refused
//   seed            0 to 2^64 - 1; -1 is none, as vLLM has it: a random one
//   max_tokens      0 with echo alone; max_completion_tokens comes before it
//   logprobs        a number for completions; true or false for chats, with top_logprobs
//   stream_options  with stream alone; prompt_logprobs without it alone
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/tool_fields.h"
#include "sluice/chat_text.hpp"
#include "sluice/client.hpp"
#include "sluice/params.hpp"
#include "sluice/reasoning.hpp"

namespace sluice::server {

enum class Api : uint8_t {
  kCompletions,
  kChat,
  kMessages,     // Anthropic's: see messages_request.cc
  kCountTokens,  // of its messages
  kResponses,    // OpenAI's: see responses_request.cc
};
// Whether a template makes the prompt from messages.
constexpr bool IsChat(Api api) { return api != Api::kCompletions; }
constexpr bool IsOfMessages(Api api) { return api == Api::kMessages || api == Api::kCountTokens; }

struct RequestLimits {
  int32_t prompts = 128;  // of one request; times n, at most so many choices
  int32_t choices = 128;
  int32_t stops = 16;
  size_t stop_bytes = 1024;
  size_t grammar_bytes = GrammarLimits{}.text_bytes;
  int32_t logprobs = 20;
  float max_temperature = 2.0f;  // that of the engine's Limits
  bool refuses_unknown = false;  // fields that are not known
  // Texts of special tokens that no string of messages and chat_template_kwargs may have.
  std::vector<std::string> refused_texts = {};
};

struct PromptInput {
  bool is_ids = false;
  bool is_chat = false;  // `own` says where special tokens count
  std::string text = {};
  std::vector<TextSpan> own = {};
  std::vector<int32_t> ids = {};
};

struct CompletionRequest {
  Api api = Api::kCompletions;
  std::string model = {};
  std::vector<PromptInput> prompts = {};  // kCompletions: one or more
  // Chats: what the template gets, a JSON object: messages with contents that are texts (parts of
  // text are joined), add_generation_prompt, continue_final_message, chat_template_kwargs.
  std::string chat_variables = {};
  // These with the texts of arguments, for templates that cannot do with objects; empty where no
  // message has calls.
  std::string chat_variables_with_texts = {};
  std::optional<std::string> final_message = {};  // continue_final_message: see EndWithMessage

  int32_t n = 1;
  bool streams = false;
  bool includes_usage = false;                  // stream_options.include_usage
  bool continuous_usage = false;                // stream_options.continuous_usage_stats
  bool echo = false;                            // kCompletions
  std::optional<int32_t> logprobs = {};         // the N most likely, in addition to the token
  std::optional<int32_t> prompt_logprobs = {};  // vLLM's; with echo and logprobs, those
  std::optional<int64_t> max_tokens = {};  // or max_completion_tokens; none: to the context's end
  SamplingParams params = {};  // on top of the model's defaults; its logprobs are those above
  std::optional<OutputGrammar> grammar = {};    // see grammar_fields.h
  std::string grammar_field = {};               // that its text came from, or that requires it
  std::string grammar_text_field = {};          // that its text came from, where it is another one
  ToolRequest tools = {};                       // of chats: see tool_fields.h
  OutputFormat output = {};                     // what the text is taken apart as
  std::optional<int64_t> thinking_tokens = {};  // of chats: see thinking_fields.h
  std::string thinking_field = {};              // that they came from
  std::optional<ThinkingBudget> thinking = {};  // what they mean for the model
  TextOptions text = {};     // stop, include_stop_str_in_output, skip_special_tokens, ...
  bool ignores_end = false;  // ignore_eos
  bool returns_token_ids = false;
  bool adds_special_tokens = true;     // add_special_tokens; kChat: false
  bool parses_special_tokens = false;  // parse_special_tokens; kChat: true
  int64_t stream_interval = 1;
  int32_t priority = 0;
  std::string cache_salt = {};
  std::string adapter = {};                            // where the model is one
  std::optional<int64_t> truncate_prompt_tokens = {};  // vLLM's: the last ones; -1: as many as fit
  std::string echo_members = {};                       // kResponses: JSON, a comma after each
  std::vector<std::string> unknown = {};               // fields that were ignored, 64 at the most
};

// `defaults` are the model's, which fields of the request replace.
CompletionRequest ParseCompletionRequest(Api api, std::string_view body,
                                         const SamplingParams& defaults,
                                         const RequestLimits& limits = {});

// Cuts off what a template has put after the text of the last message, so that the model goes on
// with it. Throws ApiFailure naming `field` where the text is empty or not in the prompt.
void EndWithMessage(ChatText& prompt, std::string_view final_message,
                    std::string_view field = "continue_final_message");

}  // namespace sluice::server
