// Ids to text, token by token: the cases where serving systems went wrong, one by one. Every text
// here is what Hugging Face tokenizers, Unicode's rules or both make of the same tokens.
#include "sluice/detokenizer.hpp"

#include <gtest/gtest.h>

#include "sluice/error.hpp"
#include "tests/text/vocabularies.h"

namespace sluice::test {
namespace {

using namespace std::string_literals;  // NOLINT(google-build-using-namespace): tokens have NULs

constexpr int32_t kUnknown = 999999;

struct Stream {
  std::vector<std::string> deltas;  // those that are not empty; the last may be Finish's
  int64_t unknown_ids = 0;
  int64_t invalid_bytes = 0;
};

// Each id in a step of its own.
Stream Streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                const DetokenizerOptions& options = {}, const std::vector<int32_t>& prompt = {},
                Incomplete incomplete = Incomplete::kReplace) {
  Detokenizer detokenizer(tokenizer, options, prompt);
  Stream stream;
  for (size_t i = 0; i <= ids.size(); ++i) {
    std::string text;
    if (i < ids.size()) {
      detokenizer.Step({&ids[i], 1}, text);
    } else {
      detokenizer.Finish(text, incomplete);
    }
    if (!text.empty()) stream.deltas.push_back(text);
  }
  stream.unknown_ids = detokenizer.unknown_ids();
  stream.invalid_bytes = detokenizer.invalid_bytes();
  return stream;
}

using Deltas = std::vector<std::string>;

// Tokens as a list of byte strings, ids in their order.
Deltas RunBytes(const std::vector<std::string>& tokens,
                Incomplete incomplete = Incomplete::kReplace) {
  std::vector<TestToken> vocabulary;
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    ids.push_back(static_cast<int32_t>(ids.size()));
    vocabulary.push_back({token});
  }
  // A token may come twice; its id is then the first one's.
  std::vector<TestToken> distinct;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    size_t same = 0;
    while (same < distinct.size() && distinct[same].text != vocabulary[i].text) ++same;
    if (same == distinct.size()) distinct.push_back(vocabulary[i]);
    ids[i] = static_cast<int32_t>(same);
  }
  return Streamed(ByteLevelTokenizer(distinct), ids, {}, {}, incomplete).deltas;
}

TEST(DetokenizerBytes, CharactersComeOutWhole) {
  EXPECT_EQ(RunBytes({"\xE4\xBD", "\xA0", "!"}), (Deltas{"你", "!"}));
  EXPECT_EQ(RunBytes({"\xF0", "\x9F", "\x98", "\x80"}), (Deltas{"😀"}));
  EXPECT_EQ(RunBytes({"ok", "\xF0\x9F\x98"}), (Deltas{"ok", "\uFFFD"}));
  EXPECT_EQ(RunBytes({"ok", "\xF0\x9F\x98"}, Incomplete::kDrop), (Deltas{"ok"}));
  EXPECT_EQ(RunBytes({"\xE4\xBD", "A"}), (Deltas{"\uFFFDA"}));
  EXPECT_EQ(RunBytes({"\xED\xA0", "\x80"}), (Deltas{"\uFFFD\uFFFD", "\uFFFD"}));
  EXPECT_EQ(RunBytes({"\xE2\x82", "\xE2\x82\xAC"}), (Deltas{"\uFFFD€"}));
  EXPECT_EQ(RunBytes({"a", "\x80", "\xBF", "b"}), (Deltas{"a", "\uFFFD", "\uFFFD", "b"}));
  EXPECT_EQ(RunBytes({"a", "\0"s, "b"}), (Deltas{"a", "\0"s, "b"}));
}

// A stream that waits for more behind a U+FFFD of the vocabulary itself freezes.
TEST(DetokenizerBytes, ReplacementCharacterOfTheVocabularyIsOrdinaryText) {
  EXPECT_EQ(RunBytes({"a", "\uFFFD", "b"}), (Deltas{"a", "\uFFFD", "b"}));
}

