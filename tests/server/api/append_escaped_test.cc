// Every byte, at every place of the eight that are looked at together.
#include <gtest/gtest.h>

#include "server/api/response/stream_writer.h"
#include "tests/server/api/parsed_json.h"

namespace sluice::server {
namespace {

std::string Escaped(std::string_view text) {
  std::string out = "before";
  AppendEscaped(out, text);
  EXPECT_TRUE(out.starts_with("before"));
  return out.substr(6);
}

TEST(AppendEscaped, EscapesQuotesBackslashesAndControlCharactersAlone) {
  EXPECT_EQ(Escaped("\"\\\n\r\t\b\f\x01\x1f\x7f/'<>&\u2028é😀"), R"(\"\\\n\r\t\b\f\u0001\u001f)"
                                                                 "\x7f/'<>&\u2028é😀");
  EXPECT_EQ(Escaped(""), "");
  EXPECT_EQ(Escaped(std::string_view("\0", 1)), "\\u0000");
}

// Bytes above 0x7F stand here alone, which no text has: that they are passed on does not depend on
// the ones beside them.
TEST(AppendEscaped, EveryByteAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_clean = byte >= 0x20 && c != '"' && c != '\\';
    const std::string alone = Escaped(std::string_view(&c, 1));
    EXPECT_EQ(alone == std::string(1, c), is_clean) << byte;
    for (size_t size = 1; size < 20; ++size) {
      for (size_t at = 0; at < size; ++at) {
        for (const char fill : {'a', '\xff', '!', '#'}) {
          std::string text(size, fill);
          text[at] = c;
          const std::string expected =
              std::string(at, fill) + alone + std::string(size - at - 1, fill);
          ASSERT_EQ(Escaped(text), expected) << byte << " at " << at << " of " << size;
        }
      }
    }
  }
}

TEST(AppendEscaped, AParserReadsBackTheText) {
  std::string text = test::HostileText();
  for (int i = 0; i < 9; ++i, text.push_back('a')) {
    EXPECT_EQ(test::ParsedJson("[\"" + Escaped(text + text) + "\"]").Text("/0"), text + text);
  }
}

}  // namespace
}  // namespace sluice::server
