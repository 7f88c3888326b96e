#include "sluice/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sluice/chat_text.hpp"
#include "sluice/detokenizer.hpp"
#include "support/check.h"
#include "text/files/loaders.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 3> kDecoderNames = {"auto", "bytelevel", "spm"};
constexpr size_t kLargestFile = size_t{256} << 20;

std::string ReadFile(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    ThrowInvalid("path", ToText(path) + " (" + std::string(why) + ")",
                 "a file of at most 256 MiB that can be read");
  };
  const auto close = [](std::FILE* file) { return std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) refuse(std::strerror(errno));
  std::string bytes;
  for (size_t size = 0;;) {
    bytes.resize(std::max<size_t>(2 * size, 1 << 16));
    const size_t more = std::fread(bytes.data() + size, 1, bytes.size() - size, file.get());
    size += more;
    if (size > kLargestFile) refuse("larger");
    if (more > 0) continue;
    if (std::ferror(file.get()) != 0) refuse("cannot be read");
    bytes.resize(size);
    return bytes;
  }
}

// The first line has a token in base64 and a rank; nothing else that is read does.
bool IsTiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find_first_of("\r\n"));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 &&
         line.find_first_not_of("0123456789", space + 1) == std::string_view::npos &&
         line.substr(0, space).find_first_of(std::string_view("\0\n{\"", 4)) ==
             std::string_view::npos;
}

}  // namespace

std::string_view Name(TokenDecoder decoder) { return kDecoderNames[static_cast<size_t>(decoder)]; }

TokenDecoder TokenDecoderByName(std::string_view name) {
  for (size_t i = 0; i < kDecoderNames.size(); ++i) {
    if (kDecoderNames[i] == name) return static_cast<TokenDecoder>(i);
  }
  ThrowInvalid("decoder", ToText(name), "auto, bytelevel or spm");
}

Tokenizer::Tokenizer(std::shared_ptr<const text::TokenizerImpl> impl) : impl_(std::move(impl)) {
  if (impl_ == nullptr) ThrowInvalid("impl", "null", "a loaded tokenizer");
}

Tokenizer Tokenizer::FromFile(const std::string& path, const TokenizerOptions& options) {
  const std::string bytes = ReadFile(path);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && bytes[first] == '{') return FromJson(bytes, options);
  if (IsTiktoken(bytes)) return FromTiktoken(bytes, options.tiktoken);
  return FromSentencePiece(bytes, options);
}

Tokenizer Tokenizer::FromJson(std::string_view json, const TokenizerOptions& options) {
  return Tokenizer(text::LoadJson(json, options));
}

Tokenizer Tokenizer::FromSentencePiece(std::string_view model, const TokenizerOptions& options) {
  return Tokenizer(text::LoadSentencePiece(model, options));
}

Tokenizer Tokenizer::FromTiktoken(std::string_view ranks, const TiktokenOptions& options) {
  return Tokenizer(text::LoadTiktoken(ranks, options));
}

int32_t Tokenizer::size() const { return impl_->vocabulary().size(); }

std::optional<std::string_view> Tokenizer::Token(int32_t id) const {
  if (!impl_->vocabulary().IsKnown(id)) return std::nullopt;
  return impl_->vocabulary().Token(id);
}

std::optional<int32_t> Tokenizer::Id(std::string_view token) const {
  const int32_t id = impl_->Find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return impl_->vocabulary().IsKnown(id) && impl_->vocabulary().Flags(id) & text::kSpecialToken;
}

size_t Tokenizer::longest_token() const { return impl_->longest_token(); }

std::vector<int32_t> Tokenizer::StopTokenIds(std::span<const std::string> stops) const {
  std::vector<int32_t> ids;
  for (const std::string& stop : stops) {
    const int32_t id = impl_->Find(stop);
    if (id >= 0 && impl_->vocabulary().Flags(id) & text::kAddedToken) ids.push_back(id);
  }
  return ids;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  return impl_->encoder().Encode(text, options);
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, const ChatText& chat,
                                const EncodeOptions& options) {
  return EncodeChat(tokenizer, chat.text, chat.own, options);
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, std::string_view text,
                                std::span<const TextSpan> own, EncodeOptions options) {
  size_t done = 0;
  for (const TextSpan span : own) {
    if (span.begin < done || span.begin >= span.end || span.end > text.size()) {
      ThrowInvalid("own",
                   "a span from " + std::to_string(span.begin) + " to " + std::to_string(span.end),
                   "spans of the text in order, none empty");
    }
    done = span.end;
  }
  options.parse_special_tokens = true;
  return tokenizer.impl().encoder().EncodeChat(text, options, own);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  Detokenizer detokenizer(*this, {.skip_special_tokens = skip_special_tokens});
  detokenizer.Step(ids, text);
  detokenizer.Finish(text);
  return text;
}

}  // namespace sluice
