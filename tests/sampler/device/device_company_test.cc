// What steps ask for one by one elsewhere, all at once: a head in the graph, adjustments, masks,
// every filter, drafts of both modes in chains and trees, processors, log-probabilities, kept sets,
// and answers that are read late or never.
#include "tests/sampler/device/device_mix.h"

namespace sluice::test {
namespace {

class DeviceCompany : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(DeviceCompany, OfEverythingGivesTheSamplersTokens) {
  Random random(47);
  int64_t tokens = 0;
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Mix mix({.vocab = round % 3 == 2 ? random.Between(100, 700) : random.Between(5, 40),
             .dtype = GetParam(),
             .max_requests = round % 4 == 3 ? 24 : 8,
             .max_drafts = round % 2 == 0 ? 8 : 3,
             .cuts = true,
             .kept = true,
             .processors = true,
             .head = true,
             .unread = round % 4},
            random.Bits());
    for (int step = 0; step < 50 && !HasFailure(); ++step) mix.Step();
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 2000);  // the test tests something
}

TEST_P(DeviceCompany, OfStepsThatNobodyHasReadGivesTheSamplersTokens) {
  Random random(53);
  int64_t tokens = 0;
  for (int round = 0; round < 9 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Mix mix({.vocab = random.Between(5, 60),
             .dtype = GetParam(),
             .max_requests = 8,
             .max_tokens = 90,
             .cuts = round % 2 == 1,
             .kept = round % 3 == 0,
             .unread = 1 + round % 3},
            random.Bits());
    for (int step = 0; step < 80 && !HasFailure(); ++step) mix.Step();
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 2000);
}

INSTANTIATE_TEST_SUITE_P(, DeviceCompany, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

// The fifth draft that is tried at a node takes its acceptance from another block of noise, and
// what is left of P for it has gone through four rejections.
TEST(DeviceTries, OfManySiblingsGiveTheSamplersTokens) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kVocab = 20;
  constexpr int32_t kSiblings = 9;
  Random random(59);
  std::vector<int32_t> drafts, parents(kSiblings, -1);
  for (int32_t i = 0; i < kSiblings; ++i) drafts.push_back(2 * i);
  for (const bool has_probabilities : {false, true}) {
    SCOPED_TRACE(has_probabilities);
    Sampler host({.vocab = kVocab, .max_requests = 1});
    cuda::DeviceSampler device({.vocab = kVocab, .max_requests = 1, .max_drafts = kSiblings});
    SamplingParams params{.seed = 3};
    params.draft_mode = DraftMode::kReject;
    StepRequest on_host{
        .request = host.Add({.params = params}), .drafts = drafts, .parents = parents};
    StepRequest on_device = on_host;
    on_device.request = device.Add({.params = params});
    std::vector<float> q(kSiblings * kVocab);
    OnDevice<float> q_there(q.size());
    int64_t by_late_tries = 0;
    for (int step = 0; step < 300 && !HasFailure(); ++step) {
      std::vector<std::vector<float>> rows(1 + kSiblings, std::vector<float>(kVocab));
      for (auto& row : rows) {
        for (float& x : row) x = static_cast<float>(random.Uniform());
      }
      const Batch batch(rows);
      const DeviceBatch there(batch);
      if (has_probabilities) {
        for (float& x : q) x = static_cast<float>(random.Uniform() * 0.3);
        q_there.Set(q);
        on_host.draft_probabilities = {q.data(), kSiblings, kVocab, kVocab, DType::kF32, {}};
        on_device.draft_probabilities = on_host.draft_probabilities;
        on_device.draft_probabilities.data = q_there.data();
        on_device.draft_probabilities.device = {DeviceKind::kCuda, 0};
      }
      const Stepped expected = StepAll(host, batch.view(), {&on_host, 1});
      const auto actual = device.Step({there.view(), {&on_device, 1}}, nullptr).Get();
      ExpectSame(actual, expected, 0);
      EXPECT_TRUE(SameSequence(actual.path, expected.path));
      by_late_tries += expected.path[1] > 4 ? 1 : 0;
      const int32_t emitted = expected.emitted[0];
      host.Rollback(on_host.request, emitted - 1);
      device.Rollback(on_device.request, emitted - 1);
    }
    EXPECT_GT(by_late_tries, 20);
  }
}

}  // namespace
}  // namespace sluice::test
