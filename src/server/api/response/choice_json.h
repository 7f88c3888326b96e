// The common JSON of choices in streams and in whole responses.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/api/json_text.h"
#include "server/api/request/completion_request.h"
#include "server/api/response/choice_delta.h"
#include "server/api/response/logprobs_json.h"

namespace sluice::server {

// `null` where none of the deltas has any.
inline void AppendLogprobs(std::string& out, Api api, std::span<const ChoiceDelta* const> deltas,
                           const Tokenizer& tokenizer, bool skips_special_tokens) {
  bool has_any = false;
  for (const ChoiceDelta* const delta : deltas) has_any |= !delta->logprobs.ids.empty();
  if (!has_any) {
    out.append("null");
  } else if (api == Api::kChat) {
    AppendChatLogprobs(out, deltas.back()->logprobs, tokenizer);
  } else {
    AppendCompletionLogprobs(out, deltas, tokenizer, skips_special_tokens);
  }
}

// A comma and the member; nothing where there are no ids.
inline void AppendTokenIds(std::string& out, std::string_view name, std::span<const int32_t> ids) {
  if (ids.empty()) return;
  out.append(",\"").append(name).append("\":");
  AppendIds(out, ids);
}

inline void AppendEnd(std::string& out, const ChoiceEnd& end) {
  out.append(R"(,"finish_reason":")").append(FinishReasonName(end));
  out.append(R"(","stop_reason":)");
  if (!end.stop.empty()) {
    AppendQuoted(out, end.stop);
  } else if (end.stop_token >= 0) {
    AppendNumber(out, end.stop_token);
  } else {
    out.append("null");
  }
}

}  // namespace sluice::server
