// Encoding: added tokens as Hugging Face finds them (tests/fixtures/make_added_tokens.py), and time
// and memory that no file and no text can make more than linear.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
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

// tests/fixtures/make_steps.py
TEST(Steps, AreThoseOfHuggingFace) {
  simdjson::dom::parser parser;
  const simdjson::dom::element file = parser.load(std::string(SLUICE_FIXTURES) + "/steps.json");
  const std::string model = simdjson::minify(simdjson::dom::element(file.at(0)));
  for (const auto row : file.at(1).get_array()) {
    const std::string steps = ",\"normalizer\":" + simdjson::minify(row.at(0)) +
                              ",\"pre_tokenizer\":" + simdjson::minify(row.at(1));
    const Tokenizer tokenizer = Tokenizer::FromJson("{\"model\":" + model + steps + "}");
    for (const auto text_case : row.at(2).get_array()) {
      std::string pieces;
      for (const int32_t id : tokenizer.Encode(text_case.at(0))) {
        pieces.push_back(static_cast<char>(id));
      }
      EXPECT_EQ(pieces, std::string_view(text_case.at(1))) << steps << " " << text_case;
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
    EXPECT_TRUE(EndsWithin(20.0, [&] { tokenizer.Encode(letters); }));
  }
}

TEST(AddedTokens, TakeARunOfSpacesInLinearTime) {
  for (const auto& [flags, tokens] :
       {std::pair(R"("lstrip":true)", 1'000'000u), std::pair(R"("rstrip":true)", 1'000'000u),
        std::pair(R"("lstrip":true,"rstrip":true)", 1u)}) {
    const Tokenizer tokenizer = Tokenizer::FromJson(
        std::string(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":[)"
                    R"({"id":1,"content":" ","normalized":false,)") +
        flags + "}]}");
    EXPECT_TRUE(EndsWithin(20.0, [&, count = tokens] {
      EXPECT_EQ(tokenizer.Encode(std::string(1'000'000, ' ')).size(), count);
    }));
  }
}

std::string EncodeError(const std::string& json, std::string_view text) {
  try {
    Tokenizer::FromJson(json).Encode(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Of twelve steps each makes ten letters of one; or one step puts 60 KB in front of every part of
// the text, of which an added token makes a million.
// A prefix of all ids, longer than max_tokens; so the time depends on max_tokens, and not on the
// text.
TEST(Encoding, EndsEarlyAfterMoreTokensThanItMayGive) {
  const Tokenizer tokenizer =
      Tokenizer::FromFile(std::string(SLUICE_FIXTURES) + "/../../models/default/tokenizer.json");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "the king said to the old woman. ";
  const std::vector<int32_t> all = tokenizer.Encode(text);
  for (const int64_t most : {int64_t{0}, int64_t{1}, int64_t{100}, std::ssize(all) - 1}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.max_tokens = most});
    ASSERT_GT(std::ssize(ids), most);
    EXPECT_LE(std::ssize(ids), most + 16);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), all.begin()));
  }
  EXPECT_EQ(tokenizer.Encode(text, {.max_tokens = std::ssize(all)}), all);
  size_t longest = 0;
  for (const int32_t id : all)
    longest = std::max(longest, tokenizer.Decode({&id, 1}, false).size());
  EXPECT_GE(tokenizer.longest_token(), longest);
  EXPECT_LT(tokenizer.longest_token(), 1000u);
}

