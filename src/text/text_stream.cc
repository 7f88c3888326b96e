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
      stop_token_ids_(tokenizer.StopTokenIds(scanner_.stops().stops())),
      quick_filter_(scanner_.first_kinds_) {
  if (options.thinking.has_value() && !stops().IsEmpty()) {
    place_.emplace(options.thinking->format, tokenizer, options.thinking->is_open);
    given_stop_ids_ = options.stop_token_ids;
    std::sort(given_stop_ids_.begin(), given_stop_ids_.end());
  }
  stop_token_ids_.insert(stop_token_ids_.end(), options.stop_token_ids.begin(),
                         options.stop_token_ids.end());
  std::sort(stop_token_ids_.begin(), stop_token_ids_.end());
  // Negative ids are unknown ones, which end a stream like others.
  if (!stop_token_ids_.empty()) {
    stop_free_size_ = static_cast<uint32_t>(std::max(stop_token_ids_.front(), 0));
  }
  UpdateQuickSize();  // the prompt may have left the detokeniser plain
}

const Delta& TextStream::Step(std::span<const int32_t> ids, std::string& text) {
  // Most tokens are short text without a byte that a stop begins with; everything else that could
  // matter was tested after the last token that is not.
  if (ids.size() == 1) [[likely]] {
    const text::TokenEntry* const piece =
        detokenizer_.PlainPiece(ids[0], quick_size_, quick_filter_, text);
    if (piece != nullptr) [[likely]] {
      PassOn(*piece, text);
      return delta_;
    }
  }
  return StepAny(ids, text);
}

const Delta& TextStream::StepAny(std::span<const int32_t> ids, std::string& text) {
  if (ids.size() == 1 && !stops().IsEmpty() && IsInAnswer() && StepWithin(ids[0], text)) {
    return delta_;
  }
  delta_.first_token = delta_.last_token;
  if (delta_.finish != FinishReason::kNone) return delta_;
  scanner_.TakeCount(delta_.tokens);
  IsInAnswer() ? StepThrough(ids, text) : StepToAnswer(ids, text);
  UpdateQuickSize();
  return delta_;
}

// A short token in which no stop ends.
bool TextStream::StepWithin(int32_t id, std::string& text) {
  if (delta_.finish != FinishReason::kNone) return false;
  const text::TokenEntry* const piece =
      detokenizer_.PlainPiece(id, QuickSize(), text::PieceFilter(), text);
  if (piece == nullptr) return false;
  const char* const bytes = detokenizer_.arena_ + piece->begin;
  const uint32_t begins = scanner_.BeginningsIn(bytes, piece->size, piece->kinds);
  if (begins == 0 && scanner_.is_idle_) {
    PassOn(*piece, text);
    return true;
  }
  scanner_.TakeCount(delta_.tokens);
  if (!scanner_.StepWithin(bytes, piece->size, begins, text)) return false;
  delta_.first_token = delta_.last_token;
  Take(scanner_.result_);
  UpdateQuickSize();
  return true;
}

// After tokens that are all out.
inline void TextStream::PassOn(const text::TokenEntry& piece, std::string& text) {
  detokenizer_.AppendPlain(piece, text);
  delta_.first_token = delta_.last_token;
  ++delta_.last_token;
  ++delta_.tokens;
}

// Ids below it are not stop tokens, and a plain token among them changes no state of the
// detokeniser. 0: no id is.
inline uint32_t TextStream::QuickSize() const {
  return std::min(detokenizer_.plain_size_, stop_free_size_);
}

inline void TextStream::UpdateQuickSize() {
  const bool is_quick = delta_.finish == FinishReason::kNone && scanner_.is_idle_ && IsInAnswer();
  quick_size_ = is_quick ? QuickSize() : 0;
}

inline bool TextStream::IsInAnswer() const {
  return !place_.has_value() || place_->part() == ReasoningPlace::Part::kAnswer;
}

