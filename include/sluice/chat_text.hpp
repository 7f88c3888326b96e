// The text of a conversation, and which parts of it the chat template wrote itself.
//
// Only those parts may spell special tokens: a message that has the text "<|im_start|>" is text to
// the model, and ends no turn. See docs/chat-templates.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice {

struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
};

struct ChatText {
  std::string text = {};
  // Bytes that the template wrote itself: in order, apart from each other, none empty. Of a text
  // with an unclear origin none is.
  std::vector<TextSpan> own = {};
};

// Ids of the text: as Tokenizer::Encode with parse_special_tokens, except that a special token
// counts only where each of its bytes is the template's own.
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, const ChatText& chat,
                                const EncodeOptions& options = {.add_special_tokens = false});
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, std::string_view text,
                                std::span<const TextSpan> own,
                                EncodeOptions options = {.add_special_tokens = false});

}  // namespace sluice
