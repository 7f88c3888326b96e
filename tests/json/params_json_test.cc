// Parameters as JSON: what is read, what is refused and by which words, and that what is written
// reads back as the same.
#include "json/params_json.h"

#include <gtest/gtest.h>

#include "sluice/error.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

SamplingParams Parsed(std::string_view json) { return ParseParams(json).params; }

struct BadJson {
  std::string json;
  std::string parameter;
  std::string value;
  std::string allowed;
};

TEST(ParseParams, ReadsEveryKindOfField) {
  const SamplingParams params = Parsed(R"({
    "temperature": 0.7, "top_k": 50, "top_p": 1, "seed": 18446744073709551615,
    "dry_penalty_last_n": -1, "dry_sequence_breaker_ids": [3, 4], "logit_bias": {"17": 2.5, "18": -100},
    "allowed_token_ids": [], "bad_words_token_ids": [[1, 2], [3]], "stop_token_ids": [2],
    "draw_method": "cdf", "draft_mode": "reject", "logprobs": 5, "logprobs_mode": "raw_logits",
    "profile": "hf"})");
  EXPECT_EQ(params.temperature, 0.7f);
  EXPECT_EQ(params.top_k, 50);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.seed, UINT64_MAX);
  EXPECT_EQ(params.dry_sequence_breakers, (TokenIds{3, 4}));
  EXPECT_EQ(params.logit_bias, (BiasEntries{{17, 2.5f}, {18, -100.0f}}));
  EXPECT_EQ(params.allowed_token_ids, TokenIds{});
  EXPECT_EQ(params.bad_words, (TokenSequences{{1, 2}, {3}}));
  EXPECT_EQ(params.stop_token_ids, TokenIds{2});
  EXPECT_EQ(params.draw_method, DrawMethod::kCdf);
  EXPECT_EQ(params.draft_mode, DraftMode::kReject);
  EXPECT_EQ(params.logprobs, 5);
  EXPECT_EQ(params.logprob_mode, LogprobMode::kRawLogits);
  EXPECT_EQ(params.profile, ProfileByName("hf"));
}

TEST(ParseParams, NothingAndNullKeepTheBase) {
  const SamplingParams base{.top_k = 7, .seed = 3};
  EXPECT_EQ(ParseParams("{}", base).params, base);
  EXPECT_EQ(ParseParams(R"({"top_k": null, "seed" : null, "logit_bias":null})", base).params, base);
  EXPECT_EQ(ParseParams(R"({"top_k": 8})", base).params.seed, 3);
}

TEST(ParseParams, AWholeNumberMayBeWrittenAsAReal) {
  EXPECT_EQ(Parsed(R"({"top_k": 5.0})").top_k, 5);
  EXPECT_EQ(Parsed(R"({"top_k": 1e2})").top_k, 100);
  EXPECT_EQ(Parsed(R"({"seed": 7.0})").seed, 7);
  EXPECT_EQ(Parsed(R"({"top_k": -1.0})").top_k, -1);
}

TEST(ParseParams, ARealIsRoundedOnce) {
  // Between two floats, a little above the middle: by way of double it would be rounded to even.
  EXPECT_EQ(Parsed(R"({"temperature": 1.000000059604644775390625000001})").temperature,
            1.00000011920928955f);
  EXPECT_EQ(Parsed(R"({"min_p": 1e-60})").min_p, 0.0f);
}

TEST(ParseParams, UnknownFieldsAreListedInTheirOrder) {
  const ParsedParams parsed = ParseParams(
      R"({"model": "x", "top_k": 3, "messages": [{"a": [1, {"b": null}]}, true, "\u00e9", -1.5e3],
          "n": 123456789012345678901234567890, "model": 2, "n\"": {}})");
  EXPECT_EQ(parsed.params.top_k, 3);
  EXPECT_EQ(parsed.unknown, (std::vector<std::string>{"model", "messages", "n", "n\""}));
}

TEST(ParseParams, AProfileMayBeItsSwitches) {
  const Profile expected{.ties = Ties::kAll, .temperature_stage = TemperatureStage::kLast};
  EXPECT_EQ(Parsed(R"({"profile": {"ties": "all", "temperature_stage": "last", "min_p_stage":
                "before_top_k"}})")
                .profile,
            expected);
  EXPECT_EQ(Parsed(R"({"profile": {}})").profile, Profile{});
}

