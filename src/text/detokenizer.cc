#include "sluice/detokenizer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"
#include "text/plain_step.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice {

using text::DecodeRules;
using text::kReplacement;
using text::LeadOf;
using text::TokenEntry;
using text::Vocabulary;

// Gathers the text of a step, so that the string grows once for many tokens.
class Detokenizer::Output {
 public:
  // Without a text, what comes out is dropped.
  explicit Output(std::string* text) : text_(text) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Append(std::string_view bytes) {
    if (bytes.size() > buffer_.size() - size_) {
      Flush();
      if (bytes.size() > buffer_.size()) {
        if (text_ != nullptr) text_->append(bytes);
        return;
      }
    }
    std::memcpy(buffer_.data() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  // As above for a piece of the vocabulary, which has readable padding after it.
  void AppendPadded(const char* bytes, size_t size) {
    if (size > text::kArenaPadding || buffer_.size() - size_ < text::kArenaPadding) {
      Append({bytes, size});
      return;
    }
    std::memcpy(buffer_.data() + size_, bytes, text::kArenaPadding);
    size_ += size;
  }
  // At the end, for what is still gathered; not by a destructor, which must not throw.
  void Flush() {
    if (text_ != nullptr) text_->append(buffer_.data(), size_);
    size_ = 0;
  }
  size_t size() const { return (text_ == nullptr ? 0 : text_->size()) + size_; }

 private:
  std::string* text_;
  size_t size_ = 0;
  std::array<char, 1024> buffer_;
};

Detokenizer::Detokenizer(Tokenizer tokenizer, const DetokenizerOptions& options,
                         std::span<const int32_t> prompt)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  const DecodeRules& rules = tokenizer_.impl().rules();
  state_.leading = rules.leading;
  has_runs_ = rules.has_byte_runs && options.utf8_errors == Utf8Errors::kHfRun;
  pieces_ = tokenizer_.impl().vocabulary().pieces();
  pieces_size_ = static_cast<uint32_t>(tokenizer_.size());
  arena_ = tokenizer_.impl().vocabulary().arena();
  if (has_runs_) run_.reserve(kLongestByteRun);
  Prime(prompt);
  // The prompt's own text is out, but for the space that its last word has only when another comes.
  if (state_.tail > 0) {
    const bool ends_word =
        rules.tails[static_cast<size_t>(state_.tail)].followed.ends_with(rules.tails[0].followed);
    state_.tail = ends_word ? 0 : -1;
  }
  unknown_ids_ = invalid_bytes_ = 0;
  open_tokens_ = 0;
}

// Which tokens of the prompt matter: the first ones, until the rules for the beginning are done
// with, and the last ones, back to one that is whole.
void Detokenizer::Prime(std::span<const int32_t> prompt) {
  const Vocabulary& vocabulary = tokenizer_.impl().vocabulary();
  const DecodeRules& rules = tokenizer_.impl().rules();
  Output output(nullptr);
  size_t first = 0;
  for (; first < prompt.size(); ++first) {
    const bool is_done = state_.has_started && state_.leading == 0 && rules.trailing == 0;
    if (is_done) break;
    Add(prompt[first], output);
  }
  size_t last = prompt.size();
  size_t bytes = 0;
  while (last > first) {
    const int32_t id = prompt[--last];
    if (!vocabulary.IsKnown(id)) continue;
    const TokenEntry& piece = vocabulary.Piece(id);
    if (options_.skip_special_tokens && piece.flags & text::kSpecialToken) continue;
    const bool is_whole = piece.flags & text::kWholeToken;
    if (has_runs_ ? !(piece.flags & text::kByteToken) : is_whole && piece.size > 0) break;
    bytes += piece.size;
    if (!has_runs_ && bytes > state_.pending.size()) break;
  }
  for (; last < prompt.size(); ++last) Add(prompt[last], output);
}

void Detokenizer::Step(std::span<const int32_t> ids, std::string& text, std::span<TokenEnd> ends) {
  if (ids.size() == 1 && ends.size() <= 1) [[likely]] {
    const TokenEntry* const piece = PlainPiece(ids[0], plain_size_, text::PieceFilter(), text);
    if (piece != nullptr) [[likely]] {
      AppendPlain(*piece, text);
      if (!ends.empty()) ends[0] = {.text = text.size()};
      return;
    }
  }
  StepAny(ids, text, ends);
}

void Detokenizer::StepAny(std::span<const int32_t> ids, std::string& text,
                          std::span<TokenEnd> ends) {
  if (!ends.empty()) CheckSize("ends", ends.size(), static_cast<int64_t>(ids.size()));
  Output output(&text);
  for (size_t i = 0; i < ids.size(); ++i) {
    Add(ids[i], output);
    if (!ends.empty()) ends[i] = {output.size(), open_tokens_};
  }
  output.Flush();
}

inline void Detokenizer::Add(int32_t id, Output& output) {
  if (IsPlain(id)) [[likely]] {
    output.AppendPadded(arena_ + pieces_[id].begin, pieces_[id].size);
    return;
  }
  AddAny(id, output);
  const bool is_plain = state_.has_started && state_.pending_size == 0 && state_.leading == 0 &&
                        state_.tail < 0 && !state_.was_added && !has_runs_ &&
                        tokenizer_.impl().rules().trailing == 0;
  plain_size_ = is_plain ? pieces_size_ : 0;
}

void Detokenizer::AddAny(int32_t id, Output& output) {
  const Vocabulary& vocabulary = tokenizer_.impl().vocabulary();
  if (!vocabulary.IsKnown(id)) {
    ++unknown_ids_;
    CountOpenTokens(0);
    return;
  }
  const TokenEntry* piece = pieces_ + id;
  const uint8_t flags = piece->flags;
  if (options_.skip_special_tokens && flags & text::kSpecialToken) {
    CountOpenTokens(0);
    return;
  }

  const DecodeRules& rules = tokenizer_.impl().rules();
  if (state_.tail >= 0) {
    AddPiece(rules.tails[static_cast<size_t>(std::exchange(state_.tail, -1))].followed, false,
             output);
  }
  const bool is_added = flags & text::kAddedToken;
  const bool takes_first = !state_.has_started || (!options_.spaces_between_special_tokens &&
                                                   is_added && state_.was_added);
  if (takes_first) piece = &vocabulary.FirstPiece(id);
  state_.has_started = true;
  state_.was_added = is_added;
  if (flags & text::kVerbatimToken) state_.leading = 0;
  if (flags & text::kWordEnd) state_.tail = static_cast<int32_t>(rules.TailOf(id, takes_first));

  const std::string_view bytes = vocabulary.Bytes(*piece);
  if (!has_runs_) {
    AddPiece(bytes, piece->flags & text::kWholeToken, output);
  } else if (flags & text::kByteToken) {
    AddToRun(static_cast<uint8_t>(bytes[0]), output);
  } else {
    EndRun(false, output);
    Emit(bytes, output);
  }
  CountOpenTokens(bytes.size() + HeldTail());
}

// How many bytes of the last token's own text wait for what comes next. A space between words is no
// token's.
size_t Detokenizer::HeldTail() const {
  return state_.tail <= 0
             ? 0
             : tokenizer_.impl().rules().tails[static_cast<size_t>(state_.tail)].followed.size();
}

// After a token of this many bytes. The held bytes are the last of the stream, so they are of this
// token alone when it has as many. Where the end of a text is dropped, more of the held character
// may have let go of an older token meanwhile: it then counts as open until nothing is held.
void Detokenizer::CountOpenTokens(size_t bytes) {
  const size_t held = state_.pending_size + run_size_ +
                      state_.trailing * tokenizer_.impl().rules().stripped.size() + HeldTail();
  if (held == 0) {
    open_tokens_ = 0;
  } else if (held <= bytes) {
    open_tokens_ = 1;
  } else {
    ++open_tokens_;
  }
}

inline void Detokenizer::AddPiece(std::string_view piece, bool is_whole, Output& output) {
  if (is_whole && state_.pending_size == 0) {
    Emit(piece, output);
    return;
  }
  for (const char byte : piece) AddByte(static_cast<uint8_t>(byte), output);
}

// One byte of the machine: it continues the pending character, or ends it with U+FFFD and begins
// the next one.
void Detokenizer::AddByte(uint8_t byte, Output& output) {
  if (state_.pending_size > 0) {
    const text::Utf8Lead lead = LeadOf(state_.pending[0]);
    const bool fits = state_.pending_size == 1 ? byte >= lead.low && byte <= lead.high
                                               : text::IsContinuation(byte);
    if (fits) {
      if (state_.pending_size + 1 < lead.length) {
        state_.pending[state_.pending_size++] = byte;
        return;
      }
      std::array<char, 4> character;
      std::memcpy(character.data(), state_.pending.data(), state_.pending.size());
      character[state_.pending_size] = static_cast<char>(byte);
      state_.pending_size = 0;
      Emit({character.data(), lead.length}, output);
      return;
    }
    invalid_bytes_ += std::exchange(state_.pending_size, 0);
    Emit(kReplacement, output);
  }
  const uint8_t length = LeadOf(byte).length;
  if (length == 1) {
    const char character = static_cast<char>(byte);
    Emit({&character, 1}, output);
  } else if (length == 0) {
    ++invalid_bytes_;
    Emit(kReplacement, output);
  } else {
    state_.pending[0] = byte;
    state_.pending_size = 1;
  }
}

void Detokenizer::AddToRun(uint8_t byte, Output& output) {
  ++run_size_;
  if (is_run_invalid_) return;
  run_.push_back(static_cast<char>(byte));
  // What no further byte can repair is known to be one U+FFFD a byte: only their number matters.
  std::string_view rest = std::string_view(run_).substr(run_valid_);
  const size_t valid = text::ValidPrefix(rest);
  run_valid_ += valid;
  rest.remove_prefix(valid);
  if (!rest.empty()) {
    const text::Utf8Lead lead = LeadOf(static_cast<uint8_t>(rest[0]));
    bool is_prefix = rest.size() < lead.length;
    for (size_t i = 1; is_prefix && i < rest.size(); ++i) {
      const auto next = static_cast<uint8_t>(rest[i]);
      is_prefix = i == 1 ? next >= lead.low && next <= lead.high : text::IsContinuation(next);
    }
    is_run_invalid_ = !is_prefix;
  } else if (run_.size() + state_.pending.size() >= kLongestByteRun) {
    EndRun(false, output);
  }
}

void Detokenizer::EndRun(bool drops_invalid, Output& output) {
  if (run_size_ == 0) return;
  if (!is_run_invalid_ && text::IsUtf8(run_)) {
    Emit(run_, output);
  } else {
    invalid_bytes_ += static_cast<int64_t>(run_size_);
    if (!drops_invalid) {
      for (size_t i = 0; i < run_size_; ++i) Emit(kReplacement, output);
    }
  }
  run_.clear();
  run_size_ = 0;
  run_valid_ = 0;
  is_run_invalid_ = false;
}

// Valid characters, less those that the rules take from both ends of the text.
inline void Detokenizer::Emit(std::string_view characters, Output& output) {
  const DecodeRules& rules = tokenizer_.impl().rules();
  if (state_.leading > 0) [[unlikely]] {
    while (state_.leading > 0 && characters.starts_with(rules.stripped)) {
      characters.remove_prefix(rules.stripped.size());
      --state_.leading;
    }
    if (!characters.empty()) state_.leading = 0;
  }
  if (rules.trailing > 0) [[unlikely]] {
    size_t held = 0;
    std::string_view rest = characters;
    while (held < rules.trailing && !rest.empty() && rest.ends_with(rules.stripped)) {
      rest.remove_suffix(rules.stripped.size());
      ++held;
    }
    // The held bytes precede this text: they go out as far as other text, or more of the held
    // character, follows them.
    const size_t before = state_.trailing;
    const size_t goes = rest.empty() ? before - std::min(before, rules.trailing - held) : before;
    for (size_t i = 0; i < goes; ++i) output.Append(rules.stripped);
    state_.trailing = static_cast<uint8_t>(before - goes + held);
    characters = rest;
  }
  output.Append(characters);
}

void Detokenizer::Finish(std::string& text, Incomplete incomplete) {
  Output output(&text);
  const bool drops = incomplete == Incomplete::kDrop;
  if (state_.tail >= 0) {
    AddPiece(tokenizer_.impl().rules().tails[static_cast<size_t>(state_.tail)].last, false, output);
    state_.tail = -1;
  }
  EndRun(drops, output);
  if (state_.pending_size > 0 && !drops) Emit(kReplacement, output);
  invalid_bytes_ += std::exchange(state_.pending_size, 0);
  state_.trailing = 0;
  open_tokens_ = 0;
  output.Flush();
}

}  // namespace sluice
