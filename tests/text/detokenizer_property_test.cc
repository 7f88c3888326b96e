// For random ids and every way to cut them into steps, the stream is what decoding everything at
// once gives, by an oracle that decodes bytes as Unicode says; and a step takes no memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/detokenizer.hpp"
#include "sluice/stop.hpp"
#include "tests/support/counting_allocator.h"
#include "tests/support/random.h"
#include "tests/text/vocabularies.h"
#include "text/utf8.h"

namespace sluice::test {
namespace {

// Substitution of maximal subparts, written from Unicode's table 3-7: at each place the longest
// prefix of a well-formed sequence is looked for.
std::string Lossy(std::string_view bytes) {
  constexpr struct {
    int from, to;
    int second_low, second_high;
    size_t length;
  } kRows[] = {
      {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
      {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
      {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  std::string text;
  while (!bytes.empty()) {
    size_t good = 0;
    size_t length = 1;
    for (const auto& row : kRows) {
      const int first = static_cast<uint8_t>(bytes[0]);
      if (first < row.from || first > row.to) continue;
      length = row.length;
      good = 1;
      while (good < length && good < bytes.size()) {
        const int next = static_cast<uint8_t>(bytes[good]);
        const int low = good == 1 ? row.second_low : 0x80;
        const int high = good == 1 ? row.second_high : 0xBF;
        if (next < low || next > high) break;
        ++good;
      }
    }
    if (good == length) {
      text.append(bytes.substr(0, good));
    } else {
      text.append("\uFFFD");
    }
    bytes.remove_prefix(std::max<size_t>(good, 1));
  }
  return text;
}

struct ByteVocabulary {
  std::vector<TestToken> tokens;
  std::vector<std::string> bytes;  // of each token
};

// Every byte, pieces of characters, whole texts, added tokens.
ByteVocabulary MakeVocabulary(Random& random) {
  ByteVocabulary made;
  const std::string text = "aé中😀\uFFFD <b>";
  std::vector<std::string> seen;
  const auto add = [&](std::string bytes, bool is_special) {
    if (bytes.empty() || std::count(seen.begin(), seen.end(), bytes) > 0) return;
    seen.push_back(bytes);
    made.tokens.push_back({bytes, is_special, is_special});
    made.bytes.push_back(bytes);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)), false);
  for (int i = 0; i < 200; ++i) {
    const auto begin = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
    add(text.substr(begin, static_cast<size_t>(random.Between(1, 8))), false);
  }
  for (int i = 0; i < 40; ++i) {
    std::string bytes;
    for (int64_t n = random.Between(1, 5); n > 0; --n) {
      bytes.push_back(static_cast<char>(random.Between(0x7E, 0xFF)));
    }
    add(bytes, false);
  }
  add("<|中|>", true);
  add("<|end|>", true);
  return made;
}

std::string Decoded(Detokenizer detokenizer, std::span<const int32_t> ids, Random& random,
                    size_t most) {
  std::string text;
  for (size_t at = 0; at < ids.size();) {
    const size_t size = std::min(
        ids.size() - at, static_cast<size_t>(random.Between(0, static_cast<int64_t>(most))));
    const std::string before = text;
    detokenizer.Step(ids.subspan(at, size), text);
    EXPECT_TRUE(text.starts_with(before));
    EXPECT_TRUE(text::IsUtf8(std::string_view(text).substr(before.size())));
    at += size;
  }
  detokenizer.Finish(text);
  return text;
}

TEST(DetokenizerProperty, EveryPartitionGivesTheLossyTextOfAllBytes) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    const ByteVocabulary vocabulary = MakeVocabulary(random);
    const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
    for (int stream = 0; stream < 25; ++stream) {
      std::vector<int32_t> ids;
      std::string visible;
      std::string everything;
      for (int64_t n = random.Between(0, 40); n > 0; --n) {
        const auto id =
            static_cast<size_t>(random.Below(static_cast<int64_t>(vocabulary.tokens.size())));
        ids.push_back(static_cast<int32_t>(id));
        everything += vocabulary.bytes[id];
        if (!vocabulary.tokens[id].is_special) visible += vocabulary.bytes[id];
      }
      for (const bool skips : {true, false}) {
        const std::string expected = Lossy(skips ? visible : everything);
        const DetokenizerOptions options{.skip_special_tokens = skips};
        for (size_t most = 1; most < 9; ++most) {
          ASSERT_EQ(Decoded(Detokenizer(tokenizer, options), ids, random, most), expected);
        }
        EXPECT_EQ(tokenizer.Decode(ids, skips), expected);
      }
    }
  }
}

// What follows a prompt is the whole text without the prompt's, of which an incomplete character at
// its end is not yet part.
TEST(DetokenizerProperty, APromptLeavesTheSameStateAsItsTokens) {
  Random random(2);
  const ByteVocabulary vocabulary = MakeVocabulary(random);
  std::vector<TestToken> pieces = {Special("<s>"), {"▁"}, {"▁a"}, {"b"}, {"▁▁"}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto index = static_cast<size_t>(byte);
    pieces.push_back({std::string("<0x") + kDigits[index >> 4] + kDigits[index & 15] + ">"});
  }
  const std::string strip_both =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"},)"
      R"({"type":"Strip","content":" ","start":2,"stop":1}]})";
  const Tokenizer tokenizers[] = {
      ByteLevelTokenizer(vocabulary.tokens),
      Tokenizer::FromJson(TokenizerJson(pieces, kLlama2Json)),
      Tokenizer::FromJson(TokenizerJson(pieces, kWordPieceJson)),
      Tokenizer::FromJson(TokenizerJson(pieces, strip_both)),
      Tokenizer::FromJson(TokenizerJson(pieces, "null")),
  };
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int round = 0; round < 2000; ++round) {
      std::vector<int32_t> ids;
      const bool has_few = random.Coin();
      for (int64_t n = random.Between(1, 12); n > 0; --n) {
        ids.push_back(static_cast<int32_t>(random.Below(has_few ? 5 : tokenizer.size() + 1)));
      }
      const auto cut = static_cast<size_t>(random.Below(static_cast<int64_t>(ids.size())));
      const std::span<const int32_t> prompt = std::span(ids).first(cut);
      DetokenizerOptions options{.skip_special_tokens = random.Coin()};
      if (random.Coin()) options.utf8_errors = Utf8Errors::kHfRun;
      Detokenizer whole(tokenizer, options);
      std::string text;
      whole.Step(prompt, text);
      const size_t before = text.size();
      whole.Step(std::span(ids).subspan(cut), text);
      whole.Finish(text);
      const std::string rest =
          Decoded(Detokenizer(tokenizer, options, prompt), std::span(ids).subspan(cut), random, 3);
      ASSERT_EQ(rest, text.substr(before)) << "round " << round;
    }
  }
}

