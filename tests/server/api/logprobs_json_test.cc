// Log-probabilities in the shapes of OpenAI and vLLM.
#include "server/api/response/logprobs_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/server/api/parsed_json.h"
#include "tests/server/api/samples.h"

namespace sluice::server {
namespace {

using test::ParsedJson;

std::string OfCompletion(std::vector<ChoiceDelta> deltas, bool skips_special_tokens = true) {
  std::vector<const ChoiceDelta*> pointers;
  for (const ChoiceDelta& delta : deltas) pointers.push_back(&delta);
  std::string out;
  AppendCompletionLogprobs(out, pointers, test::SampleTokenizer(), skips_special_tokens);
  return out;
}

TEST(LogprobsJson, ChatsHaveTokensWithBytesAndTheMostLikelyOnes) {
  const test::SampleLogprobs sample;
  std::string out;
  AppendChatLogprobs(out, sample.View(), test::SampleTokenizer());
  EXPECT_EQ(out,
            R"({"content":[)"
            R"({"token":"Hello","logprob":-0.5,"bytes":[72,101,108,108,111],"top_logprobs":[)"
            R"({"token":"Hello","logprob":-0.5,"bytes":[72,101,108,108,111]},)"
            R"({"token":"\"","logprob":-1,"bytes":[34]}]},)"
            R"({"token":"bytes:\\xe2\\x82","logprob":-1.25,"bytes":[226,130],"top_logprobs":[)"
            R"({"token":"\"","logprob":-0.125,"bytes":[34]},)"
            R"({"token":"\n","logprob":-1e-07,"bytes":[10]}]},)"
            R"({"token":"<end>","logprob":-9999.0,"bytes":[60,101,110,100,62],"top_logprobs":[)"
            R"({"token":"😀","logprob":-0.25,"bytes":[240,159,152,128]},)"
            R"({"token":"<end>","logprob":-9999.0,"bytes":[60,101,110,100,62]}]}]})");
  EXPECT_EQ(ParsedJson(out).Text("/content/1/token"), R"(bytes:\xe2\x82)");
}

TEST(LogprobsJson, CompletionsHaveFourListsOfOneLength) {
  const test::SampleLogprobs sample;
  EXPECT_EQ(OfCompletion({{.text = "Hello\u20ac", .logprobs = sample.View(), .text_offset = 10}}),
            R"({"tokens":["Hello","bytes:\\xe2\\x82","<end>"],)"
            R"("token_logprobs":[-0.5,-1.25,-9999.0],)"
            R"("top_logprobs":[{"Hello":-0.5,"\"":-1},{"bytes:\\xe2\\x82":-1.25,"\"":-0.125,)"
            R"("\n":-1e-07},{"<end>":-9999.0,"😀":-0.25}],"text_offset":[10,15,16]})");
}

TEST(LogprobsJson, OffsetsCountCodePointsAndStayInTheText) {
  const std::vector<int32_t> ids = {test::kEmoji,   test::kEuroBegin, test::kEuroEnd,
                                    test::kEndMark, test::kHello,     test::kHello};
  const std::vector<float> logprobs(ids.size(), -1.0f);
  const TokenLogprobs all{.ids = ids, .logprobs = logprobs};
  const auto offsets = [&](std::string_view text, bool skips) {
    return ParsedJson(OfCompletion({{.text = text, .logprobs = all, .text_offset = 3}}, skips))
        .Json("/text_offset");
  };
  EXPECT_EQ(offsets("😀€HelloHello", true), "[3,4,5,5,5,10]");
  EXPECT_EQ(offsets("😀€<end>HelloHello", false), "[3,4,5,5,10,15]");
  EXPECT_EQ(offsets("😀€He", true), "[3,4,5,5,5,7]");  // cut at a stop string
  EXPECT_EQ(offsets("", true), "[3,3,3,3,3,3]");
}

TEST(LogprobsJson, ThePromptsFirstTokenHasNone) {
  const std::vector<int32_t> ids = {test::kHello, test::kWorld};
  const std::vector<float> logprobs = {-2.0f};
  const ChoiceDelta prompt{.text = "Hello world", .logprobs = {.ids = ids, .logprobs = logprobs}};
  const std::vector<int32_t> next = {test::kLine};
  const ChoiceDelta output{
      .text = "\n", .logprobs = {.ids = next, .logprobs = logprobs}, .text_offset = 11};
  EXPECT_EQ(OfCompletion({prompt, output}),
            R"({"tokens":["Hello"," world","\n"],"token_logprobs":[null,-2,-2],)"
            R"("top_logprobs":[null,{" world":-2},{"\n":-2}],"text_offset":[0,5,11]})");
}

