// Calls on rows and steps take no memory through the C interface either.
#include <gtest/gtest.h>

#include "tests/capi/as_c.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

template <typename Body>
int64_t AllocationsOf(Body body) {
  const int64_t before = AllocationCount();
  body();
  return AllocationCount() - before;
}

TEST(CAllocation, NeitherCallsNorStepsAllocate) {
  constexpr int64_t kVocab = 300;
  std::vector<float> values(2 * kVocab);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  const std::vector<SelectParams> params(1, {.top_k = 3, .top_p = 0.9f});
  const std::vector<NoiseKey> keys(1);
  const SelectInput cpp{{values.data(), 2, kVocab, kVocab}, params, keys};
  const Workspace memory(SelectWorkspaceBytes(cpp.logits, {}));
  const sluice_execution execution = AsC(Execution{.workspace = memory.span()});
  const sluice_select_input input = AsC(cpp);
  sluice_cut cuts[2];
  sluice_token_result results[2];
  EXPECT_EQ(AllocationsOf([&] {
              size_t bytes = 0;
              sluice_select_workspace_bytes(&input.logits, &execution, &bytes);
              sluice_select(&input, cuts, 2, nullptr, 0, &execution);
              sluice_sample(&input, SLUICE_DRAW_GUMBEL, results, 2, &execution);
            }),
            0);

  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = kVocab;
  sluice_sampler* sampler = nullptr;
  EXPECT_GT(AllocationsOf([&] { sluice_sampler_create(&options, &sampler); }), 0);
  sluice_request request;
  sluice_request_init(&request);
  request.params.repetition_penalty = 1.5f;
  sluice_step_request steps[2];
  for (sluice_step_request& step : steps) {
    sluice_step_request_init(&step);
    ExpectOk(sluice_sampler_add(sampler, &request, &step.request));
  }
  int32_t emitted[2];
  const sluice_step_input step_input = {input.logits, steps, 2};
  sluice_step_output output = {};
  output.tokens = results;
  output.token_count = 2;
  output.emitted = emitted;
  output.emitted_count = 2;
  EXPECT_EQ(AllocationsOf([&] {
              for (int i = 0; i < 100; ++i) sluice_sampler_step(sampler, &step_input, &output);
            }),
            0);
  EXPECT_EQ(emitted[0], 1);
  sluice_sampler_destroy(sampler);
}

}  // namespace
}  // namespace sluice::test
