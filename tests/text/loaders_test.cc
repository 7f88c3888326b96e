// Files of tokenizers: what they say is done or refused by name, and no file crashes a reader.
#include <gtest/gtest.h>

#include <functional>

#include "sluice/error.hpp"
#include "sluice/tokenizer.hpp"
#include "tests/text/vocabularies.h"
#include "text/normalize/utf8.h"

namespace sluice::test {
namespace {

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string JsonError(const std::string& json) {
  return ErrorOf([&] { Tokenizer::FromJson(json); });
}

std::string DecoderError(const std::string& decoder, std::vector<TestToken> tokens = {{"_"}}) {
  return JsonError(TokenizerJson(tokens, decoder));
}

TEST(TokenizerJson, KeepsIdsLiterally) {
  const Tokenizer tokenizer = Tokenizer::FromJson(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":7},"merges":[]},"decoder":{"type":"ByteLevel"},)"
      R"("added_tokens":[{"id":100257,"content":"<s>","special":true},)"
      R"({"id":7,"content":"b","special":false}]})");
  EXPECT_EQ(tokenizer.size(), 100258);
  EXPECT_EQ(tokenizer.Id("<s>"), 100257);
  EXPECT_EQ(tokenizer.Token(7), "b");
  EXPECT_EQ(tokenizer.Token(3), std::nullopt);
  EXPECT_EQ(tokenizer.Token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.Id("c"), std::nullopt);
  EXPECT_TRUE(tokenizer.IsSpecial(100257));
  EXPECT_FALSE(tokenizer.IsSpecial(7));
}

// vllm and llama.cpp both missed such stops: skipped tokens have no text to find them in.
TEST(TokenizerJson, StopsThatAreAddedTokensHaveIds) {
  const Tokenizer tokenizer = Tokenizer::FromJson(
      TokenizerJson({{"a"}, Special("<|end|>"), Added("<tool>")}, kByteLevelJson));
  EXPECT_EQ(tokenizer.StopTokenIds(std::vector<std::string>{"<tool>", "a", "b", "<|end|>"}),
            (std::vector<int32_t>{2, 1}));
}

TEST(TokenizerJson, RefusesTwoTokensOfOneId) {
  EXPECT_EQ(JsonError(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)"
                      R"("added_tokens":[{"id":0,"content":"<s>"}]})"),
            R"(added_tokens.id = 0 is not allowed: an id of one token, and it is "a")");
}

TEST(TokenizerJson, RefusesWhatNoTokenByTokenDecodingCanDo) {
  EXPECT_EQ(DecoderError(R"({"type":"CTC","pad_token":"<pad>"})"),
            "decoder.type = \"CTC\" is not allowed: ByteLevel, ByteFallback, Fuse, Strip, Replace, "
            "Metaspace, WordPiece, BPEDecoder or Sequence");
  EXPECT_NE(
      DecoderError(R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"WordPiece"}]})"), "");
  const std::string bytes = R"({"type":"ByteFallback"})";
  for (const std::string other :
       {R"({"type":"WordPiece"})", R"({"type":"Metaspace","replacement":"▁"})",
        R"({"type":"BPEDecoder"})"}) {
    for (const std::string& steps : {bytes + "," + other, other + "," + bytes}) {
      const std::string error = DecoderError(R"({"type":"Sequence","decoders":[)" + steps + "]}");
      EXPECT_NE(error.find("after"), std::string::npos) << steps << " " << error;
    }
  }
  EXPECT_NE(DecoderError(R"({"type":"Strip","content":"ab","start":1,"stop":0})"), "");
  EXPECT_NE(DecoderError(R"({"type":"Replace","pattern":{"Regex":"("},"content":""})"), "");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"type":"Sequence","decoders":[)";
  deep += R"({"type":"Fuse"})";
  for (int i = 0; i < 100; ++i) deep += "]}";
  EXPECT_NE(DecoderError(deep), "");
}

TEST(TokenizerJson, RefusesMalformedFiles) {
  for (const std::string json :
       {"", "{", "[]", "{}", R"({"model":1})", R"({"model":{"vocab":{"a":"b"}}})",
        R"({"model":{"vocab":{"a":-1}}})", R"({"model":{"vocab":{"a":4194304}}})",
        R"({"model":{"vocab":{"a":1.5}}})", R"({"model":{"vocab":[1]}})",
        R"({"model":{"type":7,"vocab":{}}},"decoder":{"type":7})",
        "{\"model\":{\"vocab\":{\"\xFF\":1}}}"}) {
    EXPECT_NE(JsonError(json), "") << json;
  }
  EXPECT_NE(JsonError(std::string(100000, '[')), "");
}