TEST(DetokenizerBytes, EachMaximalSubpartIsOneReplacement) {
  const auto text = [](const std::string& bytes) {
    std::string joined;
    for (const std::string& delta : RunBytes({bytes})) joined += delta;
    return joined;
  };
  EXPECT_EQ(text("\xE4\xBD\xA0\xFF"), "你\uFFFD");
  EXPECT_EQ(text("\xF0\x9F\x98\x80\xE2\x82"), "😀\uFFFD");
  EXPECT_EQ(text("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(text("\xF8\x88\x80\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(text("\xF0\x80\x80\x41"), "\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(text("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(text("\xE1\x80\xC3\xA9"), "\uFFFDé");
  EXPECT_EQ(text("\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(DetokenizerBytes, StepsOfManyTokens) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"a"}, {"b"}, {"\xE4"}, {"\xBD"}, {"\xA0"}});
  Detokenizer detokenizer(tokenizer);
  std::string text;
  std::vector<TokenEnd> ends(2);
  detokenizer.Step(std::vector<int32_t>{0, 1}, text, ends);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(ends[0].text, 1u);
  EXPECT_EQ(ends[1].text, 2u);
  detokenizer.Step(std::vector<int32_t>{2, 3}, text, ends);
  EXPECT_EQ(ends[0].text, 2u);
  EXPECT_EQ(ends[1].text, 2u);
  detokenizer.Step(std::vector<int32_t>{4}, text);
  EXPECT_EQ(text, "ab你");
  EXPECT_THROW(detokenizer.Step(std::vector<int32_t>{0}, text, ends), Error);
}

// Of how many tokens some text is not out, behind each of them.
TEST(DetokenizerBytes, TokensAreOpenUntilTheirLastByteIsOut) {
  const Tokenizer tokenizer = ByteLevelTokenizer(
      {{"a"}, {"\xE4"}, {"\xBD"}, {"\xA0"}, {"\xE4\xBD"}, {"\xA0\xE4"}, Special("<s>")});
  const auto open = [&](const std::vector<int32_t>& ids, const std::vector<int32_t>& prompt = {}) {
    Detokenizer detokenizer(tokenizer, {}, prompt);
    EXPECT_EQ(detokenizer.open_tokens(), 0u);
    std::vector<TokenEnd> ends(ids.size());
    std::string text;
    detokenizer.Step(ids, text, ends);
    EXPECT_EQ(detokenizer.open_tokens(), ends.back().open_tokens);
    std::vector<size_t> counts;
    for (const TokenEnd& end : ends) counts.push_back(end.open_tokens);
    return counts;
  };
  using Counts = std::vector<size_t>;
  EXPECT_EQ(open({0, 1, 2, 3, 0}), (Counts{0, 1, 2, 0, 0}));
  EXPECT_EQ(open({6, 1, 6, kUnknown, 2, 0}), (Counts{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(open({1, 4, 5, 2, 3}), (Counts{1, 1, 1, 2, 0}));  // the first never becomes a character
  EXPECT_EQ(open({2, 3, 0}, {0, 1}), (Counts{1, 0, 0}));
  EXPECT_EQ(open({6, 2, 0}, {0, 1}), (Counts{1, 2, 0}));
}

TEST(DetokenizerSpecial, SkippedTokensLeaveTheBytesAlone) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"\xE4\xBD"}, Special("<|im_start|>"), {"\xA0"}});
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 2}).deltas, (Deltas{"你"}));
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 2}, {.skip_special_tokens = false}).deltas,
            (Deltas{"\uFFFD<|im_start|>", "\uFFFD"}));
}

TEST(DetokenizerSpecial, BytesThatAreNoUtf8AreCounted) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"\xE4\xBD"}, {"\xA0"}, {"A"}, {"\xFF"}});
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 2}).invalid_bytes, 0);
  EXPECT_EQ(Streamed(tokenizer, {0, 2}).invalid_bytes, 2);
  EXPECT_EQ(Streamed(tokenizer, {1, 3, 2}).invalid_bytes, 2);
  for (const Incomplete incomplete : {Incomplete::kReplace, Incomplete::kDrop}) {
    EXPECT_EQ(Streamed(tokenizer, {2, 0}, {}, {}, incomplete).invalid_bytes, 2);
  }
  // What the prompt had of it is the prompt's.
  EXPECT_EQ(Streamed(tokenizer, {2}, {}, {3, 2}).invalid_bytes, 0);
}

TEST(DetokenizerSpecial, UnknownIdsAreCountedAndHaveNoText) {
  const Tokenizer tokenizer = ByteLevelTokenizer({{"A"}});
  for (const int32_t id : {kUnknown, -1, INT32_MAX, INT32_MIN, 1}) {
    const Stream stream = Streamed(tokenizer, {id, 0});
    EXPECT_EQ(stream.deltas, (Deltas{"A"}));
    EXPECT_EQ(stream.unknown_ids, 1);
  }
}