TEST(Normalizer, LetsATextGrowOnlySoMuch) {
  constexpr std::string_view kLimit = "at most 64 KiB and 32 bytes for each byte of the text";
  std::string steps;
  for (int i = 0; i < 12; ++i) {
    steps.append(i > 0 ? "," : "")
        .append(R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})");
  }
  const std::string start = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)";
  EXPECT_TRUE(EndsWithin(20.0, [&] {
    const std::string json =
        start + R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}}";
    EXPECT_NE(EncodeError(json, std::string(100'000, 'a')).find(kLimit), std::string::npos);
  }));
  EXPECT_TRUE(EndsWithin(20.0, [&] {
    const std::string json =
        start + R"("added_tokens":[{"id":1,"content":"b","normalized":false}],)" +
        R"("normalizer":{"type":"Prepend","prepend":")" + std::string(60'000, 'a') + "\"}}";
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text.append("ab");
    EXPECT_NE(EncodeError(json, text).find(kLimit), std::string::npos);
  }));
  // What grows most among what people use.
  std::string ligatures;
  for (int i = 0; i < 10'000; ++i) ligatures.append("\uFDFA");
  EXPECT_EQ(EncodeError(start + R"("normalizer":{"type":"Sequence","normalizers":)"
                                R"([{"type":"NFKC"},{"type":"ByteLevel"}]}})",
                        ligatures),
            "");
}

TEST(WordPiece, TakesNoLongerForOverlappingTokens) {
  const std::string most(10'000, 'a');
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(
      {{"[UNK]"}, {"a"}, {"##a"}, {"##" + most + "b"}, {most + "b"}, {"##" + most}}, kWordPieceJson,
      R"("type":"WordPiece","unk_token":"[UNK]","max_input_chars_per_word":10000000)"));
  EXPECT_TRUE(EndsWithin(20.0, [&] {
    const std::vector<int32_t> ids = tokenizer.Encode(std::string(1'000'000, 'a'));
    EXPECT_EQ(ids.size(), 1u + 99 + 9'999);
    EXPECT_EQ(ids[1], 5);
    EXPECT_EQ(ids.back(), 2);
  }));
}

// Words of a text without words are encoded on their own only where no merge goes over a space
// mark, and what is unknown on both sides of one is still one token when it fuses.
TEST(Bpe, MergesOverSpaceMarksWhereItMay) {
  const std::string rest =
      R"(,"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  const auto ids = [&](const std::vector<TestToken>& tokens, const std::string& merges,
                       std::string_view text) {
    return Tokenizer::FromJson(
               TokenizerJson(
                   tokens, kGemmaJson,
                   R"("type":"BPE","fuse_unk":true,"unk_token":"?","merges":[)" + merges + "]",
                   rest))
        .Encode(text);
  };
  using Ids = std::vector<int32_t>;
  const std::vector<TestToken> words = {{"?"}, {"a"}, {"b"}, {"▁"}, {"▁a"}, {"▁▁"}, {"▁▁a"}};
  const std::string merges = R"("▁ a","▁ ▁","▁▁ a")";
  EXPECT_EQ(ids(words, merges, "a ab a   a"), (Ids{1, 4, 2, 4, 5, 4}));
  EXPECT_EQ(ids(words, merges, "xx yy"), (Ids{0, 3, 0}));
  const std::vector<TestToken> phrases = {{"?"}, {"a"}, {"b"}, {"▁"}, {"▁a"}, {"b▁a"}};
  EXPECT_EQ(ids(phrases, R"("▁ a","b ▁a")", "ab ab a"), (Ids{1, 5, 5}));
  EXPECT_EQ(ids({{"?"}, {"a"}}, "", "ax xa"), (Ids{1, 0, 1}));
  // Without a token for what is unknown it is dropped, and its neighbours merge.
  const Tokenizer drops = Tokenizer::FromJson(
      TokenizerJson({{"a"}, {"▁"}, {"▁▁"}}, kGemmaJson, R"("type":"BPE","merges":["▁ ▁"])", rest));
  EXPECT_EQ(drops.Encode("a x a"), (Ids{0, 2, 0}));
}

// An id is a place in tables: one token with a large one must not take hundreds of megabytes.
TEST(Vocabulary, IdsAreOnlySoSparse) {
  const auto error_of = [](int64_t id) {
    return EncodeError(
        R"({"model":{"type":"BPE","vocab":{"a":)" + std::to_string(id) + R"(},"merges":[]}})", "a");
  };
  EXPECT_EQ(error_of(131'072), "");
  EXPECT_EQ(error_of(4'194'303), "model.vocab.id = 4194303 is not allowed: [0, 131087]");
}

}  // namespace
}  // namespace sluice::test
