// Recorded requests as JSON: what is written reads back as the same, and what cannot be read is
// named by line and field.
#include "json/request_json.h"

#include <gtest/gtest.h>

#include "sluice/error.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

EngineRequest RandomRequest(Random& random) {
  EngineRequest request;
  request.params = RandomSamplingParams(random.Between(4, 1000), random);
  request.params.draft_mode = static_cast<DraftMode>(random.Below(2));
  request.params.seed = random.Coin() ? UINT64_MAX : static_cast<uint64_t>(random.Below(1 << 20));
  if (random.Coin(0.1)) request.params.allowed_token_ids = TokenIds{};
  if (random.Coin(0.1)) request.params.logit_bias = {{3, 1.5f}, {4, -0.1f}, {3, 1e-30f}};
  for (int64_t i = random.Between(1, 20); i > 0; --i) {
    request.prompt.push_back(static_cast<int32_t>(random.Between(0, INT32_MAX)));
  }
  request.choice = random.Coin() ? UINT32_MAX : 0;
  request.max_tokens = random.Between(0, INT32_MAX);
  if (random.Coin()) request.prompt_logprobs = static_cast<int32_t>(random.Between(0, INT32_MAX));
  request.stop_at = static_cast<StopAt>(random.Below(2));
  const std::string_view texts[] = {"END", "\n\n", "\"\\/", "\xe5\x81\x9c\xe6\xad\xa2", "\x01\x7f"};
  for (const std::string_view text : texts) {
    if (random.Coin(0.3)) request.text.stops.emplace_back(text);
  }
  request.text.include_stop = random.Coin();
  request.text.detokenizer.skip_special_tokens = random.Coin();
  request.text.detokenizer.spaces_between_special_tokens = random.Coin();
  request.text.detokenizer.utf8_errors = static_cast<Utf8Errors>(random.Below(2));
  request.text.incomplete = static_cast<Incomplete>(random.Below(2));
  if (random.Coin()) {
    request.grammar = {.kind = static_cast<GrammarKind>(random.Below(6)),
                       .text = "root ::= \"a\\n\"\n# \xc3\xa9",
                       .options = {.strict = random.Coin(),
                                   .max_whitespace = static_cast<int32_t>(random.Below(1025))}};
  }
  if (random.Coin()) {
    request.thinking = {.format = static_cast<ReasoningFormat>(random.Below(5)),
                        .tokens = random.Between(0, INT32_MAX),
                        .is_open = random.Coin()};
  }
  return request;
}

TEST(WriteRecord, ReadsBackAsTheSame) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    RequestRecord record{.request = RandomRequest(random)};
    if (random.Coin()) {
      record.result = {.text = "a \"text\"\n\xf0\x9f\x98\x80",
                       .ids = {1, INT32_MAX, 0},
                       .end = "stop_string",
                       .prompt_tokens = std::ssize(record.request.prompt),
                       .output_tokens = 3};
    }
    const std::string line = WriteRecord(record);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(ReadRecord(line), record) << line;
  }
}

// A parameter that somebody adds, and forgets here, would be lost in a record.
TEST(WriteRecord, KeepsEveryParameter) {
  SamplingParams changed;
  changed.seed = 1;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  changed.name = static_cast<type>(changed.name == type{0} ? 1 : 0.5);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  changed.name = static_cast<type>(changed.name == type{0} ? 1 : 1.25);
#define SLUICE_LIST_PARAM(type, name, json, help) changed.name = decltype(changed.name)();
#include "sluice/params.def"
  changed.logit_bias = {{7, -1.5f}};
  changed.allowed_token_ids = TokenIds{1, 2};
  changed.bad_words = {{1, 2}, {3}};
  changed.stop_token_ids = {4};
  changed.dry_sequence_breakers = {5};
  changed.logprobs = 3;
  changed.profile = ProfileByName("llamacpp");
  changed.draw_method = DrawMethod::kCdf;
  changed.logprob_mode = LogprobMode::kProcessedLogits;
  changed.draft_mode = DraftMode::kReject;
  const SamplingParams usual;
  const RequestRecord record{.request = {.params = changed, .prompt = {1}}};
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  EXPECT_FALSE(changed.name == usual.name) << #name;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  EXPECT_FALSE(changed.name == usual.name) << #name;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  EXPECT_FALSE(changed.name == usual.name) << #name;
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  EXPECT_FALSE(changed.name == usual.name) << #name;
#define SLUICE_LIST_PARAM(type, name, json, help) EXPECT_FALSE(changed.name == usual.name) << #name;
#include "sluice/params.def"
  EXPECT_EQ(ReadRecord(WriteRecord(record)), record);
}

TEST(ReadRecord, WhatIsLeftOutHasItsDefault) {
  const RequestRecord record =
      ReadRecord(R"({"request": {"prompt": [3], "parameters": {"seed": 7}}})");
  EXPECT_EQ(record, (RequestRecord{.request = {.params = {.seed = 7}, .prompt = {3}}}));
}

TEST(ReadRecords, PassesOverEmptyLines) {
  const std::string line = R"({"request": {"prompt": [3], "parameters": {"seed": 7}}})";
  EXPECT_EQ(ReadRecords("").size(), 0u);
  EXPECT_EQ(ReadRecords("\n \r\n" + line + "\r\n\n" + line).size(), 2u);
}