TEST(LogprobsJson, TextsThatTwoTokensHaveComeOnce) {
  const Tokenizer tokenizer =
      test::ByteLevelTokenizer({{"a"}, test::Added("b"), {"c"}, {"\xff"}, {"b"}});
  ASSERT_EQ(TokenBytes(tokenizer, 1), TokenBytes(tokenizer, 4));
  const std::vector<int32_t> ids = {0};
  const std::vector<float> logprobs = {-3.0f};
  const std::vector<int32_t> top_ids = {1, 4, 0};
  const std::vector<float> top = {-0.5f, -1.0f, -3.0f};
  const ChoiceDelta delta{.text = "a", .logprobs = {ids, logprobs, {}, 3, top_ids, top}};
  const ChoiceDelta* const deltas[] = {&delta};
  std::string out;
  AppendCompletionLogprobs(out, deltas, tokenizer, true);
  EXPECT_EQ(ParsedJson(out).Json("/top_logprobs"), R"([{"a":-3,"b":-0.5}])");
}

TEST(LogprobsJson, PromptLogprobsHaveRanksAndKeysThatAreIds) {
  const test::SampleLogprobs sample;
  std::string out;
  AppendPromptLogprobs(out, sample.View(), test::SampleTokenizer());
  EXPECT_EQ(out, R"([null,{"0":{"logprob":-0.5,"rank":1,"decoded_token":"Hello"},)"
                 R"("1":{"logprob":-1,"rank":2,"decoded_token":"\""}},)"
                 R"({"2":{"logprob":-1.25,"rank":3,"decoded_token":"bytes:\\xe2\\x82"},)"
                 R"("1":{"logprob":-0.125,"rank":1,"decoded_token":"\""},)"
                 R"("6":{"logprob":-1e-07,"rank":2,"decoded_token":"\n"}},)"
                 R"({"5":{"logprob":-9999.0,"rank":null,"decoded_token":"<end>"},)"
                 R"("4":{"logprob":-0.25,"rank":1,"decoded_token":"😀"}}])");
  EXPECT_TRUE(ParsedJson(out).Has("/3/4/rank"));
}

// Where fewer tokens have a probability than were asked for, a list ends in ids of -1.
TEST(LogprobsJson, ListsEndWhereNoMoreTokensHaveAProbability) {
  const std::vector<int32_t> ids = {test::kHello};
  const std::vector<float> logprobs = {-0.5f};
  const std::vector<int32_t> ranks = {1};
  const std::vector<int32_t> top_ids = {test::kLine, -1, -1};
  const std::vector<float> top = {-1.5f, -9.0f, -9.0f};
  const TokenLogprobs few{ids, logprobs, ranks, 3, top_ids, top};
  EXPECT_EQ(ParsedJson(OfCompletion({{.text = "Hello", .logprobs = few}})).Json("/top_logprobs"),
            R"([{"Hello":-0.5,"\n":-1.5}])");
  std::string chat;
  AppendChatLogprobs(chat, few, test::SampleTokenizer());
  EXPECT_EQ(ParsedJson(chat).Json("/content/0/top_logprobs"),
            R"([{"token":"\n","logprob":-1.5,"bytes":[10]}])");
  std::string prompt;
  AppendPromptLogprobs(prompt, few, test::SampleTokenizer());
  EXPECT_EQ(prompt, R"([null,{"0":{"logprob":-0.5,"rank":1,"decoded_token":"Hello"},)"
                    R"("6":{"logprob":-1.5,"rank":1,"decoded_token":"\n"}}])");
}

TEST(LogprobsJson, IdsWithoutATokenAndNumbersThatAreNoneAreStillJson) {
  const std::vector<int32_t> ids = {-1, 1'000'000, 0, 0};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logprobs = {-1e30f, std::numeric_limits<float>::quiet_NaN(), kInfinity,
                                       std::numeric_limits<float>::denorm_min()};
  const std::string out =
      OfCompletion({{.text = "", .logprobs = {.ids = ids, .logprobs = logprobs}}});
  EXPECT_EQ(ParsedJson(out).Json("/tokens"), R"(["","","Hello","Hello"])");
  EXPECT_EQ(ParsedJson(out).Json("/token_logprobs"), "[-9999.0,null,null,1e-45]");
}

}  // namespace
}  // namespace sluice::server
