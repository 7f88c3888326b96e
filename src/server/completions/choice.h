// One choice of a response: how far it is, and what of it was not written yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/response/choice_delta.h"
#include "server/completions/reasoning_count.h"
#include "sluice/client.hpp"
#include "sluice/reasoning.hpp"

namespace sluice::server {

class LiveExchange;

// Tokens and the log-probabilities of each, as responses have them.
class ReportedTokens {
 public:
  // `listed` and `values`: `width` a token, the token itself first, which is left out.
  void Append(std::span<const float> logprobs, std::span<const int32_t> ranks, int32_t width,
              std::span<const int32_t> listed, std::span<const float> values);
  void Clear();  // keeps the memory
  bool IsEmpty() const { return logprobs_.empty(); }
  size_t bytes() const {
    return (logprobs_.size() + ranks_.size() + top_ids_.size() + top_logprobs_.size()) * 4;
  }
  TokenLogprobs Of(std::span<const int32_t> ids) const;

 private:
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
  int32_t width_ = 0;
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logprobs_;
};

// Text and tokens that wait to be written, in one piece however many outputs they came in.
struct PendingDelta {
  // The reports on tokens, apart from the text.
  struct Reports {
    bool ids = false;
    bool logprobs = false;
  };

  void Append(const ClientOutput& output, Reports wanted);
  void Clear();  // keeps the memory
  bool IsEmpty() const { return text.empty() && parts.IsEmpty() && ids.empty(); }
  size_t bytes() const {
    return text.size() + parts.bytes() + ids.size() * sizeof(int32_t) + reported.bytes();
  }

  std::string text = {};
  OutputParts parts = {};         // of a choice that is taken apart, in place of the text
  std::vector<int32_t> ids = {};  // where ids or log-probabilities are reported
  ReportedTokens reported = {};
};

// Takes the text of one choice apart.
class ChoiceParser {
 public:
  struct Wanted {
    bool reasoning = true;
    bool parallel = true;  // calls after the first one
  };

  ChoiceParser(const OutputFormat& format, const SharedTools& tools, Wanted wanted)
      : parser_(format, tools), wanted_(wanted) {}
  // Moves the text to the parts. is_end: nothing follows it.
  void TakeApart(PendingDelta& pending, bool is_end);
  bool has_calls() const { return parser_.calls() > 0; }

 private:
  OutputParser parser_;
  Wanted wanted_;
  OutputParts new_;
};

struct Choice {
  LiveExchange* exchange = nullptr;
  RequestId request = {};  // until it has ended
  int32_t index = 0;
  bool is_live = false;     // in the engine
  bool is_heard = false;    // it has given an output, so the engine has taken it
  bool has_news = false;    // that were not written
  bool has_begun = false;   // role and prompt are written
  bool is_written = false;  // to its end
  GenerationEnd end = GenerationEnd::kNone;
  int32_t stop_token = -1;  // as ChoiceEnd has them
  std::string stop = {};
  int64_t tokens = 0;          // so far
  int64_t given = 0;           // of these, with what was written
  int64_t text_offset = 0;     // code points that were written
  ReportedTokens prompt = {};  // of its tokens but the first, until that is written
  PendingDelta pending = {};
  std::optional<ChoiceParser> parser = {};
  std::optional<ReasoningCount> reasoning = {};  // where the usage has it
  std::chrono::steady_clock::time_point last_output = {};
};

int64_t CountCodePoints(std::string_view text);

}  // namespace sluice::server