// What only encoding needs does not keep a model from being decoded.
// Of twelve steps, each makes ten letters of one.
TEST(TokenizerJson, TextOfATokenGrowsOnlySoMuch) {
  const auto steps = [](const std::string& pattern) {
    std::string made;
    for (int i = 0; i < 12; ++i) {
      made.append(i > 0 ? "," : "")
          .append(R"({"type":"Replace","pattern":{")" + pattern)
          .append(R"(":"a"},"content":"aaaaaaaaaa"})");
    }
    return made;
  };
  for (const char* pattern : {"String", "Regex"}) {
    EXPECT_EQ(
        DecoderError(R"({"type":"Sequence","decoders":[)" + steps(pattern) + "]}", {{"a"}}),
        "decoder = a token that grows to more than 65535 bytes is not allowed: at most 65535");
    EXPECT_NE(JsonError(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)"
                        R"("decoder":{"type":"ByteLevel"},)"
                        R"("added_tokens":[{"id":1,"content":"aa","normalized":true}],)"
                        R"("normalizer":{"type":"Sequence","normalizers":[)" +
                        steps(pattern) + "]}}")
                  .find("at most 64 KiB and 32 bytes for each byte of the text"),
              std::string::npos);
  }
}

TEST(TokenizerJson, HasOnlySoManySteps) {
  const auto list = [](const std::string& step, int count) {
    std::string made = step;
    for (int i = 1; i < count; ++i) made.append(",").append(step);
    return made;
  };
  EXPECT_EQ(
      DecoderError(R"({"type":"Sequence","decoders":[)" + list(R"({"type":"Fuse"})", 17) + "]}"),
      "decoder = 17 steps is not allowed: at most 16");
  const auto error_of = [&](const std::string& rest) {
    return ErrorOf([&] {
      Tokenizer::FromJson(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)" + rest + "}")
          .Encode("a");
    });
  };
  EXPECT_EQ(error_of(R"("normalizer":{"type":"Sequence","normalizers":[)" +
                     list(R"({"type":"NFC"})", 129) + "]}"),
            "normalizer = 129 steps is not allowed: at most 128");
  EXPECT_EQ(error_of(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                     list(R"({"type":"WhitespaceSplit"})", 33) + "]}"),
            "pre_tokenizer = 33 steps is not allowed: at most 32");
  EXPECT_EQ(error_of(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                     list(R"({"type":"ByteLevel"})", 5) + "]}"),
            "pre_tokenizer = 5 steps ByteLevel is not allowed: at most 4");
  EXPECT_EQ(error_of(R"("post_processor":{"type":"Sequence","processors":[)" +
                     list(R"({"type":"BertProcessing","sep":["a",0],"cls":["a",0]})", 513) + "]}"),
            "post_processor = 1026 ids is not allowed: at most 1024");
}

TEST(TokenizerJson, ErrorsAreUtf8) {
  std::string marks(57, 'a');
  for (int i = 0; i < 9; ++i) {
    const std::string shown = JsonError(R"({"model":")" + marks + "\u20ac\u20ac\u20ac" + R"("})");
    EXPECT_NE(shown, "");
    EXPECT_TRUE(text::IsUtf8(shown)) << shown;
    marks.pop_back();
  }
  // Both are the token 0.
  const std::string twice = ErrorOf([] { Tokenizer::FromTiktoken("/w== 0\nYQ== 0\n"); });
  EXPECT_NE(twice.find("\\xFF"), std::string::npos) << twice;
  EXPECT_TRUE(text::IsUtf8(twice));
}

TEST(TokenizerJson, RefusesToEncodeWithWhatItDoesNotKnow) {
  const auto error_of = [](const std::string& model, const std::string& rest) {
    const Tokenizer tokenizer =
        Tokenizer::FromJson(TokenizerJson({{"a"}, {"b"}, {"ab"}}, kByteLevelJson, model, rest));
    EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{0, 2}), "aab");
    return ErrorOf([&] { tokenizer.Encode("ab"); });
  };
  const std::string bpe = R"("type":"BPE","merges":["a b"])";
  EXPECT_EQ(error_of(bpe, ""), "");
  EXPECT_EQ(error_of(R"("type":"WordLevel")", ""),
            "model.type = \"WordLevel\" is not allowed: \"BPE\", \"Unigram\" or \"WordPiece\", to "
            "encode with");
  EXPECT_NE(error_of(R"("type":"Unigram")", ""), "");  // its vocabulary is a list
  EXPECT_NE(error_of(bpe, R"(,"normalizer":{"type":"Precompiled"})"), "");
  EXPECT_NE(error_of(bpe, R"(,"pre_tokenizer":{"type":"UnicodeScripts"})"), "");
  EXPECT_NE(error_of(R"("type":"BPE","merges":["a c"])", ""), "");
  EXPECT_NE(error_of(R"("type":"BPE","merges":["a b c"])", ""), "");
  EXPECT_NE(error_of(R"("type":"BPE","dropout":0.1,"merges":[])", ""), "");
}

