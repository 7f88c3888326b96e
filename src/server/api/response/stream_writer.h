// The events of one streamed response. Each is appended whole, `data: {...}` and an empty line;
// what all of them have alike was written once. Nothing is allocated where `out` has room.
//
//   chat: role, then content, then one finish a choice; completions: content, then finish
//   then usage where it was requested, then [DONE]; or error, then [DONE]
//
// Members in addition to OpenAI's: seed, the one in use; stop_reason, token_ids and
// prompt_token_ids as vLLM has them. Log-probabilities have OpenAI's two shapes (logprobs_json.h).
// With echo a choice's first content is its prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/request/completion_request.h"
#include "server/api/response/choice_delta.h"
#include "sluice/tokenizer.hpp"

namespace sluice::server {

struct ResponseHead {
  Api api = Api::kCompletions;
  std::string id = {};  // "cmpl-...", "chatcmpl-...", "msg_...", "resp_..."
  int64_t created = 0;  // seconds since 1970
  std::string model = {};
  // The seed in use, which every response reports: of the first choice; it gives the others too.
  std::optional<uint64_t> seed = {};
  // As the request has it: text_offset does not count what is not in the text.
  bool skips_special_tokens = true;
  std::string echo_members = {};  // kResponses: see CompletionRequest
};

// What the body of a response begins with, up to the name of its next member. A chunk's
// `object` is another one.
std::string HeadJson(const ResponseHead& head, bool is_chunk);

class StreamWriter {
 public:
  StreamWriter(const ResponseHead& head, bool includes_usage, const Tokenizer& tokenizer);

  void Role(std::string& out, int32_t index) const;  // chat's first one of a choice
  // usage: what there is so far, for continuous_usage_stats.
  void Content(std::string& out, const ChoiceDelta& delta,
               const std::optional<Usage>& usage = {}) const;
  void Finish(std::string& out, const ChoiceEnd& end, const std::optional<Usage>& usage = {}) const;
  void UsageEvent(std::string& out, const Usage& usage) const;
  static void Error(std::string& out, const ApiError& error);
  static void Done(std::string& out);
  static void KeepAlive(std::string& out);  // a comment

 private:
  void AppendAfter(std::string& out, const std::optional<Usage>& usage) const;

  Api api_;
  bool skips_special_tokens_;
  Tokenizer tokenizer_;
  std::string before_;        // up to the number of the choice
  std::string usage_before_;  // up to the usage of an event without choices
  std::string plain_after_;   // after a text without log-probabilities
  std::string after_;         // after the choices
};

// text as the inside of a JSON string: ", \ and what is below 0x20 escaped.
void AppendEscaped(std::string& out, std::string_view text);

}  // namespace sluice::server
