// For random ids and every way to cut them into steps, the stream is what decoding everything at
// once gives, by an oracle that decodes bytes as Unicode says; and a step takes no memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/detokenizer.hpp"
#include "sluice/stop.hpp"
#include "sluice/text_stream.hpp"
#include "tests/support/counting_allocator.h"
#include "tests/support/random.h"
#include "tests/text/byte_oracle.h"
#include "tests/text/vocabularies.h"
#include "text/normalize/utf8.h"

namespace sluice::test {
namespace {

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
        const std::string expected = Lossy(skips ? visible : everything).text;
        const DetokenizerOptions options{.skip_special_tokens = skips};
        for (size_t most = 1; most < 9; ++most) {
          ASSERT_EQ(Decoded(Detokenizer(tokenizer, options), ids, random, most), expected);
        }
        EXPECT_EQ(tokenizer.Decode(ids, skips), expected);
      }
    }
  }
}

// One of each kind of rules for what is held back or dropped.
std::vector<Tokenizer> AllKinds(Random& random) {
  const std::vector<TestToken> pieces = ByteFallbackTokens();
  const std::string strip_both =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"},)"
      R"({"type":"Strip","content":" ","start":2,"stop":1}]})";
  return {
      ByteLevelTokenizer(MakeVocabulary(random).tokens),
      Tokenizer::FromJson(TokenizerJson(pieces, kLlama2Json)),
      Tokenizer::FromJson(TokenizerJson(pieces, kWordPieceJson)),
      Tokenizer::FromJson(TokenizerJson(pieces, strip_both)),
      Tokenizer::FromJson(TokenizerJson(pieces, "null")),
  };
}

// All 512 ways to cut ten tokens into steps, with what is said of each token.
TEST(DetokenizerProperty, EveryPartitionSaysTheSameOfEachToken) {
  Random random(5);
  for (const Tokenizer& tokenizer : AllKinds(random)) {
    for (int round = 0; round < 40; ++round) {
      std::vector<int32_t> ids;
      const bool has_few = random.Coin();
      for (int i = 0; i < 10; ++i) {
        ids.push_back(static_cast<int32_t>(random.Below(has_few ? 8 : tokenizer.size() + 1)));
      }
      DetokenizerOptions options{.skip_special_tokens = random.Coin()};
      if (random.Coin()) options.utf8_errors = Utf8Errors::kHfRun;
      const auto streamed = [&](uint32_t cuts, std::vector<TokenEnd>& ends) {
        Detokenizer detokenizer(tokenizer, options);
        std::string text;
        for (size_t begin = 0; begin < ids.size();) {
          size_t end = begin + 1;
          while (end < ids.size() && !(cuts >> (end - 1) & 1)) ++end;
          detokenizer.Step(std::span(ids).subspan(begin, end - begin), text,
                           std::span(ends).subspan(begin, end - begin));
          begin = end;
        }
        detokenizer.Finish(text);
        return text;
      };
      std::vector<TokenEnd> expected(ids.size());
      std::vector<TokenEnd> ends(ids.size());
      const std::string text = streamed(0, expected);
      ASSERT_EQ(text, streamed(511, ends));
      for (uint32_t cuts = 0; cuts < 512; ++cuts) {
        ASSERT_EQ(streamed(cuts, ends), text) << "cuts " << cuts;
        for (size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(ends[i].text, expected[i].text) << "cuts " << cuts;
          ASSERT_EQ(ends[i].open_tokens, expected[i].open_tokens) << "cuts " << cuts;
        }
      }
    }
  }
}

// What follows a prompt is the whole text without the prompt's, of which an incomplete character at
// its end is not yet part.
TEST(DetokenizerProperty, APromptLeavesTheSameStateAsItsTokens) {
  Random random(2);
  const std::vector<Tokenizer> tokenizers = AllKinds(random);
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
      TokenEnd end;
      detokenizer.Step({&id, 1}, text, {&end, 1});
      if (scanner.Step(text, {&end, 1}, out).stop >= 0) break;
    }
    std::string rest;
    detokenizer.Finish(rest);
    scanner.Finish(rest, out);
    ASSERT_EQ(out, all.substr(0, cut));
  }
}

