// Small tokenizers for tests, made from the tokens that a test names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/tokenizer.hpp"
#include "text/byte_alphabet.h"

namespace sluice::test {

struct TestToken {
  std::string text;
  bool is_added = false;
  bool is_special = false;
};
inline TestToken Special(std::string text) { return {std::move(text), true, true}; }
inline TestToken Added(std::string text) { return {std::move(text), true, false}; }

inline std::string JsonText(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || c == '"' || c == '\\') {
      json.append("\\u00").append({kDigits[byte >> 4], kDigits[byte & 15]});
    } else {
      json.push_back(c);
    }
  }
  return json.append("\"");
}

// A tokenizer.json whose ids follow the list. `decoder` and the others are JSON.
inline std::string TokenizerJson(const std::vector<TestToken>& tokens, std::string_view decoder,
                                 std::string_view model = R"("type":"BPE","merges":[])",
                                 std::string_view rest = "") {
  std::string vocab;
  std::string added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const TestToken& token = tokens[id];
    std::string& to = token.is_added ? added : vocab;
    if (!to.empty()) to.append(",");
    if (token.is_added) {
      to.append("{\"id\":").append(std::to_string(id)).append(",\"content\":");
      to.append(JsonText(token.text)).append(",\"special\":");
      to.append(token.is_special ? "true" : "false").append(",\"normalized\":false}");
    } else {
      to.append(JsonText(token.text)).append(":").append(std::to_string(id));
    }
  }
  return std::string("{\"model\":{")
      .append(model)
      .append(",\"vocab\":{")
      .append(vocab)
      .append("}},\"added_tokens\":[")
      .append(added)
      .append("],\"decoder\":")
      .append(decoder)
      .append(rest)
      .append("}");
}

inline constexpr std::string_view kByteLevelJson = R"({"type":"ByteLevel"})";
inline constexpr std::string_view kLlama2Json =
    R"({"type":"Sequence","decoders":[)"
    R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},)"
    R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
inline constexpr std::string_view kGemmaJson =
    R"({"type":"Sequence","decoders":[)"
    R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},)"
    R"({"type":"Fuse"}]})";
inline constexpr std::string_view kWordPieceJson =
    R"({"type":"WordPiece","prefix":"##","cleanup":true})";

// Tokens of the model are the bytes they stand for, added ones their text.
inline std::string ByteLevelTokenizerJson(std::vector<TestToken> tokens) {
  for (TestToken& token : tokens) {
    if (token.is_added) continue;
    std::string spelled;
    text::AppendInByteAlphabet(token.text, spelled);
    token.text = spelled;
  }
  return TokenizerJson(tokens, kByteLevelJson);
}
inline Tokenizer ByteLevelTokenizer(const std::vector<TestToken>& tokens) {
  return Tokenizer::FromJson(ByteLevelTokenizerJson(tokens));
}

}  // namespace sluice::test
