// What ranks do not agree on, or what does not fit, is an Error on each of them that names it.
#include <gtest/gtest.h>

#include <functional>

#include "tests/parallel/ranks.h"
#include "tests/support/batch.h"

namespace sluice::test {
namespace {

TEST(ShardSampler, RefusesSlicesThatDoNotAdjoinOnEveryRank) {
  struct Bad {
    std::vector<ShardSlice> slices;
    std::string error;
  };
  const Bad cases[] = {
      {{{10, 0, 4}, {10, 5, 5}},
       "slice.first_id = 5 on rank 1 is not allowed: 4, where rank 0 ends"},
      {{{10, 0, 6}, {10, 5, 5}},
       "slice.first_id = 5 on rank 1 is not allowed: 6, where rank 0 ends"},
      {{{10, 1, 4}, {10, 5, 5}}, "slice.first_id = 1 on rank 0 is not allowed: 0"},
      {{{10, 0, 5}, {10, 5, 4}},
       "slice.tokens = 4 on rank 1 is not allowed: 5, up to the end of the vocabulary"},
      {{{10, 0, 5}, {10, 5, 6}}, "slice.tokens = 6 on rank 1 is not allowed: [0, 5]"},
      {{{10, 0, -1}, {10, 5, 5}}, "slice.tokens = -1 on rank 0 is not allowed: [0, 10]"},
      {{{10, 0, 5}, {11, 5, 6}}, "slice.vocab = 11 on rank 1 is not allowed: 10, as on rank 0"},
      {{{0, 0, 0}, {0, 0, 0}}, "slice.vocab = 0 is not allowed: [1, 8388608]"},
  };
  for (const Bad& bad : cases) {
    const auto answers = AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
      ShardSampler sampler(group, bad.slices[static_cast<size_t>(group.rank())]);
      return "";
    });
    EXPECT_EQ(answers, std::vector<std::string>(2, bad.error));
  }
}

TEST(ShardSampler, RefusesRanksWithOtherCandidates) {
  const auto answers = AnswersOfGroup(3, [&](ShardGroup& group) -> std::string {
    ShardSampler sampler(group, {9, group.rank() * 3, 3}, group.rank() == 2 ? 32 : 64);
    return "";
  });
  EXPECT_EQ(answers, std::vector<std::string>(
                         3, "candidates = 32 on rank 2 is not allowed: 64, as on rank 0"));
}

TEST(ShardSampler, RefusesRowsWhoseParametersDifferOnEveryRank) {
  struct Bad {
    std::function<void(SelectInput&, SelectParams&, NoiseKey&)> spoil;
    std::string error;
  };
  const Bad cases[] = {
      {[](SelectInput&, SelectParams& p, NoiseKey&) { p.top_p = 0.5f; },
       "params.top_p = 0.5 on rank 1 is not allowed: 1, as on rank 0"},
      {[](SelectInput&, SelectParams& p, NoiseKey&) { p.top_k = -1; },
       "params.top_k = -1 on rank 1 is not allowed: 0, as on rank 0"},
      {[](SelectInput&, SelectParams& p, NoiseKey&) { p.profile.ties = Ties::kAll; },
       "params.profile.ties = 1 on rank 1 is not allowed: 0, as on rank 0"},
      {[](SelectInput&, SelectParams&, NoiseKey& key) { key.seed = 4; },
       "keys.seed = 4 on rank 1 is not allowed: 3, as on rank 0"},
      {[](SelectInput& input, SelectParams&, NoiseKey&) { input.limits.max_temperature = 5.0f; },
       "limits.max_temperature = 5 on rank 1 is not allowed: 2, as on rank 0"},
  };
  for (const Bad& bad : cases) {
    const auto answers = AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
      ShardSampler sampler(group, {8, group.rank() * 4, 4});
      const Batch own({{0, 1, 2, 3}, {3, 2, 1, 0}});
      std::vector<SelectParams> params(2);
      std::vector<NoiseKey> keys(2, NoiseKey{3, 0, 0});
      SelectInput input{own.view(), params, keys};
      if (group.rank() == 1) bad.spoil(input, params[1], keys[1]);
      std::vector<TokenResult> results(2);
      sampler.Sample(input, DrawMethod::kGumbel, results, {});
      return "";
    });
    EXPECT_EQ(answers, std::vector<std::string>(2, bad.error));
  }
}

