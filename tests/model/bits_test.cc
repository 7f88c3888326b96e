// The hidden state of a position has the same bits on every backend, alone or in any batch, in one
// chunk or in many, whatever the weights are stored as.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/model/fixture.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/random.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

// Beyond every window of the fixtures, and not a whole number of pages.
constexpr size_t kTokens = 75;

void Backwards(void*, int64_t count, ParallelFor::Task task, void* state) {
  for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
}

class HiddenStateBits : public testing::TestWithParam<std::tuple<const char*, WeightFormat>> {
 protected:
  HiddenStateBits()
      : model_(OpenFixture(std::get<0>(GetParam()), std::get<1>(GetParam()))),
        tokens_(ExpectedOf(std::get<0>(GetParam())).Tokens()) {
    tokens_.resize(kTokens);
    static std::map<ParamType, std::vector<float>> expected;  // for all tests of a model
    std::vector<float>& of_this = expected[GetParam()];
    if (of_this.empty()) of_this = HiddenStates(model_, tokens_);
    expected_ = of_this;
  }
  size_t dim() const { return static_cast<size_t>(model_.info().dim); }

  Model model_;
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;  // of the definition, in one chunk
};

TEST_P(HiddenStateBits, AreTheSameOnEveryBackendInChunksOfAnySize) {
  for (const float x : expected_) ASSERT_TRUE(std::isfinite(x));
  int number = 0;
  for (const Backend backend : AvailableBackends()) {
    for (const size_t chunk_size : {1, 7, 16, 33, 256}) {
      if (!IsTried(number++)) continue;
      EXPECT_TRUE(SameSequence(HiddenStates(model_, tokens_, backend, chunk_size), expected_))
          << "backend " << static_cast<int>(backend) << ", chunks of " << chunk_size;
    }
  }
}

TEST_P(HiddenStateBits, AreTheSameOnAnyParallelFor) {
  for (const Backend backend : AvailableBackends()) {
    const ParallelFor parallel{3, nullptr, Backwards};
    for (const size_t chunk_size : {1, 16}) {
      if (kSlowdown > 1 && (chunk_size == 1) != (backend == Backend::kRef)) continue;
      EXPECT_TRUE(
          SameSequence(HiddenStates(model_, tokens_, backend, chunk_size, parallel), expected_));
    }
  }
}

// Norms, angles and scales are made when a model is opened, in the defined environment too.
TEST_P(HiddenStateBits, AreTheSameWhateverTheCallersRounding) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const Model opened = OpenFixture(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::vector<float> found = HiddenStates(opened, tokens_);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_TRUE(SameSequence(found, expected_));
}

// Three sequences in chunks of any size and order: prompts beside single tokens, with or without
// the hidden states of a chunk's first positions.
TEST_P(HiddenStateBits, AreTheSameInABatch) {
  Random random(7);
  std::vector<std::vector<int32_t>> tokens(3, tokens_);
  std::reverse(tokens[1].begin(), tokens[1].end());
  for (int32_t& id : tokens[2]) id = static_cast<int32_t>(random.Below(model_.info().vocab));
  std::vector<std::vector<float>> expected;
  expected.push_back(expected_);
  for (size_t s = 1; s < 3; ++s) expected.push_back(HiddenStates(model_, tokens[s]));

  for (const Backend backend : AvailableBackends()) {
    if (kSlowdown > 1 && backend == Backend::kRef) continue;  // it has read them, in one chunk
    Decoder decoder(model_,
                    {.max_sequences = 3, .cache_tokens = 3 * kFixtureTokens, .backend = backend});
    const SequenceHandle handles[] = {decoder.Add(), decoder.Add(), decoder.Add()};
    size_t done[3] = {};
    while (std::min({done[0], done[1], done[2]}) < kTokens) {
      std::vector<DecodeChunk> chunks;
      std::vector<float> wanted;
      const size_t first = static_cast<size_t>(random.Below(3));
      for (size_t i = 0; i < 3; ++i) {
        const size_t s = (first + i) % 3;
        const size_t size =
            std::min(kTokens - done[s], static_cast<size_t>(random.Coin() ? 1 : random.Below(24)));
        if (size == 0) continue;
        const size_t rows = static_cast<size_t>(random.Below(static_cast<int64_t>(size) + 1));
        chunks.push_back(
            {handles[s], std::span(tokens[s]).subspan(done[s], size), static_cast<int64_t>(rows)});
        done[s] += size;
        const float* end = expected[s].data() + done[s] * dim();
        wanted.insert(wanted.end(), end - rows * dim(), end);
      }
      std::vector<float> hidden(wanted.size());
      decoder.Forward(chunks, hidden);
      ASSERT_TRUE(SameSequence(hidden, wanted)) << "backend " << static_cast<int>(backend);
    }
  }
}

std::string BitsName(const testing::TestParamInfo<std::tuple<const char*, WeightFormat>>& info) {
  const bool is_int8 = std::get<1>(info.param) == WeightFormat::kInt8;
  return std::get<0>(info.param) + std::string(is_int8 ? "_int8" : "_as_stored");
}

INSTANTIATE_TEST_SUITE_P(All, HiddenStateBits,
                         testing::Combine(testing::ValuesIn(kFixtures),
                                          testing::Values(WeightFormat::kAsStored,
                                                          WeightFormat::kInt8)),
                         BitsName);

}  // namespace
}  // namespace sluice::test
