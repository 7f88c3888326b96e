#include "server/api/response/stream_writer.h"

#include "server/api/json_text.h"
#include "server/api/response/chat_parts.h"
#include "server/api/response/choice_json.h"
#include "sluice/version.hpp"

namespace sluice::server {
namespace {

constexpr std::string_view kPlainEnd = R"(,"logprobs":null,"finish_reason":null})";

}  // namespace

std::string HeadJson(const ResponseHead& head, bool is_chunk) {
  std::string out = R"({"id":)";
  AppendQuoted(out, head.id);
  if (head.api == Api::kCompletions) {
    out.append(R"(,"object":"text_completion","created":)");
  } else {
    out.append(R"(,"object":"chat.completion)").append(is_chunk ? ".chunk" : "");
    out.append(R"(","created":)");
  }
  AppendNumber(out, head.created);
  out.append(R"(,"model":)");
  AppendQuoted(out, head.model);
  out.append(R"(,"system_fingerprint":"sluice-)").append(kVersionString).append(R"(","seed":)");
  if (head.seed.has_value()) {
    AppendNumber(out, *head.seed);
  } else {
    out.append("null");
  }
  return out.append(",");
}

StreamWriter::StreamWriter(const ResponseHead& head, bool includes_usage,
                           const Tokenizer& tokenizer)
    : api_(head.api), skips_special_tokens_(head.skips_special_tokens), tokenizer_(tokenizer) {
  before_ = "data: " + HeadJson(head, true);
  usage_before_ = before_ + R"("choices":[],"usage":)";
  before_.append(R"("choices":[{"index":)");
  after_ = includes_usage ? ",\"usage\":null}\n\n" : "}\n\n";
  plain_after_.append(api_ == Api::kChat ? "\"}" : "\"").append(kPlainEnd).append("]");
  plain_after_.append(after_);
}

void StreamWriter::AppendAfter(std::string& out, const std::optional<Usage>& usage) const {
  if (!usage.has_value()) {
    out.append(after_);
    return;
  }
  out.append(R"(,"usage":)");
  AppendUsage(out, *usage);
  out.append("}\n\n");
}

void StreamWriter::Role(std::string& out, int32_t index) const {
  out.append(before_);
  AppendNumber(out, index);
  out.append(R"(,"delta":{"role":"assistant","content":")").append(plain_after_);
}

void StreamWriter::Content(std::string& out, const ChoiceDelta& delta,
                           const std::optional<Usage>& usage) const {
  out.append(before_);
  AppendNumber(out, delta.index);
  if (delta.parts != nullptr) {
    out.append(R"(,"delta":{)");
    AppendDeltaParts(out, delta);
    out.append(R"(},"logprobs":)");
  } else {
    out.append(api_ == Api::kChat ? R"(,"delta":{"content":")" : R"(,"text":")");
    AppendEscaped(out, delta.text);
    const bool is_plain = delta.logprobs.ids.empty() && delta.token_ids.empty() &&
                          delta.prompt_ids.empty() && !usage.has_value();
    if (is_plain) {
      out.append(plain_after_);
      return;
    }
    out.append(api_ == Api::kChat ? R"("},"logprobs":)" : R"(","logprobs":)");
  }
  const ChoiceDelta* const deltas[] = {&delta};
  AppendLogprobs(out, api_, deltas, tokenizer_, skips_special_tokens_);
  out.append(R"(,"finish_reason":null)");
  AppendTokenIds(out, "token_ids", delta.token_ids);
  if (api_ == Api::kCompletions) AppendTokenIds(out, "prompt_token_ids", delta.prompt_ids);
  out.append("}]");
  if (api_ == Api::kChat) AppendTokenIds(out, "prompt_token_ids", delta.prompt_ids);
  AppendAfter(out, usage);
}

void StreamWriter::Finish(std::string& out, const ChoiceEnd& end,
                          const std::optional<Usage>& usage) const {
  out.append(before_);
  AppendNumber(out, end.index);
  out.append(api_ == Api::kChat ? R"(,"delta":{},"logprobs":null)"
                                : R"(,"text":"","logprobs":null)");
  AppendEnd(out, end);
  out.append("}]");
  AppendAfter(out, usage);
}

void StreamWriter::UsageEvent(std::string& out, const Usage& usage) const {
  out.append(usage_before_);
  AppendUsage(out, usage);
  out.append("}\n\n");
}

void StreamWriter::Error(std::string& out, const ApiError& error) {
  out.append("data: ").append(ErrorBody(error)).append("\n\n");
}

void StreamWriter::Done(std::string& out) { out.append("data: [DONE]\n\n"); }

void StreamWriter::KeepAlive(std::string& out) { out.append(": ping\n\n"); }

}  // namespace sluice::server