TEST(ShardSampler, RefusesLogprobsOfOtherTokensOrParametersOnEveryRank) {
  struct Bad {
    std::function<void(LogprobInput&, SelectParams&, TokenResult&)> spoil;
    std::string error;
  };
  const Bad cases[] = {
      {[](LogprobInput&, SelectParams& p, TokenResult&) { p.temperature = 0.5f; },
       "params.temperature = 0.5 on rank 1 is not allowed: 1, as on rank 0"},
      {[](LogprobInput& input, SelectParams&, TokenResult&) {
         input.mode = LogprobMode::kRawLogits;
       },
       "mode = 1 on rank 1 is not allowed: 2, as on rank 0"},
      {[](LogprobInput&, SelectParams&, TokenResult& result) { result.id = 5; },
       "results.id = 5 on rank 1 is not allowed: 3, as on rank 0"},
      {[](LogprobInput&, SelectParams&, TokenResult& result) { result.id = -1; },
       "results.id = -1 on rank 1 is not allowed: 3, as on rank 0"},
      {[](LogprobInput&, SelectParams&, TokenResult& result) { result.cut.lower = 2.0f; },
       "results.cut.lower = 2 on rank 1 is not allowed: 0, as on rank 0"},
  };
  for (const Bad& bad : cases) {
    const auto answers = AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
      ShardSampler sampler(group, {8, group.rank() * 4, 4});
      const Batch own({{0, 1, 2, 3}, {3, 2, 1, 0}});
      std::vector<SelectParams> params(2);
      std::vector<TokenResult> results(2);
      for (TokenResult& result : results) {
        result.id = 3;
        result.cut.lower = 0.0f;
        result.cut.ties_kept = 2;
        result.cut.count = 8;
      }
      LogprobInput input{own.view(), LogprobMode::kProcessedLogprobs, params};
      if (group.rank() == 1) bad.spoil(input, params[1], results[1]);
      sampler.Logprobs(input, results, {});
      return "";
    });
    EXPECT_EQ(answers, std::vector<std::string>(2, bad.error));
  }
}

TEST(ShardSampler, RefusesRanksThatMakeDifferentCallsOnEveryRank) {
  const auto answers = AnswersOfGroup(3, [&](ShardGroup& group) -> std::string {
    // With two candidates a row's first message has 32 bytes in both calls.
    ShardSampler sampler(group, {12, group.rank() * 4, 4}, 2);
    const Batch own({{0, 1, 2, 3}});
    const SelectParams params;
    const NoiseKey key;
    std::vector<TokenResult> results(1);
    if (group.rank() == 2) {
      sampler.Logprobs({own.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, {});
    } else {
      sampler.Sample({own.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, results, {});
    }
    return "";
  });
  EXPECT_EQ(answers, std::vector<std::string>(3,
                                              "call = exchange 1 of Logprobs on rank 2 is not "
                                              "allowed: exchange 1 of Sample, as on rank 0"));
}

// Ranks that have refused a call are in step: the next one is answered.
TEST(ShardSampler, GoesOnBehindWhatAllRanksRefused) {
  ExpectAllWell(AnswersOfGroup(2, [](ShardGroup& group) -> std::string {
    // With two candidates the first messages of both calls have as many bytes: else the group is
    // lost.
    ShardSampler sampler(group, {8, group.rank() * 4, 4}, 2);
    const Batch own(
        {group.rank() == 0 ? std::vector<float>{0, 1, 2, 3} : std::vector<float>{4, 9, 6, 7}});
    const NoiseKey key{3, 0, 0};
    auto sample = [&](float temperature) -> std::string {
      const SelectParams params{.temperature = temperature};
      std::vector<TokenResult> results(1);
      try {
        sampler.Sample({own.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, results, {});
      } catch (const Error& error) {
        return error.parameter();
      }
      return std::to_string(results[0].id);
    };
    auto logprobs = [&]() -> std::string {
      const SelectParams params;
      std::vector<TokenResult> results(1);
      try {
        sampler.Logprobs({own.view(), LogprobMode::kRawLogprobs, {&params, 1}}, results, {});
      } catch (const Error& error) {
        return error.parameter();
      }
      return "";
    };
    for (int i = 0; i < 3; ++i) {
      const std::string other_row = sample(group.rank() == 0 ? 1.0f : 0.5f);
      if (other_row != "params.temperature") return "a differing row: " + other_row;
      const std::string other_call = group.rank() == 0 ? sample(1.0f) : logprobs();
      if (other_call != "call") return "a differing call: " + other_call;
      const std::string greedy = sample(0.0f);
      if (greedy != "5") return "behind them: " + greedy;
    }
    return "";
  }));
}

TEST(ShardSampler, RefusesABackendThatIsNotThereBeforeItSends) {
  ExpectAllWell(AnswersOfGroup(1, [](ShardGroup& group) -> std::string {
    ShardSampler sampler(group, {4, 0, 4});
    const Batch own({{0, 1, 2, 3}});
    const SelectParams params;
    const NoiseKey key;
    std::vector<TokenResult> results(1);
    const int64_t before = sampler.traffic().exchanges;
    try {
      sampler.Sample({own.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, results,
                     {static_cast<Backend>(99)});
    } catch (const Error&) {
      return sampler.traffic().exchanges == before ? "" : "sent something";
    }
    return "no Error";
  }));
}

TEST(ShardSampler, RefusesArgumentsThatDoNotFit) {
  ExpectAllWell(AnswersOfGroup(1, [](ShardGroup& group) -> std::string {
    ShardSampler sampler(group, {8, 0, 8});
    const Batch own({std::vector<float>(7, 0.0f)});
    const SelectParams params;
    const NoiseKey key;
    std::vector<TokenResult> results(1);
    try {
      sampler.Sample({own.view(), {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, results, {});
    } catch (const Error& error) {
      const std::string expected = "logits.vocab = 7 is not allowed: [8, 8388608]";
      return error.what() == expected ? "" : error.what();
    }
    return "no Error";
  }));
}

}  // namespace
}  // namespace sluice::test