// Ids that reach every state: whole tokens, pieces of characters, runs of byte tokens.
std::vector<int32_t> ManyIds(const Tokenizer& tokenizer, Random& random) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 4096; ++i) {
    ids.push_back(static_cast<int32_t>(random.Below(tokenizer.size() + 1)));
  }
  return ids;
}

TEST(TextAllocation, NoStepAllocates) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "allocations are counted without sanitizers";
#endif
  Random random(4);
  const Tokenizer tokenizers[] = {
      ByteLevelTokenizer(MakeVocabulary(random).tokens),
      Tokenizer::FromJson(TokenizerJson(ByteFallbackTokens(), kGemmaJson))};
  const auto list = std::make_shared<const StopList>(std::vector<std::string>{"中中", "aaaa", "é"});
  std::string text;
  std::string out;
  text.reserve(1 << 16);
  out.reserve(1 << 20);
  for (const Tokenizer& tokenizer : tokenizers) {
    const std::vector<int32_t> ids = ManyIds(tokenizer, random);
    for (const Utf8Errors errors : {Utf8Errors::kMaximal, Utf8Errors::kHfRun}) {
      for (const size_t size : {size_t{1}, size_t{8}, size_t{128}}) {
        std::vector<TokenEnd> ends(size);
        Detokenizer detokenizer(tokenizer, {.utf8_errors = errors});
        StopScanner scanner(list, {.min_tokens = 1 << 20});
        TextStream stream(tokenizer, {.detokenizer = {.utf8_errors = errors},
                                      .stops = list,
                                      .stop = {.min_tokens = 1 << 20},
                                      .stop_token_ids = {1}});
        TextStream without_stops(tokenizer, {.detokenizer = {.utf8_errors = errors}});
        const int64_t before = AllocationCount();
        for (size_t at = 0; at < ids.size(); at += size) {
          const std::span<const int32_t> step = std::span(ids).subspan(at, size);
          text.clear();
          detokenizer.Step(step, text, ends);
          scanner.Step(text, ends, out);
          text.clear();
          stream.Step(step, text);
          text.clear();
          without_stops.Step(step, text);
        }
        EXPECT_EQ(AllocationCount() - before, 0);
        out.clear();
      }
    }
  }
}

// A text that cannot grow is an exception like others, in the middle of a step and at its end.
TEST(TextAllocation, NoMemoryIsAnException) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "memory is a sanitizer's";
#endif
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(ByteFallbackTokens(), kGemmaJson));
  for (const size_t size : {size_t{40}, size_t{4000}}) {
    const std::vector<int32_t> ids(size, ByteFallbackId('a'));
    Detokenizer detokenizer(tokenizer);
    TextStream stream(tokenizer);
    std::string text;
    int thrown = 0;
    {
      const NoMemory none;
      try {
        detokenizer.Step(ids, text);
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
      try {
        stream.Step(ids, text);
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
    }
    EXPECT_EQ(thrown, 2);
  }
}

// A run that is held back to its limit, and let go.
TEST(TextAllocation, NoRunOfByteTokensAllocates) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "allocations are counted without sanitizers";
#endif
  const Tokenizer tokenizer = Tokenizer::FromJson(TokenizerJson(ByteFallbackTokens(), kGemmaJson));
  Detokenizer detokenizer(tokenizer, {.utf8_errors = Utf8Errors::kHfRun});
  std::string text;
  text.reserve(1 << 16);
  const std::string_view character = "中";
  std::vector<int32_t> ids;
  for (const char c : character) ids.push_back(ByteFallbackId(static_cast<uint8_t>(c)));
  const int64_t before = AllocationCount();
  for (size_t i = 0; i < 2 * kLongestByteRun; ++i) {
    const int32_t id = ids[i % ids.size()];
    detokenizer.Step({&id, 1}, text);
  }
  EXPECT_EQ(AllocationCount() - before, 0);
  EXPECT_GT(text.size(), kLongestByteRun / 2);  // that there was a run
  EXPECT_LT(text.size(), 2 * kLongestByteRun);
}

}  // namespace
}  // namespace sluice::test
