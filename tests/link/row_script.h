// What an engine makes of a request whose tokens are known: rows, in whatever cuts a test likes.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/request_text.h"
#include "sluice/engine_messages.hpp"
#include "sluice/text_stream.hpp"

namespace sluice::test {

// What is told about token `number`: values that name it.
inline float LogprobOf(int64_t number) { return -0.125f * static_cast<float>(number); }
inline int32_t RankOf(int64_t number) { return static_cast<int32_t>(number % 97) + 1; }

class RowScript {
 public:
  // `ids` over and over.
  RowScript(const EngineRequest& request, const Tokenizer& tokenizer, std::vector<int32_t> ids,
            int64_t vocab)
      : request_(request), script_(std::move(ids)), vocab_(vocab) {
    if (request.stop_at == StopAt::kEngine) {
      StopListCache lists;
      stream_.emplace(engine::MakeTextStream(request, tokenizer, lists, StopLimits{}));
    }
  }

  const EngineRequest& request() const { return request_; }
  bool has_ended() const { return has_ended_; }
  int64_t tokens() const { return given_; }

  // The next `count` tokens, fewer where the request ends. Valid until the next call.
  OutputRow Next(int64_t count) {
    ids_.clear();
    text_.clear();
    row_ = {.address = request_.address, .first_token = given_};
    for (int64_t i = 0; i < count && row_.end == GenerationEnd::kNone; ++i) {
      ids_.push_back(script_[static_cast<size_t>(given_ % std::ssize(script_))]);
      ++given_;
      row_.end = EndBehind(ids_.back());
    }
    has_ended_ = row_.end != GenerationEnd::kNone;
    row_.ids = ids_;
    TellAbout(row_.first_token);
    return row_;
  }

  // An answer to an abort.
  OutputRow Cancelled() {
    has_ended_ = true;
    return {.address = request_.address, .first_token = given_, .end = GenerationEnd::kCancelled};
  }

 private:
  GenerationEnd EndBehind(int32_t id) {
    const bool is_full = given_ == request_.max_tokens;
    if (!stream_.has_value()) {
      const TokenIds& stops = request_.params.stop_token_ids;
      const bool is_stop = given_ > request_.params.min_tokens &&
                           std::find(stops.begin(), stops.end(), id) != stops.end();
      if (is_stop) return GenerationEnd::kStopToken;
      return is_full ? GenerationEnd::kLength : GenerationEnd::kNone;
    }
    FinishReason finish = stream_->Step({&id, 1}, text_).finish;
    if (finish == FinishReason::kNone && is_full) finish = stream_->Finish(text_).finish;
    switch (finish) {
      case FinishReason::kNone:
        return GenerationEnd::kNone;
      case FinishReason::kStopString:
        return GenerationEnd::kStopString;
      case FinishReason::kStopToken:
        return GenerationEnd::kStopToken;
      case FinishReason::kEnd:
        break;
    }
    return GenerationEnd::kLength;
  }

  void TellAbout(int64_t first) {
    if (!request_.params.logprobs.has_value()) return;
    logprobs_.clear();
    ranks_.clear();
    list_ids_.clear();
    list_values_.clear();
    const int32_t width = 1 + *request_.params.logprobs;
    for (int64_t number = first; number < given_; ++number) {
      logprobs_.push_back(LogprobOf(number));
      ranks_.push_back(RankOf(number));
      for (int32_t i = 0; i < width; ++i) {
        list_ids_.push_back(static_cast<int32_t>((number + i) % vocab_));
        list_values_.push_back(LogprobOf(number) - static_cast<float>(i));
      }
    }
    row_.logprobs = logprobs_;
    row_.ranks = ranks_;
    row_.logprob_width = width;
    row_.logprob_ids = list_ids_;
    row_.logprob_values = list_values_;
  }

  EngineRequest request_;
  std::vector<int32_t> script_;
  int64_t vocab_;
  std::optional<TextStream> stream_;
  std::string text_;
  int64_t given_ = 0;
  bool has_ended_ = false;
  OutputRow row_;
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
  std::vector<int32_t> list_ids_;
  std::vector<float> list_values_;
};

}  // namespace sluice::test
