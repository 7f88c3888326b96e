// For random tokens, stops and every one of the ways to cut them into steps, a stream's text, its
// end and which tokens are out are what a naive definition over the whole text gives.
#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/text_stream.hpp"
#include "tests/support/random.h"
#include "tests/text/byte_oracle.h"
#include "text/normalize/utf8.h"

namespace sluice::test {
namespace {

using Texts = std::vector<std::string>;

struct Request {
  std::vector<int32_t> ids;
  Texts bytes;  // of each id, none for one that is skipped
  Texts stops;
  TextStreamOptions options;
};

struct Expected {
  std::string text;
  FinishReason finish = FinishReason::kEnd;
  int32_t stop = -1;
  int64_t tokens = 0;
};

// The first place where a stop ends in a token that counts, the longest of those. ends: by token;
// what is behind them is the last one's.
bool FindStop(const std::string& text, const std::vector<size_t>& ends, const Request& request,
              Expected& expected) {
  size_t token = 0;
  for (size_t end = 1; end <= text.size(); ++end) {
    while (token + 1 < ends.size() && ends[token] < end) ++token;
    const auto number = static_cast<int64_t>(ends.empty() ? 0 : token + 1);
    if (number <= request.options.stop.min_tokens) continue;
    for (size_t s = 0; s < request.stops.size(); ++s) {
      const std::string& stop = request.stops[s];
      if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
      const bool is_longer = expected.stop < 0 ||
                             stop.size() > request.stops[static_cast<size_t>(expected.stop)].size();
      if (is_longer) expected.stop = static_cast<int32_t>(s);
    }
    if (expected.stop < 0) continue;
    const size_t size = request.stops[static_cast<size_t>(expected.stop)].size();
    expected.text = text.substr(0, request.options.stop.include_stop ? end : end - size);
    expected.finish = FinishReason::kStopString;
    expected.tokens = number;
    return true;
  }
  return false;
}

Expected Define(const Request& request) {
  const StopOptions& stop = request.options.stop;
  const auto& ending = request.options.stop_token_ids;
  Expected expected;
  std::string bytes;
  std::vector<size_t> ends;
  for (size_t i = 0; i < request.ids.size(); ++i) {
    ++expected.tokens;
    const bool ends_here = expected.tokens > stop.min_tokens &&
                           std::count(ending.begin(), ending.end(), request.ids[i]) > 0;
    if (!ends_here || stop.include_stop) bytes += request.bytes[i];
    const LossyText all = Lossy(bytes);
    ends.push_back(all.whole);
    if (FindStop(all.text.substr(0, all.whole), ends, request, expected)) return expected;
    if (!ends_here) continue;
    if (FindStop(all.text, ends, request, expected)) return expected;
    expected.text = all.text;
    expected.finish = FinishReason::kStopToken;
    return expected;
  }
  expected.text = Lossy(bytes).text;
  FindStop(expected.text, ends, request, expected);
  return expected;
}

// Behind a step.
struct Told {
  size_t text = 0;     // bytes that are out
  int64_t tokens = 0;  // that are out
  size_t held = 0;
};

// Bit i of cuts: a step ends behind token i.
std::vector<Told> RunStream(const Tokenizer& tokenizer, const Request& request, uint32_t cuts,
                            const Expected& expected) {
  TextStream stream(tokenizer, request.options);
  Detokenizer detokenizer(tokenizer, request.options.detokenizer);
  StopScanner scanner(request.options.stops, request.options.stop);
  std::string text;
  if (cuts & 1) text.reserve(1024);  // a short text has no room for the quick way
  std::string scanned;
  std::vector<Told> told(request.ids.size());
  size_t begin = 0;
  int64_t last = 0;
  Delta delta;
  bool scans = true;
  for (size_t i = 0; i < request.ids.size(); ++i) {
    if (!(cuts >> i & 1) && i + 1 < request.ids.size()) continue;
    const std::span<const int32_t> step = std::span(request.ids).subspan(begin, i + 1 - begin);
    begin = i + 1;
    const size_t before = text.size();
    delta = stream.Step(step, text);
    EXPECT_TRUE(text::IsUtf8(std::string_view(text).substr(before)));
    EXPECT_EQ(delta.first_token, last);
    last = delta.last_token;
    told[i] = {text.size(), last, stream.held_bytes()};
    if (delta.finish != FinishReason::kNone) break;
    // The parts on their own say the same, up to the first stop token.
    std::string added;
    std::vector<TokenEnd> ends(step.size());
    detokenizer.Step(step, added, ends);
    const StopResult result = scanner.Step(added, ends, scanned);
    scans = scans && result.tokens == delta.tokens;
    if (scans) {
      EXPECT_EQ(scanned, text);
      EXPECT_EQ(result.released_tokens, delta.last_token);
    }
  }
  delta = stream.Finish(text);
  EXPECT_EQ(text, expected.text);
  EXPECT_EQ(delta.finish, expected.finish);
  EXPECT_EQ(delta.stop < 0 ? "" : request.stops[static_cast<size_t>(delta.stop)],
            expected.stop < 0 ? "" : request.stops[static_cast<size_t>(expected.stop)]);
  EXPECT_EQ(delta.tokens, expected.tokens);
  EXPECT_EQ(delta.last_token, expected.tokens);
  return told;
}

Request RandomRequest(const ByteVocabulary& vocabulary, Random& random, int64_t most) {
  Request request;
  const auto some_id = [&] {
    // Ids of whole texts come often enough for stops to be there.
    const auto size = static_cast<int64_t>(vocabulary.tokens.size());
    return static_cast<int32_t>(random.Coin() ? random.Between(256, size - 1) : random.Below(size));
  };
  for (int64_t n = random.Between(most - 1, most); n > 0; --n) request.ids.push_back(some_id());
  TextStreamOptions& options = request.options;
  options.detokenizer.skip_special_tokens = random.Coin();
  options.stop = {random.Coin(0.3), random.Coin(0.3) ? random.Between(1, 4) : 0};
  std::string visible;
  for (const int32_t id : request.ids) {
    const auto index = static_cast<size_t>(id);
    const bool is_skipped =
        options.detokenizer.skip_special_tokens && vocabulary.tokens[index].is_special;
    request.bytes.push_back(is_skipped ? "" : vocabulary.bytes[index]);
    visible += request.bytes.back();
  }
  // Stops are pieces of the text, or nearly.
  const std::string text = Lossy(visible).text;
  for (int64_t n = random.Between(0, 3); n > 0 && !text.empty(); --n) {
    auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
    while (at > 0 && text::IsContinuation(static_cast<uint8_t>(text[at]))) --at;
    std::string stop = text.substr(at, static_cast<size_t>(random.Between(1, 12)));
    stop.resize(text::ValidPrefix(stop));
    if (random.Coin(0.6)) stop += "z";
    if (!stop.empty()) request.stops.push_back(stop);
  }
  options.stops = std::make_shared<const StopList>(request.stops);
  if (random.Coin(0.3)) options.stop_token_ids = {request.ids[request.ids.size() / 2], 3};
  return request;
}

// No token is out before its text is, and none stays when nothing is held back.
void ExpectTokensWithText(const Request& request, const Told& told, size_t token) {
  std::string bytes;
  for (const std::string& of : request.bytes) bytes += of;
  const LossyText all = Lossy(bytes);
  std::string upto;
  for (int64_t i = 0; i < told.tokens; ++i) upto += request.bytes[static_cast<size_t>(i)];
  if (!upto.empty()) {
    ASSERT_LE(all.ends[upto.size() - 1], told.text);
  }
  for (size_t i = static_cast<size_t>(told.tokens); i <= token; ++i) upto += request.bytes[i];
  const LossyText seen = Lossy(upto);
  if (told.held == 0 && seen.whole == seen.text.size()) {
    ASSERT_EQ(told.tokens, static_cast<int64_t>(token + 1));
  }
}

TEST(TextStreamProperty, EveryPartitionGivesWhatIsDefined) {
  Random random(11);
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE(round);
    const ByteVocabulary vocabulary = MakeVocabulary(random);
    const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
    const Request request = RandomRequest(vocabulary, random, 10);
    const Expected expected = Define(request);
    const auto all_cuts = uint32_t{1} << (request.ids.size() - 1);
    const std::vector<Told> alone = RunStream(tokenizer, request, all_cuts - 1, expected);
    for (size_t i = 0; i < alone.size(); ++i) {
      if (static_cast<int64_t>(i) + 1 < expected.tokens) ExpectTokensWithText(request, alone[i], i);
    }
    for (uint32_t cuts = 0; cuts < all_cuts; ++cuts) {
      const std::vector<Told> told = RunStream(tokenizer, request, cuts, expected);
      for (size_t i = 0; i < told.size(); ++i) {
        const bool ends_step = cuts >> i & 1 || i + 1 == told.size();
        if (!ends_step || static_cast<int64_t>(i) + 1 >= expected.tokens) continue;
        ASSERT_EQ(told[i].text, alone[i].text);
        ASSERT_EQ(told[i].tokens, alone[i].tokens);
      }
      ASSERT_FALSE(HasFailure()) << "cuts " << cuts;
    }
  }
}

TEST(TextStreamProperty, LongStreamsGiveWhatIsDefined) {
  Random random(12);
  const ByteVocabulary vocabulary = MakeVocabulary(random);
  const Tokenizer tokenizer = ByteLevelTokenizer(vocabulary.tokens);
  for (int round = 0; round < 300; ++round) {
    const Request request = RandomRequest(vocabulary, random, 30);
    const Expected expected = Define(request);
    for (int partition = 0; partition < 9; ++partition) {
      // Steps of one token or two, longer ones, all in one.
      const auto bits = [&] { return static_cast<uint32_t>(random.Below(int64_t{1} << 30)); };
      const uint32_t cuts = partition == 0 ? 0 : partition < 5 ? bits() : bits() & bits() & bits();
      RunStream(tokenizer, request, cuts, expected);
      ASSERT_FALSE(HasFailure()) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace sluice::test