// Added tokens go through the decoder: as bytes when the alphabet has all of their characters.
TEST(DetokenizerSpecial, AddedTokensAreDecodedAsTheAlphabetSays) {
  const Tokenizer tokenizer = ByteLevelTokenizer(
      {{"a"}, Added(" sp "), Special("<｜end▁of▁sentence｜>"), Added("é!"), Added("<tool>")});
  EXPECT_EQ(Streamed(tokenizer, {1}).deltas, (Deltas{" sp "}));
  EXPECT_EQ(Streamed(tokenizer, {2}, {.skip_special_tokens = false}).deltas,
            (Deltas{"<｜end▁of▁sentence｜>"}));
  EXPECT_EQ(Streamed(tokenizer, {3}).deltas, (Deltas{"\uFFFD!"}));
  EXPECT_EQ(Streamed(tokenizer, {4}).deltas, (Deltas{"<tool>"}));
}

TEST(DetokenizerPrompt, CharacterThatBeginsInThePromptComesOutOnceAndAlone) {
  const Tokenizer tokenizer =
      ByteLevelTokenizer({{"Hello"}, {"\xE4"}, {"\xBD"}, {"\xA0"}, {"!"}, Special("<s>")});
  EXPECT_EQ(Streamed(tokenizer, {3, 4}, {}, {0, 1, 2}).deltas, (Deltas{"你", "!"}));
  EXPECT_EQ(Streamed(tokenizer, {4}, {}, {0, 1, 2}).deltas, (Deltas{"\uFFFD!"}));
  EXPECT_EQ(Streamed(tokenizer, {3}, {}, {0, 1, 5, kUnknown, 2, 5}).deltas, (Deltas{"你"}));
  EXPECT_EQ(Streamed(tokenizer, {3}, {}, {1, 2, 3, 3, 3, 1, 2}).deltas, (Deltas{"你"}));
  EXPECT_EQ(Streamed(tokenizer, {3, 3}, {}, {1, 2, 3}).deltas, (Deltas{"\uFFFD", "\uFFFD"}));
}

class DetokenizerSentencePiece : public testing::Test {
 protected:
  DetokenizerSentencePiece() {
    tokens_ = {Special("<s>"), {"▁Hello"}, {"▁world"}, {"!"}, {"▁"}};
    for (const std::string name : {"E4", "BD", "A0", "FF", "20", "F0", "9F", "80"}) {
      tokens_.push_back({"<0x" + name + ">"});
    }
  }
  enum : int32_t { kBos, kHello, kWorld, kBang, kSpace, kE4, kBd, kA0, kFf, k20, kF0, k9f, k80 };

  Deltas DeltasOf(std::string_view decoder, const std::vector<int32_t>& ids,
                  const std::vector<int32_t>& prompt = {}, bool skips = true,
                  Utf8Errors errors = Utf8Errors::kMaximal) {
    return Streamed(Tokenizer::FromJson(TokenizerJson(tokens_, decoder)), ids,
                    {.skip_special_tokens = skips, .utf8_errors = errors}, prompt)
        .deltas;
  }

  std::vector<TestToken> tokens_;
};