TEST(ReadRecords, ErrorsNameTheLineTheFieldItsValueAndWhatIsAllowed) {
  const struct {
    std::string line;
    std::string parameter;
    std::string value;
    std::string allowed;
  } cases[] = {
      {R"({"request": {"prompt": [1], "parameters": {}}})", "request.parameters.seed", "",
       "a whole number, which every request has"},
      {R"({"request": {"parameters": {"seed": 1}}})", "request.prompt", "", "one token id or more"},
      {R"({"request": {"prompt": [1, -1]}})", "request.prompt", "-1",
       "a whole number in [0, 2147483647]"},
      {R"({"request": {"prompt": "text"}})", "request.prompt", "\"text\"", "a list of token ids"},
      {R"({"request": {"max_tokens": -1}})", "request.max_tokens", "-1",
       "a whole number in [0, 2147483647]"},
      {R"({"request": {"prompt_logprobs": -1}})", "request.prompt_logprobs", "-1",
       "a whole number in [0, 2147483647]"},
      {R"({"request": {"prompt_logprobs": null}})", "request.prompt_logprobs", "null",
       "a whole number in [0, 2147483647]"},
      {R"({"request": {"choice": 4294967296}})", "request.choice", "4294967296",
       "a whole number in [0, 4294967295]"},
      {R"({"request": {"choice": 1.5}})", "request.choice", "1.5",
       "a whole number in [0, 4294967295]"},
      {R"({"request": {"stop_at": "both"}})", "request.stop_at", "\"both\"", "engine or frontend"},
      {R"({"request": {"stops": "END"}})", "request.stops", "\"END\"", "a list of texts"},
      {R"({"request": {"stops": [1]}})", "request.stops", "1", "a text"},
      {R"({"request": {"include_stop": 1}})", "request.include_stop", "1", "true or false"},
      {R"({"request": {"utf8_errors": 1}})", "request.utf8_errors", "1", "a text"},
      {R"({"request": {"parameters": 1}})", "request.parameters", "1", "an object"},
      {R"({"request": {"parameters": {"top_p": 1.5}}})", "request.parameters.top_p", "1.5",
       "a number in (0, 1]"},
      {R"({"request": {"parameters": {"top_q": 1}}})", "request.parameters.top_q",
       "an unknown field", "those of sluice inspect params"},
      {R"({"request": {"max_token": 1}})", "request.max_token", "an unknown field",
       "the fields prompt, choice, max_tokens, prompt_logprobs, stop_at, stops, include_stop, "
       "skip_special_tokens, spaces_between_special_tokens, utf8_errors, incomplete, parameters, "
       "grammar, thinking"},
      {R"({"request": {"grammar": {"text": "a"}}})", "request.grammar.kind", "",
       "the kind of the grammar"},
      {R"({"request": {"grammar": {"kind": "yaml"}}})", "request.grammar.kind", "\"yaml\"",
       "json_schema, json_object, regex, grammar, lark or structural_tag"},
      {R"({"request": {"grammar": {"kind": "regex", "max_whitespace": 1025}}})",
       "request.grammar.max_whitespace", "1025", "a whole number in [0, 1024]"},
      {R"({"request": {"thinking": {"format": "loud"}}})", "request.thinking.format", "\"loud\"",
       "none, deepseek, mistral, seed or harmony"},
      {R"({"request": {"choice": 1, "choice": 1}})", "request.choice", "given twice",
       "each field once"},
      {R"({"request": []})", "request", "a list", "an object"},
      {R"({"result": {}})", "request", "", "an object"},
      {R"({"result": {"end": 1}})", "result.end", "1", "a text"},
      {R"({"result": {"output_tokens": -1}})", "result.output_tokens", "-1",
       "a whole number in [0, 2147483647]"},
      {R"({"answer": {}})", "answer", "an unknown field", "the fields request, result"},
      {"[]", "json", "no object", "one JSON object in UTF-8"},
      {"{} {}", "json", "text after the object", "one JSON object in UTF-8"},
  };
  const std::string good = R"({"request": {"prompt": [3], "parameters": {"seed": 7}}})"
                           "\n\n";
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.line);
    ExpectError([&] { ReadRecord(bad.line); }, bad.parameter, bad.value, bad.allowed);
    ExpectError([&] { ReadRecords(good + bad.line + "\n"); }, "line 3: " + bad.parameter, bad.value,
                bad.allowed);
  }
}

TEST(ReadRecord, SpoiledTextIsAnErrorOrARecord) {
  Random random(6);
  const std::string good =
      WriteRecord({.request = RandomRequest(random), .result = RequestResult{.text = "a"}});
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int64_t n = random.Between(1, 4); n > 0 && !text.empty(); --n) {
      const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(text.size())));
      const std::string_view palette = "{}[]\",:0129.-eE \\utfn\x01\x7f\xc3\xff";
      switch (random.Below(3)) {
        case 0:
          text[at] = palette[static_cast<size_t>(random.Below(std::ssize(palette)))];
          break;
        case 1:
          text.erase(at, static_cast<size_t>(random.Between(1, 5)));
          break;
        default:
          text.insert(at, text.substr(at, static_cast<size_t>(random.Between(1, 20))));
      }
    }
    try {
      const RequestRecord record = ReadRecord(text);
      EXPECT_EQ(ReadRecord(WriteRecord(record)), record) << text;
    } catch (const Error& error) {
      EXPECT_FALSE(error.parameter().empty()) << text;
    }
  }
}

}  // namespace
}  // namespace sluice::test