// Token by token, as each may begin the answer.
void TextStream::StepToAnswer(std::span<const int32_t> ids, std::string& text) {
  while (!ids.empty() && !IsInAnswer() && delta_.finish == FinishReason::kNone) {
    if (CountBeforeStopToken(ids.first(1)) == 0) return StepThrough(ids.first(1), text);
    AddReasoning(ids[0], text);
    ids = ids.subspan(1);
  }
  if (!ids.empty() && delta_.finish == FinishReason::kNone) StepThrough(ids, text);
}

// Text before reasoning may be the answer's, so it is scanned; reasoning goes out as it is.
void TextStream::AddReasoning(int32_t id, std::string& text) {
  const bool was_before = place_->part() == ReasoningPlace::Part::kBefore;
  const size_t was_open = detokenizer_.open_tokens();
  size_t begin = text.size();
  std::array<TokenEnd, 1> end;
  detokenizer_.Step({&id, 1}, text, end);
  const size_t before = place_->Step(id, std::string_view(text).substr(begin));
  const bool has_reasoning =
      place_->part() == ReasoningPlace::Part::kReasoning || (IsInAnswer() && before > 0);
  if (was_before && !has_reasoning) return Take(scanner_.StepInPlace(text, begin, end));
  if (was_before) {  // what the scanner held back was the marker's beginning
    std::string held;
    scanner_.Finish({}, held);
    text.insert(begin, held);
    begin += held.size();
  }
  if (!IsInAnswer()) {
    ++delta_.tokens;
    delta_.last_token = delta_.tokens - static_cast<int64_t>(detokenizer_.open_tokens());
    return;
  }
  scanner_.result_.tokens = delta_.tokens;
  scanner_.result_.released_tokens = delta_.tokens - static_cast<int64_t>(was_open);
  scanner_.open_tokens_ = was_open;
  end[0].text = text.size();
  Take(scanner_.StepInPlace(text, begin + before, end));
}

void TextStream::StepThrough(std::span<const int32_t> ids, std::string& text) {
  const size_t before = CountBeforeStopToken(ids);
  Add(ids.first(before), text);
  if (before == ids.size() || delta_.finish != FinishReason::kNone) return;

  const std::span<const int32_t> stop_token = ids.subspan(before, 1);
  if (include_stop_) {
    Add(stop_token, text);
    if (delta_.finish != FinishReason::kNone) return;  // by a string that it ends
  } else {
    AddHidden(text);
  }
  delta_.stop_token = stop_token[0];
  End(FinishReason::kStopToken, text);
}

const Delta& TextStream::Finish(std::string& text) {
  delta_.first_token = delta_.last_token;
  scanner_.TakeCount(delta_.tokens);
  if (delta_.finish == FinishReason::kNone) End(FinishReason::kEnd, text);
  return delta_;
}

size_t TextStream::CountBeforeStopToken(std::span<const int32_t> ids) const {
  const bool is_reasoning =
      place_.has_value() && place_->part() == ReasoningPlace::Part::kReasoning;
  const std::vector<int32_t>& stop_ids = is_reasoning ? given_stop_ids_ : stop_token_ids_;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < stop_free_size_) continue;
    const bool counts = delta_.tokens + static_cast<int64_t>(i) >= min_tokens_;
    if (counts && std::binary_search(stop_ids.begin(), stop_ids.end(), ids[i])) {
      return i;
    }
  }
  return ids.size();
}

void TextStream::Add(std::span<const int32_t> ids, std::string& text) {
  if (stops().IsEmpty()) {  // only the detokeniser holds text back
    detokenizer_.Step(ids, text);
    delta_.tokens += static_cast<int64_t>(ids.size());
    delta_.last_token = delta_.tokens - static_cast<int64_t>(detokenizer_.open_tokens());
    return;
  }
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
  if (stops().IsEmpty()) {
    ++delta_.tokens;
    return;
  }
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
}

void TextStream::End(FinishReason reason, std::string& text) {
  delta_.finish = reason;
  quick_size_ = 0;
  if (stops().IsEmpty()) {
    detokenizer_.Finish(text, incomplete_);
    delta_.last_token = delta_.tokens;
    return;
  }
  std::string rest;
  detokenizer_.Finish(rest, incomplete_);
  Take(scanner_.Finish(rest, text));
}

}  // namespace sluice
