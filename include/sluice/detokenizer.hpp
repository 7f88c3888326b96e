// Ids to text, token by token: a machine over bytes, with a few bytes of state a request.
//
// No token is decoded twice and no text is kept. A step costs O(bytes of its tokens), whatever came
// before it, and takes memory only when `text` has no room left. For every way to cut the ids into
// steps the text is the same, each step's text is UTF-8, and none of it is ever taken back.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "sluice/token_end.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

namespace text {
class PieceFilter;
struct TokenEntry;
}  // namespace text

// The treatment of bytes that are not UTF-8.
enum class Utf8Errors : uint8_t {
  // One U+FFFD for each maximal subpart, as Unicode and the Web have it: known at the next byte.
  kMaximal,
  // For vocabularies with tokens for single bytes: one U+FFFD for each byte of a run of such tokens
  // that is not UTF-8 as a whole, as Hugging Face tokenizers has it. The run is held back until it
  // ends, or kLongestByteRun bytes of it are valid.
  kHfRun,
};
inline constexpr size_t kLongestByteRun = 4096;

// The treatment of a character that is incomplete at the end.
enum class Incomplete : uint8_t { kReplace, kDrop };

struct DetokenizerOptions {
  bool skip_special_tokens = true;
  // False: no space between two adjacent added tokens, where the decoder would put
  // one.
  bool spaces_between_special_tokens = true;
  Utf8Errors utf8_errors = Utf8Errors::kMaximal;

  friend bool operator==(const DetokenizerOptions&, const DetokenizerOptions&) = default;
};

class Detokenizer {
 public:
  // The text is what follows that of `prompt`, of which only the first and the last few tokens are
  // read. A character that begins in the prompt comes out once it is complete.
  explicit Detokenizer(Tokenizer tokenizer, const DetokenizerOptions& options = {},
                       std::span<const int32_t> prompt = {});

  // Appends the text of these tokens. ends: empty, or one a token.
  void Step(std::span<const int32_t> ids, std::string& text, std::span<TokenEnd> ends = {});

  // Appends what was held back. Nothing comes after it.
  void Finish(std::string& text, Incomplete incomplete = Incomplete::kReplace);

  // How many ids had no token; they have no text.
  int64_t unknown_ids() const { return unknown_ids_; }
  // How many bytes were no UTF-8: of which U+FFFD came, or nothing.
  int64_t invalid_bytes() const { return invalid_bytes_; }

  // As TokenEnd has it, after the last token.
  size_t open_tokens() const { return open_tokens_; }

 private:
  friend class TextStream;
  class Output;
  struct State {
    std::array<uint8_t, 3> pending = {};  // of a character that is incomplete
    uint8_t pending_size = 0;
    uint8_t leading = 0;   // characters that may still be dropped from the beginning
    uint8_t trailing = 0;  // characters held back because the end is dropped
    bool has_started = false;
    int32_t tail = -1;       // of the last token: what follows if another one does; -1: nothing
    bool was_added = false;  // the last token was an added one
  };

  void Prime(std::span<const int32_t> prompt);
  void StepAny(std::span<const int32_t> ids, std::string& text, std::span<TokenEnd> ends);
  const text::TokenEntry* PlainPiece(int32_t id, uint32_t size, text::PieceFilter filter,
                                     const std::string& text) const;
  void AppendPlain(const text::TokenEntry& piece, std::string& text) const;
  bool IsPlain(int32_t id) const;
  void Add(int32_t id, Output& output);
  void AddAny(int32_t id, Output& output);
  void AddPiece(std::string_view piece, bool is_whole, Output& output);
  void AddByte(uint8_t byte, Output& output);
  void AddToRun(uint8_t byte, Output& output);
  void EndRun(bool drops_invalid, Output& output);
  void CountOpenTokens(size_t bytes);
  size_t HeldTail() const;
  void Emit(std::string_view characters, Output& output);

  Tokenizer tokenizer_;
  // Those of its vocabulary, for the hot path.
  const text::TokenEntry* pieces_;
  const char* arena_;
  uint32_t pieces_size_;
  // All of the ids while nothing is held back and no rule for an end of the text applies, else
  // none.
  uint32_t plain_size_ = 0;

  DetokenizerOptions options_;
  State state_;
  bool has_runs_ = false;
  bool is_run_invalid_ = false;
  size_t run_valid_ = 0;  // bytes of it that are whole characters
  size_t run_size_ = 0;   // with is_run_invalid_, run_ no longer has its bytes
  std::string run_;
  size_t open_tokens_ = 0;
  int64_t unknown_ids_ = 0;
  int64_t invalid_bytes_ = 0;
};

}  // namespace sluice
