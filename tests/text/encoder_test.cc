// Encoding: added tokens as Hugging Face finds them (tests/fixtures/make_added_tokens.py), and time
// and memory that no file and no text can make more than linear.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "sluice/error.hpp"
#include "sluice/tokenizer.hpp"
#include "tests/text/timing.h"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

std::vector<int32_t> IdsOf(simdjson::dom::element list) {
  std::vector<int32_t> ids;
  for (const auto id : list.get_array()) ids.push_back(static_cast<int32_t>(int64_t{id}));
  return ids;
}

TEST(AddedTokens, AreThoseOfHuggingFace) {
  const char* other = std::getenv("SLUICE_ADDED_TOKENS");  // more of them, from the same script
  simdjson::dom::parser parser;
  const simdjson::dom::element rows = parser.load(
      other != nullptr ? std::string(other) : std::string(SLUICE_FIXTURES) + "/added_tokens.json");
  for (const auto row : rows.get_array()) {
    const std::string json = simdjson::minify(simdjson::dom::element(row.at(0)));
    const Tokenizer tokenizer = Tokenizer::FromJson(json);
    for (const auto text_case : row.at(1).get_array()) {
      const std::string_view text = text_case.at(0);
      for (const bool parses : {true, false}) {
        ASSERT_EQ(tokenizer.Encode(text, {.parse_special_tokens = parses}),
                  IdsOf(text_case.at(parses ? 1 : 2)))
            << json << "\n"
            << text_case << " parses " << parses;
      }
    }
  }
}

// A letter alone, and a long token of it that the text never completes or that begins everywhere.
TEST(AddedTokens, AreFoundInLinearTime) {
  const std::string letters(1'000'000, 'a');
  const std::string most(10'000, 'a');
  for (const std::vector<TestToken>& tokens :
       {std::vector<TestToken>{{"a"}, Added(most)},
        {{"a"}, Added(most + "b")},
        {{"a"}, Added("a"), Added(most + "b")},
        {{"a"}, Added("aa"), Added("b" + most), Added(most + "b")}}) {
    const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(tokens, kByteLevelJson));
    EXPECT_TRUE(EndsWithin(10.0, [&] { tokenizer.Encode(letters); }));
  }
}

TEST(AddedTokens, TakeARunOfSpacesInLinearTime) {
  for (const auto& [flags, count] :
       {std::pair(R"("lstrip":true)", 1'000'000u), std::pair(R"("rstrip":true)", 1'000'000u),
        std::pair(R"("lstrip":true,"rstrip":true)", 1u)}) {
    const Tokenizer tokenizer = Tokenizer::FromJson(
        std::string(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[)"
                    R"({"id":1,"content":" ","normalized":false,)") +
        flags + "}]}");
    EXPECT_TRUE(EndsWithin(10.0, [&] {
      EXPECT_EQ(tokenizer.Encode(std::string(1'000'000, ' ')).size(), count);
    }));
  }
}

}  // namespace
}  // namespace sluice::test
