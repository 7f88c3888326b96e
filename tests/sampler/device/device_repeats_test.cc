// DRY on the device sees the repeats of the definition, however long they are, in time that grows
// with the tokens.
#include <chrono>
#include <vector>

#include "sluice/cuda/sampler.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

using DeviceRepeats = DeviceTest;

constexpr int64_t kVocab = 48;
constexpr int32_t kListed = 32;

SamplingParams Dry(int32_t allowed_length, float base) {
  SamplingParams params;
  params.dry_multiplier = 0.25f;
  params.dry_base = base;
  params.dry_allowed_length = allowed_length;
  params.logprobs = kListed;
  params.logprob_mode = LogprobMode::kProcessedLogits;
  params.seed = 3;
  return params;
}

// Histories with repeats of many lengths.
std::vector<std::vector<int32_t>> Histories(Random& random) {
  std::vector<std::vector<int32_t>> histories = {std::vector<int32_t>(2000, 7)};
  auto id = [&] { return static_cast<int32_t>(random.Below(kVocab)); };
  for (const size_t period : {2, 7, 300}) {
    std::vector<int32_t> history;
    for (size_t i = 0; i < period; ++i) history.push_back(id());
    while (history.size() < 1800) history.push_back(history[history.size() - period]);
    histories.push_back(history);
    history[1000] = id();  // the repeats end here
    histories.push_back(history);
  }
  histories.emplace_back();
  for (int i = 0; i < 600; ++i) histories.back().push_back(static_cast<int32_t>(random.Below(3)));
  return histories;
}

TEST_F(DeviceRepeats, AreThoseOfTheDefinitionHoweverLong) {
  Random random(31);
  const Batch batch({MakeRow(RowKind::kMid, kVocab, random)}, DType::kF32);
  const DeviceBatch device(batch);
  cuda::DeviceSampler sampler({.vocab = kVocab,
                               .max_requests = 1,
                               .max_drafts = 2,
                               .max_tokens = 2100,
                               .max_logprobs = kListed});
  Sampler host({.vocab = kVocab});
  for (const std::vector<int32_t>& history : Histories(random)) {
    for (const int32_t allowed : {1, 2, 255, 256, 257, 800, 1799, 1999, 2000, 2100, INT32_MAX}) {
      for (const float base : {1.0f, 1.0000001f, 1.001f, 1.75f}) {
        SamplingParams params = Dry(allowed, base);
        if (random.Coin(0.3)) params.dry_range = static_cast<int32_t>(random.Between(0, 1500));
        if (random.Coin(0.2)) params.dry_sequence_breakers = {history[history.size() / 3]};
        const StepRequest on_host{.request = host.Add({.params = params, .prompt = history})};
        const StepRequest there{.request = sampler.Add({.params = params, .prompt = history})};
        const Stepped expected = StepAll(host, batch.view(), {&on_host, 1}, 1 + kListed);
        const auto actual = sampler.Step({device.view(), {&there, 1}}, nullptr).Get();
        ASSERT_TRUE(SameSequence(actual.list_values, expected.values))
            << history.size() << " tokens, allowed_length " << allowed << ", base " << base;
        host.Remove(on_host.request);
        sampler.Remove(there.request);
      }
    }
  }
}

// A compare of every two tokens takes minutes here.
TEST_F(DeviceRepeats, TakeTimeThatGrowsWithTheTokens) {
  constexpr int32_t kTokens = 1 << 20;
  Random random(5);
  const DeviceBatch device(Batch({MakeRow(RowKind::kMid, kVocab, random)}, DType::kF32));
  cuda::DeviceSampler sampler(
      {.vocab = kVocab, .max_requests = 1, .max_tokens = kTokens + 8, .max_logprobs = kListed});
  const std::vector<int32_t> prompt(kTokens, 7);
  for (const int32_t allowed : {2, kTokens / 2, kTokens + 8}) {
    const StepRequest request{
        .request = sampler.Add({.params = Dry(allowed, 1.0000002f), .prompt = prompt})};
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(sampler.Step({device.view(), {&request, 1}}, nullptr).Get().emitted[0], 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << allowed;
    sampler.Remove(request.request);
  }
}

}  // namespace
}  // namespace sluice::test