// The bytes between the detokeniser and the client: no stop in them, whatever the tokens.
TEST(DetokenizerProperty, WithStopsTheTextIsCutAtTheFirstOne) {
  Random random(3);
  const ByteVocabulary vocabulary = MakeVocabulary(random);
  const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
  const std::vector<std::string> stops = {"\uFFFD\uFFFD\uFFFD", "中", "a\uFFFD", "<b"};
  const auto list = std::make_shared<const StopList>(stops);
  for (int round = 0; round < 500; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 30; ++i)
      ids.push_back(static_cast<int32_t>(random.Below(tokenizer.size())));
    const std::string all = tokenizer.Decode(ids);
    size_t cut = all.size();
    size_t first_end = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t at = all.find(stop);
      if (at == std::string::npos || at + stop.size() > first_end) continue;
      if (at + stop.size() < first_end || at < cut) cut = at;
      first_end = at + stop.size();
    }
    Detokenizer detokenizer(tokenizer);
    StopScanner scanner(list);
    std::string out;
    for (const int32_t id : ids) {
      std::string text;
      size_t end = 0;
      detokenizer.Step({&id, 1}, text, {&end, 1});
      if (scanner.Step(text, {&end, 1}, out).stop >= 0) break;
    }
    std::string rest;
    detokenizer.Finish(rest);
    scanner.Finish(rest, out);
    ASSERT_EQ(out, all.substr(0, cut));
  }
}

TEST(DetokenizerAllocation, NoStepAllocates) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "allocations are counted without sanitizers";
#endif
  Random random(4);
  const ByteVocabulary vocabulary = MakeVocabulary(random);
  const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
  const auto list = std::make_shared<const StopList>(std::vector<std::string>{"中中", "aaaa", "é"});
  std::vector<int32_t> ids;
  for (int i = 0; i < 4096; ++i)
    ids.push_back(static_cast<int32_t>(random.Below(tokenizer.size())));
  std::vector<size_t> ends(8);
  std::string text;
  std::string out;
  text.reserve(1 << 16);
  out.reserve(1 << 20);
  for (const Utf8Errors errors : {Utf8Errors::kMaximal, Utf8Errors::kHfRun}) {
    Detokenizer detokenizer(tokenizer, {.utf8_errors = errors});
    StopScanner scanner(list, {.min_tokens = 1 << 20});
    const int64_t before = AllocationCount();
    for (size_t at = 0; at < ids.size(); at += ends.size()) {
      text.clear();
      detokenizer.Step(std::span(ids).subspan(at, ends.size()), text, ends);
      scanner.Step(text, ends, out);
    }
    EXPECT_EQ(AllocationCount() - before, 0);
  }
}

}  // namespace
}  // namespace sluice::test