TEST_F(DetokenizerSentencePiece, OnlyATextDropsItsFirstSpace) {
  EXPECT_EQ(DeltasOf(kLlama2Json, {kHello, kWorld}), (Deltas{"Hello", " world"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kHello, kWorld}, {kBos}), (Deltas{"Hello", " world"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kHello}, {kBos}, false), (Deltas{" Hello"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kWorld, kBang}, {kBos, kHello}), (Deltas{" world", "!"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kSpace, kHello}), (Deltas{" Hello"}));
  EXPECT_EQ(DeltasOf(kGemmaJson, {kHello, kWorld}), (Deltas{" Hello", " world"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {k20, kHello}), (Deltas{" Hello"}));
}

TEST_F(DetokenizerSentencePiece, BytesMakeCharacters) {
  for (const std::string_view decoder : {kLlama2Json, kGemmaJson}) {
    EXPECT_EQ(DeltasOf(decoder, {kE4, kBd, kA0, kBang}, {kHello}), (Deltas{"你", "!"}));
  }
  EXPECT_EQ(DeltasOf(kLlama2Json, {kE4, kBd, kA0, kFf, kBang}), (Deltas{"你", "\uFFFD", "!"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kE4, kBd, kBang}), (Deltas{"\uFFFD!"}));
  EXPECT_EQ(DeltasOf(kLlama2Json, {kF0, k9f}), (Deltas{"\uFFFD"}));
}

// The only way to equal a full decode of Hugging Face's: what a run means is not known before it
// has ended.
TEST_F(DetokenizerSentencePiece, HfRunHoldsARunAndReplacesEachByteOfABadOne) {
  const auto run = [&](const std::vector<int32_t>& ids, const std::vector<int32_t>& prompt = {}) {
    return DeltasOf(kGemmaJson, ids, prompt, true, Utf8Errors::kHfRun);
  };
  const std::string four = "\uFFFD\uFFFD\uFFFD\uFFFD";
  EXPECT_EQ(run({kE4, kBd, kA0, kFf, kBang}), (Deltas{four + "!"}));
  EXPECT_EQ(run({kE4, kBd, kA0, kBang}), (Deltas{"你!"}));
  EXPECT_EQ(run({kE4, kBd}), (Deltas{"\uFFFD\uFFFD"}));
  EXPECT_EQ(run({kE4, kBos, kBd, kA0}), (Deltas{"你"}));
  EXPECT_EQ(run({kA0, kBang}, {kHello, kE4, kBd}), (Deltas{"你!"}));
  EXPECT_EQ(run(std::vector<int32_t>(100000, k80)).size(), 1u);
}

TEST_F(DetokenizerSentencePiece, TokensOfARunAreOpenUntilItEnds) {
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(tokens_, kGemmaJson));
  Detokenizer detokenizer(tokenizer, {.utf8_errors = Utf8Errors::kHfRun});
  const std::vector<int32_t> ids = {kBang, kE4, kBd, kBos, kA0, kFf, kHello, kFf};
  std::vector<TokenEnd> ends(ids.size());
  std::string text;
  detokenizer.Step(ids, text, ends);
  const std::vector<size_t> expected = {0, 1, 2, 3, 4, 5, 0, 1};
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ends[i].open_tokens, expected[i]) << i;
  detokenizer.Finish(text);
  EXPECT_EQ(detokenizer.open_tokens(), 0u);
}

TEST_F(DetokenizerSentencePiece, HfRunHoldsNoMoreThanItsLimit) {
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(tokens_, kGemmaJson));
  Detokenizer detokenizer(tokenizer, {.utf8_errors = Utf8Errors::kHfRun});
  std::string text;
  for (int i = 0; i < 10000; ++i) detokenizer.Step(std::vector<int32_t>{kE4, kBd, kA0}, text);
  EXPECT_GE(text.size() + kLongestByteRun, 30000u);
  detokenizer.Finish(text);
  EXPECT_EQ(text.size(), 30000u);
}

TEST(DetokenizerDecoders, WordPiece) {
  const std::vector<TestToken> tokens = {{"hello"}, {"##world"}, {"!"}, {"do"},       {"not"},
                                         {"##a"},   {"."},       {"b"}, Added("<x>"), Added("<y>")};
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(tokens, kWordPieceJson));
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 2, 3, 4}).deltas,
            (Deltas{"hello", "world", "!", " do", " not"}));
  EXPECT_EQ(Streamed(tokenizer, {5, 6, 7}).deltas, (Deltas{"##a", ".", " b"}));
  EXPECT_EQ(Streamed(tokenizer, {7}, {}, {0}).deltas, (Deltas{" b"}));
  EXPECT_EQ(Streamed(tokenizer, {8, 9, 7}).deltas, (Deltas{"<x>", " <y>", " b"}));
  EXPECT_EQ(Streamed(tokenizer, {8, 9, 7}, {.spaces_between_special_tokens = false}).deltas,
            (Deltas{"<x>", "<y>", " b"}));
}

TEST(DetokenizerDecoders, MetaspaceDropsEveryMarkOfTheFirstToken) {
  const std::vector<TestToken> tokens = {{"▁▁a"}, {"▁"}, {"▁b"}};
  const auto run = [&](std::string_view scheme) {
    const std::string decoder =
        std::string(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":")")
            .append(scheme)
            .append("\"}");
    return Streamed(Tokenizer::FromJson(TokenizerJson(tokens, decoder)), {0, 1, 2}).deltas;
  };
  EXPECT_EQ(run("always"), (Deltas{"a", " ", " b"}));
  EXPECT_EQ(run("first"), (Deltas{"a", " ", " b"}));
  EXPECT_EQ(run("never"), (Deltas{"  a", " ", " b"}));
}