TEST(TokenizerJson, TextMustBeUtf8) {
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson({{"a"}}, kByteLevelJson));
  EXPECT_EQ(ErrorOf([&] { tokenizer.Encode("ab\xE4\xBD"); }),
            "text = no UTF-8 at byte 2 is not allowed: UTF-8");
}

TEST(TokenizerJson, AnotherDecoderCanBeAskedFor) {
  const std::string json =
      TokenizerJson({{"Ġa"}, {"▁b"}}, R"({"type":"Metaspace","replacement":"▁"})");
  const std::vector<int32_t> ids = {0, 1};
  EXPECT_EQ(Tokenizer::FromJson(json).Decode(ids), "Ġa b");
  EXPECT_EQ(Tokenizer::FromJson(json, {.decoder = TokenDecoder::kByteLevel}).Decode(ids), " a▁b");
  EXPECT_EQ(Tokenizer::FromJson(json, {.decoder = TokenDecoder::kSentencePiece}).Decode(ids),
            "Ġa b");
  EXPECT_EQ(TokenDecoderByName("spm"), TokenDecoder::kSentencePiece);
  EXPECT_THROW(TokenDecoderByName("sp"), Error);
}

TEST(Tiktoken, RanksAreIds) {
  const SpecialToken special[] = {{"<|end|>", 5}};
  const std::string file = "YQ== 0\nYg== 1\nYWI= 2\r\n5L0= 3\n";
  const Tokenizer tokenizer =
      Tokenizer::FromTiktoken(file, {.pattern = R"(\S+|\s+)", .special_tokens = special});
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{0, 2, 3}), "aab\uFFFD");
  EXPECT_EQ(tokenizer.Encode("abba<|end|>"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(tokenizer.Encode("ab<|end|>", {.parse_special_tokens = true}),
            (std::vector<int32_t>{2, 5}));
  EXPECT_NE(ErrorOf([&] { Tokenizer::FromTiktoken(file).Encode("a"); }), "");
}

TEST(Tiktoken, SpecialTokensAreText) {
  for (const std::string_view text :
       {std::string_view(), std::string_view("\xFF"), std::string_view("\xE4\xBD")}) {
    const SpecialToken special[] = {{text, 5}};
    EXPECT_NE(ErrorOf([&] {
                Tokenizer::FromTiktoken("YQ== 0\n", {.special_tokens = special});
              }).find("special_tokens.text"),
              std::string::npos);
  }
}

TEST(Tiktoken, RefusesMalformedLines) {
  for (const std::string line : {"YQ==", "YQ== x", "YQ= 0", "Y!== 0", "YQ== -1", "YQ== 99999999",
                                 "YQ== 0\nYg== 0", "= 0", "==== 0", " 0", "YQ==  0"}) {
    EXPECT_NE(ErrorOf([&] { Tokenizer::FromTiktoken(line); }), "") << line;
  }
}

void AppendField(int number, std::string_view bytes, std::string& message) {
  message.push_back(static_cast<char>(number << 3 | 2));
  message.push_back(static_cast<char>(bytes.size()));
  message.append(bytes);
}

std::string PieceOf(std::string_view text, float score, char type) {
  std::string piece;
  AppendField(1, text, piece);
  piece.push_back(2 << 3 | 5);
  piece.append(reinterpret_cast<const char*>(&score), 4);
  piece.push_back(3 << 3);
  piece.push_back(type);
  return piece;
}

std::string SentencePieceModel() {
  std::string model;
  AppendField(1, PieceOf("<unk>", 0, 2), model);
  AppendField(1, PieceOf("<s>", 0, 3), model);
  AppendField(1, PieceOf("<0xE4>", 0, 6), model);
  AppendField(1, PieceOf("<0xBD>", 0, 6), model);
  AppendField(1, PieceOf("<0xA0>", 0, 6), model);
  AppendField(1, PieceOf("▁a", -1, 1), model);
  AppendField(1, PieceOf("ab", -0.5f, 1), model);
  AppendField(1, PieceOf("▁", -2, 1), model);
  AppendField(1, PieceOf("a", -3, 1), model);
  AppendField(1, PieceOf("b", -4, 1), model);
  AppendField(1, PieceOf("[USER]", 0, 4), model);
  AppendField(2, std::string("\x18\x02", 2), model);  // BPE
  return model;
}

TEST(SentencePiece, EncodesByScoresAndFallsBackToBytes) {
  const Tokenizer tokenizer = Tokenizer::FromSentencePiece(SentencePieceModel());
  EXPECT_EQ(tokenizer.Encode("ab  a"), (std::vector<int32_t>{1, 7, 6, 5}));  // "ab" comes first
  EXPECT_EQ(tokenizer.Encode("a你", {.add_special_tokens = false}),
            (std::vector<int32_t>{5, 2, 3, 4}));
  EXPECT_EQ(tokenizer.Encode("a[USER]", {.add_special_tokens = false}),
            (std::vector<int32_t>{5, 10}));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{1, 7, 6, 2, 3, 4, 5}), "ab你 a");
  EXPECT_TRUE(tokenizer.IsSpecial(0));
}

