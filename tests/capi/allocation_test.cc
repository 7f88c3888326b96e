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

TEST(CAllocation, NoCallOfACertifiedHeadAllocates) {
  const std::vector<float> values(40 * 9, 0.5f);
  const sluice_dense_head dense = {
      {values.data(), 40, 9, 9, SLUICE_F32, {SLUICE_CPU, 0}}, nullptr, 0};
  sluice_plane_options options;
  sluice_plane_options_init(&options);
  sluice_head_planes* planes = nullptr;
  ExpectOk(sluice_head_planes_build(&dense.weight, &options, &planes));
  sluice_certified_head* head = nullptr;
  ExpectOk(sluice_certified_head_create(&dense, planes, &head));
  const SelectParams params{.top_k = 3};
  const NoiseKey key;
  sluice_certified_input input;
  sluice_certified_input_init(&input);
  input.hidden = dense.weight;
  input.hidden.rows = 2;
  sluice_row_draws draws;
  sluice_row_draws_init(&draws);
  draws.params = DataAsC<sluice_select_params>(std::span(&params, 1));
  draws.param_count = 1;
  draws.keys = DataAsC<sluice_noise_key>(std::span(&key, 1));
  draws.key_count = 1;
  sluice_sampler_options sampler_options;
  sluice_sampler_options_init(&sampler_options);
  sampler_options.vocab = 40;
  sluice_sampler* sampler = nullptr;
  ExpectOk(sluice_sampler_create(&sampler_options, &sampler));
  sluice_request request;
  sluice_request_init(&request);
  request.params.repetition_penalty = 1.5f;
  sluice_request_handle requests[2];
  for (sluice_request_handle& handle : requests) {
    ExpectOk(sluice_sampler_add(sampler, &request, &handle));
  }
  const Workspace memory(1 << 16);
  const sluice_execution execution = AsC(Execution{.workspace = memory.span()});
  sluice_token_result results[2];
  int32_t ids[6];
  float logits[6];
  sluice_row_status status[2];
  const sluice_certified_top top = {3, ids, 6, logits, 6, status, 2};
  sluice_certified_row rows[2];
  sluice_certified_stats stats;
  int wrong = 0;
  EXPECT_EQ(
      AllocationsOf([&] {
        size_t bytes = 0;
        sluice_sample_from_head_workspace_bytes(head, 2, &execution, &bytes);
        sluice_sample_from_head(head, &input, &draws, results, 2, rows, 2, &stats, &execution);
        sluice_sample_ids_from_head(head, &input, &draws, ids, 2, status, 2, rows, 2, &stats,
                                    &execution);
        sluice_certified_topk(head, &input, &top, rows, 2, &stats, &execution);
        for (int i = 0; i < 50; ++i) {
          wrong |= sluice_sampler_step_from_head(sampler, head, &input, requests, 2, results, 2,
                                                 rows, 2, &stats, &execution);
          wrong |= sluice_sampler_step_ids_from_head(sampler, head, &input, requests, 2, ids, 2,
                                                     status, 2, rows, 2, &stats, &execution);
        }
      }),
      0);
  EXPECT_EQ(stats.rows, 2);
  EXPECT_EQ(wrong, SLUICE_OK);
  for (const sluice_request_handle handle : requests) {
    const int32_t* tokens = nullptr;
    size_t count = 0;
    ExpectOk(sluice_sampler_tokens(sampler, handle, &tokens, &count));
    EXPECT_EQ(count, 100u);
  }
  sluice_sampler_destroy(sampler);
  sluice_certified_head_destroy(head);
  sluice_head_planes_destroy(planes);
}

}  // namespace
}  // namespace sluice::test
