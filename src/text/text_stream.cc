#include "sluice/text_stream.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "text/plain_step.h"
#include "text/stop_filter.h"

namespace sluice {

TextStream::TextStream(Tokenizer tokenizer, const TextStreamOptions& options,
                       std::span<const int32_t> prompt)
    : detokenizer_(tokenizer, options.detokenizer, prompt),
      scanner_(options.stops != nullptr ? options.stops : std::make_shared<const StopList>(),
               options.stop),
      include_stop_(options.stop.include_stop),
      incomplete_(options.incomplete),
      min_tokens_(options.stop.min_tokens),
      stop_token_ids_(tokenizer.StopTokenIds(scanner_.stops().stops())) {
  stop_token_ids_.insert(stop_token_ids_.end(), options.stop_token_ids.begin(),
                         options.stop_token_ids.end());
  std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
  if (!stop_token_ids_.empty()) least_stop_token_ = stop_token_ids_.front();
}

const Delta& TextStream::Step(std::span<const int32_t> ids, std::string& text) {
  delta_.first_token = delta_.last_token;
  // Most tokens are short text, and in most of it no stop begins or ends.
  if (ids.size() == 1 && ids[0] < least_stop_token_) [[likely]] {
    if (const text::TokenEntry* const piece = detokenizer_.PlainPiece(ids[0], text)) [[likely]] {
      const char* const bytes = detokenizer_.arena_ + piece->begin;
      uint32_t begins;
      if (scanner_.LetsOut(bytes, piece->size, piece->kinds, begins)) [[likely]] {
        detokenizer_.AppendPlain(*piece, text);
        delta_.last_token = ++delta_.tokens;
        return delta_;
      }
      scanner_.TakeCount(delta_.tokens);
      if (scanner_.StepWithin(bytes, piece->size, begins, text)) {
        Take(scanner_.result_);
        return delta_;
      }
    }
  }
  return StepAny(ids, text);
}

const Delta& TextStream::StepAny(std::span<const int32_t> ids, std::string& text) {
  if (delta_.finish != FinishReason::kNone) return delta_;
  scanner_.TakeCount(delta_.tokens);
  const size_t before = CountBeforeStopToken(ids);
  Add(ids.first(before), text);
  if (before == ids.size() || delta_.finish != FinishReason::kNone) return delta_;

  const std::span<const int32_t> stop_token = ids.subspan(before, 1);
  if (include_stop_) {
    Add(stop_token, text);
    if (delta_.finish != FinishReason::kNone) return delta_;  // by a string that it ends
  } else {
    AddHidden(text);
  }
  delta_.stop_token = stop_token[0];
  End(FinishReason::kStopToken, text);
  return delta_;
}

const Delta& TextStream::Finish(std::string& text) {
  delta_.first_token = delta_.last_token;
  scanner_.TakeCount(delta_.tokens);
  if (delta_.finish == FinishReason::kNone) End(FinishReason::kEnd, text);
  return delta_;
}

size_t TextStream::CountBeforeStopToken(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < least_stop_token_) continue;
    const bool counts = delta_.tokens + static_cast<int64_t>(i) >= min_tokens_;
    if (counts && std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), ids[i])) {
      return i;
    }
  }
  return ids.size();
}

void TextStream::Add(std::span<const int32_t> ids, std::string& text) {
  std::array<TokenEnd, 16> ends;
  while (!ids.empty() && delta_.finish == FinishReason::kNone) {
    const size_t count = std::min(ids.size(), ends.size());
    const size_t begin = text.size();
    detokenizer_.Step(ids.first(count), text, std::span(ends).first(count));
    Take(scanner_.StepInPlace(text, begin, std::span(ends).first(count)));
    ids = ids.subspan(count);
  }
}

// A token that counts and has no text, before an end that lets out everything.
void TextStream::AddHidden(std::string& text) {
  const TokenEnd end = {.text = text.size()};
  Take(scanner_.StepInPlace(text, text.size(), {&end, 1}));
}

inline void TextStream::Take(const StopResult& result) {
  delta_.tokens = result.tokens;
  delta_.last_token = result.released_tokens;
  if (result.stop < 0) [[likely]]
    return;
  delta_.stop = result.stop;
  delta_.finish = FinishReason::kStopString;
  least_stop_token_ = INT32_MIN;
}

void TextStream::End(FinishReason reason, std::string& text) {
  delta_.finish = reason;
  least_stop_token_ = INT32_MIN;
  std::string rest;
  detokenizer_.Finish(rest, incomplete_);
  Take(scanner_.Finish(rest, text));
}

}  // namespace sluice
