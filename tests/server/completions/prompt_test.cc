// What is told of a prompt: its text, its log-probabilities, its ids; as a stream and as a whole.
#include <algorithm>
#include <numeric>
#include <variant>
#include <vector>

#include "server/completions.h"
#include "server/completions/preparation.h"
#include "tests/server/completions/serving.h"

namespace sluice::test {
namespace {

std::string Body(const std::string& fields, bool streams) {
  return R"({"prompt":"abc",)" + fields +
         (streams ? R"(,"stream":true,"stream_options":{"include_usage":true}})" : "}");
}

// Of letters; the first of a prompt has none, which is read as 0.
std::vector<double> LogprobsOf(std::string_view letters, bool is_prompt) {
  std::vector<double> logprobs;
  for (const int32_t id : Ids(letters)) logprobs.push_back(ScriptLogprob(id));
  if (is_prompt) logprobs[0] = 0;
  return logprobs;
}

class OfPrompt : public ::testing::TestWithParam<bool> {
 protected:
  ReadChoice Choice(const std::string& fields, const ReadUsage& usage) {
    const ReadResponse got = echo.Answer(Body(fields, GetParam()));
    EXPECT_FALSE(got.error.has_value()) << got.error->message;
    EXPECT_EQ(got.usage, usage);
    EXPECT_EQ(got.choices.size(), 1u);
    return got.choices.begin()->second;
  }

  EchoServing echo;
};

TEST_P(OfPrompt, EchoAloneIsItsText) {
  const ReadChoice choice = Choice(R"("echo":true,"max_tokens":0)", {3, 0});
  EXPECT_EQ(choice.text, "abc");
  EXPECT_EQ(choice.finish, "length");
}

TEST_P(OfPrompt, EchoWithLogprobsHasThoseOfAllTokens) {
  for (const int tokens : {0, 4}) {
    const ReadChoice choice =
        Choice(R"("echo":true,"logprobs":2,"max_tokens":)" + std::to_string(tokens), {3, tokens});
    const std::string text = tokens == 0 ? "abc" : "abcabca";
    EXPECT_EQ(choice.text, text);
    std::vector<int64_t> offsets(text.size());
    std::iota(offsets.begin(), offsets.end(), 0);
    EXPECT_EQ(choice.offsets, offsets);
    ASSERT_EQ(choice.logprobs.size(), text.size());
    const std::vector<double> expected = LogprobsOf(text, true);
    for (size_t i = 0; i < text.size(); ++i) {
      EXPECT_FLOAT_EQ(static_cast<float>(choice.logprobs[i]), static_cast<float>(expected[i])) << i;
    }
  }
}

TEST_P(OfPrompt, OffsetsBeginBehindAnEcho) {
  EXPECT_EQ(Choice(R"("logprobs":0,"max_tokens":2)", {3, 2}).offsets, (std::vector<int64_t>{0, 1}));
}

TEST_P(OfPrompt, IdsAreThoseOfTheOutput) {
  const ReadChoice choice = Choice(R"("return_token_ids":true,"max_tokens":2)", {3, 2});
  EXPECT_EQ(choice.ids, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(choice.prompt_ids, (std::vector<int64_t>{0, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Streams, OfPrompt, ::testing::Bool());

TEST(Preparation, EndsBetweenTwoPromptsWhenItsClientIsGone) {
  const server::PreparationSettings settings{.text = LettersText(), .model_names = {"letters"}};
  for (const int last : {1, 2, 100}) {
    int prompts = 0;
    const server::Preparation result =
        Prepare(server::Api::kCompletions, R"({"prompt":["a","b","c","d"]})", 4096, settings,
                [&] { return ++prompts == last; });
    EXPECT_EQ(prompts, std::min(last, 4));
    EXPECT_EQ(std::holds_alternative<server::ApiError>(result), last < 4);
  }
}

TEST(OfPromptAsAWhole, HasVllmsLogprobs) {
  EchoServing echo;
  const ReadResponse got = echo.Answer(Body(R"("prompt_logprobs":1,"max_tokens":1)", false));
  ASSERT_EQ(got.choices.at(0).prompt_logprobs.size(), 3u) << "null and two tokens";
  EXPECT_EQ(got.choices.at(0).prompt_logprobs[0], "null");
  EXPECT_EQ(got.choices.at(0).prompt_logprobs[1].substr(0, 4), "{\"1\"");
  EXPECT_EQ(got.choices.at(0).prompt_logprobs[2].substr(0, 4), "{\"2\"");
  EXPECT_TRUE(got.choices.at(0).logprobs.empty());
}

TEST(OfPromptAsAWhole, EachChoiceOfEachPromptHasItsOwn) {
  EchoServing echo;
  ReadResponse got =
      echo.Answer(R"({"prompt":["ab","xyz"],"n":2,"echo":true,"logprobs":0,"max_tokens":1})");
  ASSERT_EQ(got.choices.size(), 4u);
  for (const int64_t i : {0, 1, 2, 3}) {
    const std::string text = i < 2 ? "aba" : "xyzx";
    EXPECT_EQ(got.choices[i].text, text);
    ASSERT_EQ(got.choices[i].logprobs.size(), text.size());
    EXPECT_FLOAT_EQ(static_cast<float>(got.choices[i].logprobs[1]), ScriptLogprob(text[1] - 'a'));
  }
  EXPECT_EQ(got.usage, (ReadUsage{5, 4}));
}

}  // namespace
}  // namespace sluice::test