TEST(ParseParams, ErrorsNameTheFieldItsValueAndWhatIsAllowed) {
  const std::string names = "vllm, hf, sglang, llamacpp, tensorrt-llm";
  const std::string top_k = "a whole number in [-1, 2147483647]";
  const std::string ids = "a whole number in [0, 2147483647]";
  const std::string pairs = "pairs of a token id and a number";
  const std::string switches =
      "the switches ties, top_k_top_p, min_p_stage, top_p_boundary, penalty_scope, "
      "temperature_stage";
  const BadJson cases[] = {
      {R"({"top_p": 1.5})", "top_p", "1.5", "a number in (0, 1]"},
      {R"({"top_p": 0 })", "top_p", "0", "a number in (0, 1]"},
      {R"({"top_p": "0.5"})", "top_p", "\"0.5\"", "a number in (0, 1]"},
      {R"({"top_p": true})", "top_p", "true", "a number in (0, 1]"},
      {R"({"top_p": [0.5]})", "top_p", "a list", "a number in (0, 1]"},
      {R"({"top_p": {}})", "top_p", "an object", "a number in (0, 1]"},
      {R"({"top_p": 1e999})", "top_p", "1e999", "a number in (0, 1]"},
      {R"({"top_p": 1e39})", "top_p", "1e39", "a number in (0, 1]"},
      {R"({"top_p": 0.5x})", "top_p", "0.5x", "a number in (0, 1]"},
      {R"({"top_p": 00.5})", "top_p", "00.5", "a number in (0, 1]"},
      {R"({"top_k": 1.5})", "top_k", "1.5", top_k},
      {R"({"top_k": 3000000000})", "top_k", "3000000000", top_k},
      {R"({"top_k": -2})", "top_k", "-2", top_k},
      {R"({"top_k": 1e300})", "top_k", "1e300", top_k},
      {R"({"top_k": false})", "top_k", "false", top_k},
      {R"({"seed": -1})", "seed", "-1", "a whole number in [0, 18446744073709551615]"},
      {R"({"seed": 18446744073709551616})", "seed", "18446744073709551616",
       "a whole number in [0, 18446744073709551615]"},
      {R"({"seed": "7"})", "seed", "\"7\"", "a whole number in [0, 18446744073709551615]"},
      {R"({"logprobs": 8388609})", "logprobs", "8388609", "a whole number in [-1, 8388608]"},
      {R"({"dry_penalty_last_n": -2})", "dry_penalty_last_n", "-2", top_k},
      {R"({"profile": "tgi"})", "profile", "\"tgi\"", names},
      {R"({"profile": 3})", "profile", "3", names},
      {R"({"profile": {"tie": "all"}})", "profile", "\"tie\"", switches},
      {R"({"profile": {"ties": "none"}})", "profile.ties", "\"none\"", "\"lowest_id\" or \"all\""},
      {R"({"profile": {"ties": 1}})", "profile.ties", "1", "\"lowest_id\" or \"all\""},
      {R"({"profile": {"ties": "all", "ties": "all"}})", "profile", "\"ties\" twice",
       "each switch once"},
      {R"({"draw_method": "uniform"})", "draw_method", "\"uniform\"", "gumbel, cdf"},
      {R"({"logprobs_mode": "raw"})", "logprobs_mode", "\"raw\"",
       "raw_logprobs, raw_logits, processed_logprobs, processed_logits"},
      {R"({"stop_token_ids": 5})", "stop_token_ids", "5", "a list of token ids"},
      {R"({"stop_token_ids": [5, "6"]})", "stop_token_ids", "\"6\"", ids},
      {R"({"stop_token_ids": [[5]]})", "stop_token_ids", "a list", ids},
      {R"({"stop_token_ids": [-5]})", "stop_token_ids", "-5", ids},
      {R"({"bad_words_token_ids": [5]})", "bad_words_token_ids", "5", "a list of token ids"},
      {R"({"bad_words_token_ids": "no"})", "bad_words_token_ids", "\"no\"",
       "a list of lists of token ids"},
      {R"({"logit_bias": 5})", "logit_bias", "5", "an object from token ids to numbers"},
      {R"({"logit_bias": {"x": 5}})", "logit_bias", "\"x\"", ids + " as a key"},
      {R"({"logit_bias": {"-1": 5}})", "logit_bias", "\"-1\"", ids + " as a key"},
      {R"({"logit_bias": {"1": "5"}})", "logit_bias", "\"5\"",
       "a number in [-3.4028235e+38, 3.4028235e+38]"},
      {R"({"logit_bias": {"1": 5, "1": 6}})", "logit_bias", "\"1\" twice", "each token id once"},
      {R"({"logit_bias": [[1]]})", "logit_bias", "a shorter list", pairs},
      {R"({"logit_bias": [[1, 2, 3]]})", "logit_bias", "a longer list", pairs},
      {R"({"logit_bias": [1]})", "logit_bias", "1", pairs},
      {R"({"top_k": 1, "top_p": 1, "top_k": 1})", "top_k", "given twice", "each field once"},
      {R"({"top_k": null, "top_k": 1})", "top_k", "given twice", "each field once"},
      {"[]", "json", "no object", "one JSON object in UTF-8"},
      {"7", "json", "no object", "one JSON object in UTF-8"},
      {"null", "json", "no object", "one JSON object in UTF-8"},
      {"{} {}", "json", "text after the object", "one JSON object in UTF-8"},
      {"{\"profile\": \"" + std::string(60, 'x') + "\"}", "profile",
       "\"" + std::string(40, 'x') + "...\"", names},
  };
  for (const BadJson& bad : cases) {
    SCOPED_TRACE(bad.json);
    ExpectError([&] { ParseParams(bad.json); }, bad.parameter, bad.value, bad.allowed);
  }
}