TEST(DetokenizerDecoders, BpeSuffixIsASpaceUnlessTheTextEnds) {
  const std::vector<TestToken> tokens = {{"he"}, {"llo</w>"}, {"you</w>"}, {"</w>"}};
  const Tokenizer tokenizer =
      Tokenizer::FromJson(TokenizerJson(tokens, R"({"type":"BPEDecoder","suffix":"</w>"})"));
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 2}).deltas, (Deltas{"he", "llo", " you"}));
  EXPECT_EQ(Streamed(tokenizer, {1, 3, 0}).deltas, (Deltas{"llo", " ", " he"}));
}

// Whether a suffix is a space depends on whether another token comes, so what follows it waits.
TEST(Detokenizer, ASuffixMayBeAnywhereInAToken) {
  const Tokenizer tokenizer = Tokenizer::FromJson(
      TokenizerJson({{"a"}, {"Ġb"}, {"cĠdĠ"}, {"Ġ"}}, R"({"type":"BPEDecoder","suffix":"Ġ"})"));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{0, 1}), "ab");
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{1, 0}), " ba");
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{2, 2}), "c d cd");
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{3, 3, 3}), "  ");
  EXPECT_EQ(Streamed(tokenizer, {0, 2, 0}).deltas, (Deltas{"a", "c", " d a"}));
  Detokenizer detokenizer(tokenizer);
  std::string text;
  const int32_t id = 2;
  detokenizer.Step({&id, 1}, text);
  EXPECT_EQ(detokenizer.open_tokens(), 1u);  // its own text is not out
  // The prompt's text does not come out, the space after its last word does.
  const std::vector<int32_t> prompt = {0, 2};
  Detokenizer after(tokenizer, {}, prompt);
  std::string more;
  const int32_t next = 0;
  after.Step({&next, 1}, more);
  EXPECT_EQ(more, " a");
}

TEST(Detokenizer, StepsAfterASuffixSeeItsSpace) {
  const auto decoded = [](const std::string& step, const std::vector<int32_t>& ids) {
    const std::string steps = R"({"type":"Sequence","decoders":[{"type":"BPEDecoder"},)";
    return Tokenizer::FromJson(TokenizerJson({{"a</w>"}, {"b_"}}, steps + step + "]}")).Decode(ids);
  };
  EXPECT_EQ(decoded(R"({"type":"Replace","pattern":{"String":" "},"content":"-"})", {0, 0}), "a-a");
  EXPECT_EQ(decoded(R"({"type":"Strip","content":" ","start":0,"stop":1})", {0, 0}), "aa");
  EXPECT_EQ(decoded(R"({"type":"WordPiece"})", {0, 1}), "a  b_");
}

TEST(DetokenizerDecoders, NothingMatchesInAnEmptyToken) {
  const std::string decoder = R"({"type":"Replace","pattern":{"Regex":" *"},"content":"-"})";
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson({{""}, {"a"}}, decoder));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{0, 1, 0}), "-a-");
}

TEST(DetokenizerDecoders, StripAtTheEndHoldsWhatMayBeTheEnd) {
  const std::string decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)"
                              R"({"type":"Strip","content":"_","start":1,"stop":2}]})";
  const Tokenizer tokenizer =
      Tokenizer::FromJson(TokenizerJson({{"_"}, {"a"}, {"b__"}, {"___"}}, decoder));
  EXPECT_EQ(Streamed(tokenizer, {0, 1, 0}).deltas, (Deltas{"a"}));
  EXPECT_EQ(Streamed(tokenizer, {1, 0, 1}).deltas, (Deltas{"a", "_a"}));
  EXPECT_EQ(Streamed(tokenizer, {1, 0, 0, 0, 0}).deltas, (Deltas{"a", "_", "_"}));
  EXPECT_EQ(Streamed(tokenizer, {2, 3}).deltas, (Deltas{"b", "___"}));
  EXPECT_EQ(Streamed(tokenizer, {3, 3, 1}, {}, {1, 0}).deltas, (Deltas{"__", "___", "__a"}));
}

TEST(DetokenizerDecoders, WithoutADecoderTokensHaveASpaceBetweenThem) {
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson({{"a"}, {"b"}}, "null"));
  EXPECT_EQ(Streamed(tokenizer, {0, 1}).deltas, (Deltas{"a", " b"}));
}

}  // namespace
}  // namespace sluice::test
