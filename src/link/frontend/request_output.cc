#include "link/frontend/request_output.h"

#include <algorithm>
#include <new>
#include <utility>

#include "support/check.h"

namespace sluice::link {
namespace {

constexpr const char* kNoMemory = "no memory";  // so short that it takes none itself
constexpr size_t kUsualText = 256;              // bytes
constexpr int64_t kUsualTokens = 4096;          // of a request with outputs that have everything
constexpr size_t kMostKept = 256 * 1024;        // bytes that stay for the next request

// Empties it, and keeps its memory unless that is a rare lot.
template <typename T>
void Empty(T& buffer) {
  if (buffer.capacity() * sizeof(buffer[0]) > kMostKept) buffer = T();
  buffer.clear();
}

void Empty(engine::TokenColumns& columns) {
  Empty(columns.ids);
  Empty(columns.scores.logprobs);
  Empty(columns.scores.ranks);
  Empty(columns.scores.ids);
  Empty(columns.scores.values);
  columns.scores.width = 0;
}

bool IsOfText(GenerationEnd end) {
  return end == GenerationEnd::kStopString || end == GenerationEnd::kStopToken;
}

// An end that says nothing of the text, because something failed.
bool IsFailure(GenerationEnd end) {
  return end == GenerationEnd::kStatus || end == GenerationEnd::kRejected ||
         end == GenerationEnd::kEngineLost;
}

GenerationEnd EndOfText(FinishReason found) {
  return found == FinishReason::kStopString ? GenerationEnd::kStopString
                                            : GenerationEnd::kStopToken;
}

}  // namespace

void RequestOutput::Begin(RequestId id, const EngineRequest& request, OutputMode mode,
                          int64_t stream_interval, TextStream stream) {
  id_ = id;
  mode_ = mode;
  stop_at_ = request.stop_at;
  stream_interval_ = stream_interval;
  max_tokens_ = request.max_tokens;
  prompt_tokens_ = std::ssize(request.prompt);
  stream_.emplace(std::move(stream));

  Empty(text_);
  Empty(columns_);
  prompt_ = {};
  prompt_width_ = request.prompt_logprobs.has_value() ? 1 + *request.prompt_logprobs : 0;
  next_prompt_ = 1;
  has_prompt_ = is_prompt_given_ = false;
  text_.reserve(kUsualText);
  columns_.ids.reserve(static_cast<size_t>(mode == OutputMode::kDelta
                                               ? 1 + stream_->stops().longest()
                                               : std::min(max_tokens_, kUsualTokens)));
  first_ = taken_ = tokens_ = released_ = given_tokens_ = 0;
  given_bytes_ = 0;
  has_columns_ = has_given_ = is_end_given_ = has_disagreed_ = false;
  has_logprobs_ = request.params.logprobs.has_value();
  end_ = GenerationEnd::kNone;
  stop_ = stop_token_ = -1;
  status_ = RowStatus::kOk;
  Empty(message_);
  code_ = ErrorCode::kInvalidValue;
  cached_tokens_ = -1;
  Empty(parameter_);
}

bool RequestOutput::Follows(const OutputRow& row) const {
  const size_t count = row.ids.size();
  if (static_cast<uint8_t>(row.end) >= kGenerationEnds || row.logprob_width < 0) return false;
  if (row.first_token != taken_ || std::ssize(row.ids) > max_tokens_ - taken_) return false;
  const auto is_column = [count](size_t size) { return size == 0 || size == count; };
  if (!is_column(row.logprobs.size()) || row.ranks.size() != row.logprobs.size()) return false;
  if (!FollowsInPrompt(row)) return false;
  const size_t listed = count * static_cast<size_t>(row.logprob_width);
  if (row.logprob_ids.size() != listed || row.logprob_values.size() != listed) return false;
  return !has_columns_ || count == 0 || row.logprob_width == columns_.scores.width;
}

// Tokens, and an end that is none of a failure, follow all of the prompt.
bool RequestOutput::FollowsInPrompt(const OutputRow& row) const {
  const PromptLogprobs& piece = row.prompt;
  const auto count = std::ssize(piece.logprobs);
  if (count > 0) {
    if (prompt_width_ == 0 || piece.width != prompt_width_) return false;
    if (piece.first_token != next_prompt_ || count > prompt_tokens_ - next_prompt_) return false;
  }
  const size_t listed = piece.logprobs.size() * static_cast<size_t>(prompt_width_);
  if (piece.ranks.size() != piece.logprobs.size() || piece.ids.size() != listed ||
      piece.values.size() != listed) {
    return false;
  }
  if (prompt_width_ == 0 || next_prompt_ + count == prompt_tokens_) return true;
  const bool is_cut = row.end == GenerationEnd::kCancelled || IsFailure(row.end);
  return row.ids.empty() && (row.end == GenerationEnd::kNone || is_cut);
}

RequestOutput::Verdict RequestOutput::Take(const OutputRow& row) {
  const size_t size = text_.size();
  try {
    TakeWhole(row);
  } catch (const std::bad_alloc&) {  // what came of it is not output: no token was released
    text_.resize(size);
    EndAs(GenerationEnd::kEngineLost, kNoMemory);
  }
  if (!has_ended()) return Verdict::kGoesOn;
  return row.end == GenerationEnd::kNone ? Verdict::kEndsHere : Verdict::kEnds;
}

void RequestOutput::TakeWhole(const OutputRow& row) {
  columns_.Append(row);
  has_columns_ = has_columns_ || !row.ids.empty();
  if (!row.prompt.IsEmpty()) {
    prompt_.Append(engine::LogprobsOf(row.prompt));
    next_prompt_ += std::ssize(row.prompt.logprobs);
    has_prompt_ = next_prompt_ == prompt_tokens_;
  }
  taken_ += std::ssize(row.ids);
  const Delta* delta = &stream_->Step(row.ids, text_);
  const bool is_over = delta->finish == FinishReason::kNone && row.end != GenerationEnd::kNone;
  // A stop string may end in what Finish lets out.
  if (is_over) delta = &stream_->Finish(text_);
  Note(*delta);
  if (delta->finish == FinishReason::kNone) return;

  const bool is_found = delta->finish != FinishReason::kEnd && !(is_over && IsFailure(row.end));
  const GenerationEnd found = is_found ? EndOfText(delta->finish) : GenerationEnd::kNone;
  if (Agrees(row, found)) {
    EndAs(is_found ? found : row.end, row.message);
    status_ = row.status;
    code_ = row.code;
    cached_tokens_ = row.cached_tokens;
    parameter_.assign(row.parameter);
  } else {
    has_disagreed_ = true;
    EndAs(GenerationEnd::kEngineLost, DisagreementText(row, found));
  }
}

// An engine that looks for stops sees the end that the text has. What was cancelled there may not
// have been looked at once more.
bool RequestOutput::Agrees(const OutputRow& row, GenerationEnd found) const {
  const GenerationEnd said = IsOfText(row.end) ? row.end : GenerationEnd::kNone;
  const bool is_source = stop_at_ == StopAt::kEngine && row.end != GenerationEnd::kCancelled;
  if (is_source) return said == found && tokens_ == taken_;
  return said == GenerationEnd::kNone || found != GenerationEnd::kNone;
}

std::string RequestOutput::DisagreementText(const OutputRow& row, GenerationEnd found) const {
  std::string text = "the engine says that the text ends with ";
  text.append(Name(row.end)).append(" at token ").append(ToText(taken_));
  text.append(", and here it ends with ").append(Name(found));
  return text.append(" at token ").append(ToText(tokens_));
}

void RequestOutput::End(GenerationEnd end, std::string_view message) {
  if (has_ended()) return;
  const size_t size = text_.size();
  try {
    EndWithRest(end, message);
  } catch (const std::bad_alloc&) {
    text_.resize(size);
    EndAs(end, kNoMemory);
  }
}

void RequestOutput::EndWithRest(GenerationEnd end, std::string_view message) {
  const Delta& delta = stream_->Finish(text_);
  Note(delta);
  const bool is_found = delta.finish == FinishReason::kStopString && !IsFailure(end);
  EndAs(is_found ? GenerationEnd::kStopString : end, message);
}

void RequestOutput::Note(const Delta& delta) {
  tokens_ = delta.tokens;
  released_ = delta.last_token;
  stop_ = delta.stop;
  stop_token_ = delta.stop_token;
}

void RequestOutput::EndAs(GenerationEnd end, std::string_view message) {
  end_ = end;
  message_.assign(message);
}

bool RequestOutput::IsDue() const {
  if (has_ended()) return !is_end_given_;
  if (IsPromptDue() && mode_ != OutputMode::kFinal) return true;
  if (mode_ == OutputMode::kFinal || text_.size() == given_bytes_) return false;
  return !has_given_ || tokens_ - given_tokens_ >= stream_interval_;
}

ClientOutput RequestOutput::NextOutput() {
  ClientOutput output = {.request = id_,
                         .text = text_,
                         .end = end_,
                         .status = status_,
                         .message = message_,
                         .code = code_,
                         .parameter = parameter_,
                         .prompt_tokens = prompt_tokens_,
                         .output_tokens = tokens_,
                         .cached_tokens = cached_tokens_};
  columns_.SetPart(output, 0, static_cast<size_t>(released_ - first_));
  if (end_ == GenerationEnd::kStopString) {
    output.stop = stream_->stops().stops()[static_cast<size_t>(stop_)];
  }
  if (end_ == GenerationEnd::kStopToken) output.stop_token = stop_token_;
  if (IsPromptDue()) {
    output.prompt.first_token = 1;
    engine::SetLogprobs(output.prompt, prompt_.View());
    is_prompt_given_ = true;
  }
  has_given_ = has_given_ || !text_.empty();
  is_end_given_ = has_ended();
  given_tokens_ = tokens_;
  given_bytes_ = text_.size();
  return output;
}

void RequestOutput::Forget() {
  if (is_prompt_given_) prompt_ = {};
  if (mode_ != OutputMode::kDelta) return;
  text_.clear();
  given_bytes_ = 0;
  columns_.DropFirst(static_cast<size_t>(released_ - first_));
  first_ = released_;
}

}  // namespace sluice::link