TEST(ParseParams, WhatIsNoJsonIsRefused) {
  std::string deep = "{\"x\": ";
  for (int i = 0; i < 100000; ++i) deep += "[";
  const std::string cases[] = {
      "",
      " ",
      "{",
      "}",
      "{\"top_k\"}",
      "{\"top_k\": }",
      "{\"top_k\": 1,}",
      "{'top_k': 1}",
      "{top_k: 1}",
      "{\"top_k\": 1 \"top_p\": 1}",
      "{\"x\": tru}",
      "{\"x\": 01}",
      "{\"x\": -}",
      "{\"x\": nul}",
      "{\"x\": [1, 2}",
      "{\"x\": \"\\u12\"}",
      "{\"x\": \"\\q\"}",
      "{\"x\": \"a",
      "{\"x\": \"\xff\"}",
      "{\"\xc3\": 1}",
      "{\"x\": \"\n\"}",
      "{\"top_k\": nul}",
      "{\"top_k\": 1",
      std::string("{\"x\0\": 1}", 9),
      deep,
      deep + std::string(100000, ']') + "}",
  };
  for (const std::string& json : cases) {
    SCOPED_TRACE(json.substr(0, 50));
    EXPECT_THROW(ParseParams(json), Error);
  }
}

TEST(ParseParams, SpoiledTextIsAnErrorOrParameters) {
  const std::string good = WriteParams(
      Parsed(R"({"temperature": 0.5, "seed": 1, "logit_bias": {"1": 2}, "bad_words_token_ids":
             [[1, 2]], "profile": {"ties": "all", "min_p_stage": "last"}, "x": [{"y": "z"}]})"));
  Random random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int64_t n = random.Between(1, 4); n > 0; --n) {
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
      if (text.empty()) break;
    }
    try {
      const SamplingParams params = ParseParams(text).params;
      EXPECT_EQ(Parsed(WriteParams(params)), params) << text;
    } catch (const Error& error) {
      EXPECT_FALSE(error.parameter().empty()) << text;
    }
  }
}

TEST(WriteParams, ReadsBackAsTheSame) {
  EXPECT_EQ(Parsed(WriteParams({})), SamplingParams{});
  Random random(4);
  for (int round = 0; round < 2000; ++round) {
    SamplingParams params = RandomSamplingParams(random.Between(4, 1000), random);
    params.draft_mode = static_cast<DraftMode>(random.Below(2));
    if (random.Coin()) params.seed.reset();
    if (random.Coin(0.1)) params.allowed_token_ids = TokenIds{};
    if (random.Coin(0.1)) params.logit_bias = {{3, 1.5f}, {4, -0.1f}, {3, 1e-30f}};
    if (random.Coin(0.3)) {
      params.profile = {static_cast<Ties>(random.Below(2)),
                        static_cast<TopKTopP>(random.Below(2)),
                        static_cast<MinPStage>(random.Below(2)),
                        static_cast<TopPBoundary>(random.Below(2)),
                        static_cast<PenaltyScope>(random.Below(2)),
                        static_cast<TemperatureStage>(random.Below(2))};
    }
    params.temperature = static_cast<float>(random.Uniform());
    EXPECT_EQ(Parsed(WriteParams(params)), params) << WriteParams(params);
  }
}

TEST(WriteParams, NamesProfilesAndLeavesOutWhatIsUnset) {
  const std::string text = WriteParams({.profile = ProfileByName("sglang")});
  EXPECT_NE(text.find("\"profile\":\"sglang\""), std::string::npos);
  for (const char* absent : {"seed", "logit_bias", "allowed_token_ids", "\"logprobs\""}) {
    EXPECT_EQ(text.find(absent), std::string::npos) << absent;
  }
}

}  // namespace
}  // namespace sluice::test
