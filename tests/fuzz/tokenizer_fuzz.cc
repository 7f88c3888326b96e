// Any bytes as a file of a tokenizer: an Error or a tokenizer, which decodes and encodes anything.
// The first byte says which format.
#include <string>

#include "sluice/detokenizer.hpp"
#include "sluice/error.hpp"
#include "tests/fuzz/bytes.h"

namespace sluice::fuzz {
namespace {

// Something of everything that a step looks for.
constexpr std::string_view kProbe =
    " a  aab<s>É e\u0301\u0323 \u1100\u1161 12 'S don't ab\r\n\tb▁ 中文😀\u200D\uFF21 x[U]\u2028";

Tokenizer Load(uint8_t format, std::string_view file) {
  switch (format % 3) {
    case 0:
      return Tokenizer::FromJson(file);
    case 1:
      return Tokenizer::FromSentencePiece(file);
    default:
      return Tokenizer::FromTiktoken(file, {.pattern = R"(\s+|\w+|[^\s\w]+)"});
  }
}

void Run(std::string_view data) {
  if (data.empty()) return;
  try {
    const Tokenizer tokenizer = Load(static_cast<uint8_t>(data[0]), data.substr(1));
    std::vector<int32_t> ids = {-1, tokenizer.size()};
    for (int32_t id = 0; id < std::min(tokenizer.size(), 64); ++id) ids.push_back(id);
    for (const bool skips : {true, false}) {
      // The same text at once and token by token.
      Detokenizer detokenizer(tokenizer, {.skip_special_tokens = skips});
      std::string text;
      for (const int32_t id : ids) detokenizer.Step({&id, 1}, text);
      detokenizer.Finish(text);
      Check(text == tokenizer.Decode(ids, skips));
      tokenizer.Encode(text, {.parse_special_tokens = skips});
      tokenizer.Encode(kProbe, {.parse_special_tokens = skips});
    }
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sluice::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
