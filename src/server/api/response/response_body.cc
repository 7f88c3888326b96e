#include "server/api/response/response_body.h"

#include "server/api/response/chat_parts.h"
#include "server/api/response/choice_json.h"
#include "server/api/response/item_events.h"
#include "server/api/response/message_events.h"

namespace sluice::server {
namespace {

// vLLM's, of a completion's choice or of a chat as a whole.
void AppendPromptMembers(std::string& out, const WholeChoice& choice, const Tokenizer& tokenizer) {
  if (!choice.prompt_logprobs.ids.empty()) {
    out.append(R"(,"prompt_logprobs":)");
    AppendPromptLogprobs(out, choice.prompt_logprobs, tokenizer);
  }
  AppendTokenIds(out, "prompt_token_ids", choice.prompt_ids);
}

void AppendChoice(std::string& out, const ResponseHead& head, const WholeChoice& choice,
                  const Tokenizer& tokenizer) {
  const bool is_chat = head.api == Api::kChat;
  out.append(R"({"index":)");
  AppendNumber(out, choice.content.index);
  if (choice.content.parts != nullptr) {
    out.append(R"(,"message":{"role":"assistant",)");
    AppendMessageParts(out, choice.content);
    out.append(R"(},"logprobs":)");
  } else {
    out.append(is_chat ? R"(,"message":{"role":"assistant","content":")" : R"(,"text":")");
    AppendEscaped(out, choice.echo.text);
    AppendEscaped(out, choice.content.text);
    out.append(is_chat ? R"("},"logprobs":)" : R"(","logprobs":)");
  }
  const ChoiceDelta* const deltas[] = {&choice.echo, &choice.content};
  AppendLogprobs(out, head.api, deltas, tokenizer, head.skips_special_tokens);
  AppendEnd(out, choice.end);
  AppendTokenIds(out, "token_ids", choice.content.token_ids);
  if (!is_chat) AppendPromptMembers(out, choice, tokenizer);
  out.push_back('}');
}

}  // namespace

std::string CompletionBody(const ResponseHead& head, std::span<const WholeChoice> choices,
                           const Usage& usage, const Tokenizer& tokenizer) {
  if (head.api == Api::kMessages || head.api == Api::kResponses) {
    const auto body = head.api == Api::kMessages ? MessageBody : ResponseBody;
    return body(head, choices.front().content, choices.front().end, usage);
  }
  std::string out = HeadJson(head, false);
  out.append(R"("choices":[)");
  for (const WholeChoice& choice : choices) {
    if (&choice != choices.data()) out.push_back(',');
    AppendChoice(out, head, choice, tokenizer);
  }
  out.push_back(']');
  if (head.api == Api::kChat && !choices.empty()) {
    AppendPromptMembers(out, choices.front(), tokenizer);
  }
  out.append(R"(,"usage":)");
  AppendUsage(out, usage);
  return out.append("}");
}

}  // namespace sluice::server
