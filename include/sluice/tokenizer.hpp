// A vocabulary with what turns text into ids and ids into text, as a model's files describe it.
//
// Ids are taken literally, and two tokens with one id are an Error. The ids of a text are those of
// the library that a file is for: Hugging Face tokenizers, SentencePiece or tiktoken. Everything
// that a file can say is either done or refused by name; what only encoding needs is refused when
// something is encoded, so that any model can be decoded. A file is data from strangers: it cannot
// make loading or encoding take more than a bounded time and memory for each byte of file and text;
// docs/text.md lists the limits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

namespace text {
class TokenizerImpl;
}

// How ids become text. Some repositories carry a decoder that contradicts their vocabulary.
enum class TokenDecoder : uint8_t {
  kAuto,           // as the file says
  kByteLevel,      // GPT-2's alphabet of bytes
  kSentencePiece,  // U+2581 is a space, <0xHH> is a byte, one leading space is dropped
};
std::string_view Name(TokenDecoder decoder);  // "auto", "bytelevel", "spm"
TokenDecoder TokenDecoderByName(std::string_view name);

// A *.tiktoken file holds nothing but ranks; the rest is the model's configuration.
struct SpecialToken {
  std::string_view text;
  int32_t id;
};
struct TiktokenOptions {
  // How text is cut into words, in the dialect of Rust's fancy-regex, which tiktoken uses; empty:
  // it can only be decoded.
  std::string_view pattern = {};
  std::span<const SpecialToken> special_tokens = {};
};

struct TokenizerOptions {
  TokenDecoder decoder = TokenDecoder::kAuto;  // of files that name one
  TiktokenOptions tiktoken = {};               // of *.tiktoken files
};

struct EncodeOptions {
  // The tokens that the model needs around a text: one for its beginning, say.
  bool add_special_tokens = true;
  // Whether a special token that is spelled out in the text is that token. Off, because what a user
  // typed must not become a control token. Of text that a chat template made EncodeChat
  // (chat_text.hpp) takes those that the template wrote itself.
  bool parse_special_tokens = false;
  // With more ids than this, encoding may end early: there are more than this then, and not all.
  int64_t max_tokens = INT64_MAX;
};

// Cheap to copy, and safe to use from many threads: nothing changes after it was loaded.
class Tokenizer {
 public:
  // By name and content: tokenizer.json, SentencePiece's tokenizer.model, *.tiktoken.
  static Tokenizer FromFile(const std::string& path, const TokenizerOptions& options = {});
  static Tokenizer FromJson(std::string_view json, const TokenizerOptions& options = {});
  static Tokenizer FromSentencePiece(std::string_view model, const TokenizerOptions& options = {});
  static Tokenizer FromTiktoken(std::string_view ranks, const TiktokenOptions& options = {});

  explicit Tokenizer(std::shared_ptr<const text::TokenizerImpl> impl);

  // One more than the largest id.
  int32_t size() const;

  // The token as the file spells it; nothing for an id that it does not have.
  std::optional<std::string_view> Token(int32_t id) const;
  std::optional<int32_t> Id(std::string_view token) const;
  bool IsSpecial(int32_t id) const;

  // Bytes of text that one token stands for at most; but for white space that a normaliser drops
  // and unknown characters that become one token, of which there may be any number.
  size_t longest_token() const;

  // The ids of those stop strings that are the text of an added token. A generation ends at such a
  // token as well: its text may be skipped, and then no scanner sees it.
  std::vector<int32_t> StopTokenIds(std::span<const std::string> stops) const;

  // Throws Error for text that is not UTF-8, and where the file exceeds its limits.
  // Takes O(n log n) for n bytes of any text.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // All at once; Detokenizer does it token by token, with the same result.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  const text::TokenizerImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const text::TokenizerImpl> impl_;
};

}  // namespace sluice