TEST(SentencePiece, PutsASpaceBehindTheTextWhereItsWordsEndWithOne) {
  std::string suffix;
  AppendField(2, std::string("\x18\x02\xC0\x01\x01", 5), suffix);
  const Tokenizer tokenizer = Tokenizer::FromSentencePiece(SentencePieceModel() + suffix);
  EXPECT_EQ(tokenizer.Encode("ab  b ", {.add_special_tokens = false}),
            (std::vector<int32_t>{6, 7, 9, 7}));
}

TEST(SentencePiece, DropsTheSpacesThatItsNormaliserWould) {
  const auto decoded = [](bool adds_one, bool removes_extra) {
    std::string options;
    AppendField(3, std::string({0x18, adds_one, 0x20, removes_extra}), options);
    const Tokenizer tokenizer = Tokenizer::FromSentencePiece(SentencePieceModel() + options);
    return tokenizer.Decode(std::vector<int32_t>{7, 7, 5, 5});
  };
  EXPECT_EQ(decoded(true, true), "a a");
  EXPECT_EQ(decoded(false, true), "a a");
  EXPECT_EQ(decoded(true, false), "  a a");
  EXPECT_EQ(decoded(false, false), "   a a");
}

// What SentencePiece 0.2 makes of the same ids: the text of an unknown is no piece's, so that its
// space stays where a text begins.
TEST(SentencePiece, AnUnknownHasItsSurface) {
  const auto decoded = [](const std::string& more, const std::vector<int32_t>& ids) {
    return Tokenizer::FromSentencePiece(SentencePieceModel() + more).Decode(ids, false);
  };
  EXPECT_EQ(decoded("", {0, 5}), " \u2047  a");
  EXPECT_EQ(decoded("", {5, 0, 0}), "a \u2047  \u2047 ");
  EXPECT_EQ(decoded("", {7, 0, 8}), " \u2047 a");
  const auto surface = [](std::string_view text) {
    std::string spec;
    spec.append("\xE2\x02", 2);  // unk_surface, 44
    spec.push_back(static_cast<char>(text.size()));
    std::string field;
    AppendField(2, spec.append(text), field);
    return field;
  };
  EXPECT_EQ(decoded(surface("<?>"), {5, 0, 8}), "a<?>a");
  EXPECT_EQ(decoded(surface(""), {5, 0, 8}), "aa");
  EXPECT_EQ(Tokenizer::FromSentencePiece(SentencePieceModel()).Token(0), "<unk>");
  EXPECT_NE(ErrorOf([&] { decoded(surface("\xFF"), {0}); }).find("unk_surface"), std::string::npos);
}

TEST(SentencePiece, RefusesToEncodeWithWhatItDoesNotKnow) {
  const auto error_of = [](const std::string& more) {
    const Tokenizer tokenizer = Tokenizer::FromSentencePiece(SentencePieceModel() + more);
    EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{5}), "a");
    return ErrorOf([&] { tokenizer.Encode("a"); });
  };
  std::string unused;
  AppendField(1, PieceOf("ba", -5, 5), unused);
  EXPECT_NE(error_of(unused).find("UNUSED"), std::string::npos);
  std::string type;
  AppendField(2, std::string("\x18\x03", 2), type);  // words
  EXPECT_EQ(error_of(type),
            "model_type = 3 is not allowed: 1 (unigram) or 2 (BPE), to encode with");
}

TEST(SentencePiece, RefusesEveryTruncation) {
  const std::string model = SentencePieceModel();
  for (size_t size = 0; size < model.size(); ++size) {
    ErrorOf([&] { Tokenizer::FromSentencePiece(model.substr(0, size)); });
  }
  EXPECT_NE(ErrorOf([] { Tokenizer::FromSentencePiece(""); }), "");
  EXPECT_NE(ErrorOf([] { Tokenizer::FromSentencePiece("\x0A\xFF\xFF\xFF\xFF\x7F"); }), "");
  EXPECT_NE(ErrorOf([] { Tokenizer::FromSentencePiece("\x0B"); }), "");
}

TEST(TokenizerFile, NamesTheFileThatCannotBeRead) {
  EXPECT_EQ(ErrorOf([] { Tokenizer::FromFile("/nowhere/tokenizer.json"); }),
            "path = \"/nowhere/tokenizer.json\" (No such file or directory) is not allowed: a file "
            "of at most 256 MiB that can be read");
}

}  // namespace
}  // namespace sluice::test
