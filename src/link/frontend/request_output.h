// The output of one request for a client: tokens become text, and text becomes outputs.
//
// A token costs what its text does, and takes memory only until the buffers have grown to what the
// request needs; they serve the next request of this place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_columns.h"
#include "sluice/client.hpp"
#include "sluice/engine_messages.hpp"
#include "sluice/text_stream.hpp"

namespace sluice::link {

class RequestOutput {
 public:
  // The effect of a row on its request.
  enum class Verdict : uint8_t {
    kGoesOn,
    kEnds,      // here and at the engine
    kEndsHere,  // the text has ended, and the engine has not seen it
  };

  void Begin(RequestId id, const EngineRequest& request, OutputMode mode, int64_t stream_interval,
             TextStream stream);

  // Whether the row's tokens, and those of the prompt, follow those before them, with the same
  // columns.
  bool Follows(const OutputRow& row) const;
  // Whether it has log-probabilities of its tokens where the request has them, and else none.
  bool HasRequested(const OutputRow& row) const {
    if (row.ids.empty()) return true;
    return has_logprobs_ ? !row.logprobs.empty() : row.logprobs.empty() && row.logprob_width == 0;
  }
  // A row of which both are so. With kEngine the text must end where the engine says so; else it
  // ends with kEngineLost, and has_disagreed(). So does one that there is no memory for.
  Verdict Take(const OutputRow& row);
  // For an end without a row; what was held back comes out, if there is memory for it. Nothing
  // comes after an end.
  void End(GenerationEnd end, std::string_view message);

  bool IsDue() const;
  // The output that is due. Valid until Forget, which drops it, or Begin.
  ClientOutput NextOutput();
  void Forget();

  bool has_ended() const { return end_ != GenerationEnd::kNone; }
  bool has_disagreed() const { return has_disagreed_; }
  int64_t tokens() const { return tokens_; }  // so far, up to and with the one that ended it
  int64_t surplus_tokens() const { return taken_ - tokens_; }  // after that
  int64_t held_bytes() const {
    return has_ended() ? 0 : static_cast<int64_t>(stream_->held_bytes());
  }
  int64_t invalid_bytes() const { return stream_->invalid_bytes(); }

 private:
  void TakeWhole(const OutputRow& row);
  void EndWithRest(GenerationEnd end, std::string_view message);
  bool FollowsInPrompt(const OutputRow& row) const;
  bool IsPromptDue() const { return has_prompt_ && !is_prompt_given_; }
  bool Agrees(const OutputRow& row, GenerationEnd found) const;
  std::string DisagreementText(const OutputRow& row, GenerationEnd found) const;
  void Note(const Delta& delta);
  void EndAs(GenerationEnd end, std::string_view message);

  RequestId id_ = {};
  OutputMode mode_ = OutputMode::kDelta;
  StopAt stop_at_ = StopAt::kEngine;
  int64_t stream_interval_ = 1;
  int64_t max_tokens_ = 0;
  int64_t prompt_tokens_ = 0;
  std::optional<TextStream> stream_;

  std::string text_;              // with kDelta, what was not yet output; else all
  engine::TokenColumns columns_;  // from number first_ on, all that came
  int64_t first_ = 0;
  int64_t taken_ = 0;          // tokens that came
  int64_t tokens_ = 0;         // of these, up to the end
  int64_t released_ = 0;       // number of tokens with all of their text in text_
  bool has_columns_ = false;   // a row with tokens came, so the width of its lists is known
  bool has_logprobs_ = false;  // the request has them

  engine::LogprobColumns prompt_;
  int32_t prompt_width_ = 0;  // 0: the request has none
  int64_t next_prompt_ = 1;   // the place of the next one to come
  bool has_prompt_ = false;   // there are some, and all have come
  bool is_prompt_given_ = false;

  bool has_given_ = false;    // some text
  int64_t given_tokens_ = 0;  // at the last output
  size_t given_bytes_ = 0;    // of text_

  GenerationEnd end_ = GenerationEnd::kNone;
  bool is_end_given_ = false;
  bool has_disagreed_ = false;
  int32_t stop_ = -1;
  int32_t stop_token_ = -1;
  RowStatus status_ = RowStatus::kOk;
  std::string message_;
  ErrorCode code_ = ErrorCode::kInvalidValue;
  int64_t cached_tokens_ = -1;
  std::string parameter_;
};

}  // namespace sluice::link
