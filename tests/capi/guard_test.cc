// Nothing that is thrown inside leaves the C interface.
#include "capi/guard.h"

#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/as_c.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using capi::CallbackFailed;
using capi::Guarded;

void ExpectParts(const std::string& parameter, const std::string& value,
                 const std::string& allowed) {
  EXPECT_EQ(sluice_last_error_parameter(), parameter);
  EXPECT_EQ(sluice_last_error_value(), value);
  EXPECT_EQ(sluice_last_error_allowed(), allowed);
}

TEST(CGuard, TurnsEveryKindOfExceptionIntoAStatus) {
  EXPECT_EQ(Guarded([] {}), SLUICE_OK);
  for (const auto& [code, status] : {std::pair{ErrorCode::kInvalidValue, SLUICE_INVALID_VALUE},
                                     {ErrorCode::kInvalidType, SLUICE_INVALID_TYPE},
                                     {ErrorCode::kUnavailable, SLUICE_UNAVAILABLE},
                                     {ErrorCode::kExhausted, SLUICE_EXHAUSTED}}) {
    const Error error(code, "name", "7", "[0, 1]");
    EXPECT_EQ(Guarded([&] { throw error; }), status);
    EXPECT_STREQ(sluice_last_error(), error.what());
    ExpectParts("name", "7", "[0, 1]");
  }
  struct Derived : Error {
    using Error::Error;
  };
  EXPECT_EQ(Guarded([] { throw Derived(ErrorCode::kExhausted, "a", "b", "c"); }), SLUICE_EXHAUSTED);
  EXPECT_EQ(Guarded([] { throw std::bad_alloc(); }), SLUICE_OUT_OF_MEMORY);
  EXPECT_STREQ(sluice_last_error(), "out of memory");
  ExpectParts("", "", "");
  EXPECT_EQ(Guarded([] { throw std::length_error("vector"); }), SLUICE_OUT_OF_MEMORY);
  EXPECT_EQ(Guarded([] { throw CallbackFailed{"it said no"}; }), SLUICE_CALLBACK_FAILED);
  EXPECT_STREQ(sluice_last_error(), "it said no");
  EXPECT_EQ(Guarded([] { throw std::runtime_error("why"); }), SLUICE_CALLBACK_FAILED);
  EXPECT_STREQ(sluice_last_error(), "a callback threw: why");
  EXPECT_EQ(Guarded([] { throw 7; }), SLUICE_CALLBACK_FAILED);
  EXPECT_STREQ(sluice_last_error(), "a callback threw");
}

TEST(CGuard, SuccessLeavesTheLastErrorAlone) {
  Guarded([] { throw Error(ErrorCode::kInvalidValue, "k", "0", "1"); });
  Guarded([] {});
  EXPECT_STREQ(sluice_last_error(), "k = 0 is not allowed: 1");
}

TEST(CGuard, AnEmptyValueIsAMissingOne) {
  Guarded([] { throw Error(ErrorCode::kInvalidValue, "prompt", "", "a text"); });
  EXPECT_STREQ(sluice_last_error(), "missing prompt: a text");
  ExpectParts("prompt", "", "a text");
  Guarded([] { throw Error(ErrorCode::kInvalidValue, "a.jsonl: line 3: prompt", "", "a text"); });
  EXPECT_STREQ(sluice_last_error(), "a.jsonl: line 3: missing prompt: a text");
}

TEST(CGuard, TheLastErrorIsOfItsThread) {
  Guarded([] { throw Error(ErrorCode::kInvalidValue, "here", "0", "1"); });
  std::thread([] {
    EXPECT_STREQ(sluice_last_error(), "");
    Guarded([] { throw Error(ErrorCode::kInvalidValue, "there", "0", "1"); });
    EXPECT_STREQ(sluice_last_error(), "there = 0 is not allowed: 1");
  }).join();
  EXPECT_STREQ(sluice_last_error(), "here = 0 is not allowed: 1");
}

// A parallel-for that throws, through every call that takes one.
TEST(CGuard, AThrowingParallelForStopsAtTheInterface) {
  const std::vector<float> values = {0, 1, 2, 3};
  const std::vector<SelectParams> params(1);
  const std::vector<NoiseKey> keys(1);
  const SelectInput cpp{{values.data(), 1, 4, 4}, params, keys};
  const sluice_select_input input = AsC(cpp);
  const Workspace memory(SelectWorkspaceBytes(cpp.logits, {}));
  sluice_execution execution = AsC(Execution{.workspace = memory.span()});
  execution.parallel.run = [](void*, int64_t, sluice_task, void*) {
    throw std::runtime_error("no threads");
  };
  sluice_cut cut{};
  cut.count = 4;
  cut.ties_kept = 1;
  sluice_token_result result{};
  const sluice_shard shard{input.logits, 0};
  sluice_shard_input shards;
  sluice_shard_input_init(&shards);
  shards.shards = &shard;
  shards.shard_count = 1;
  shards.params = input.params;
  shards.param_count = 1;
  shards.keys = input.keys;
  shards.key_count = 1;
  for (const sluice_status status :
       {sluice_select(&input, &cut, 1, nullptr, 0, &execution),
        sluice_draw(&input, SLUICE_DRAW_CDF, &cut, 1, &result, 1, &execution),
        sluice_sample(&input, SLUICE_DRAW_CDF, &result, 1, &execution),
        sluice_select_shards(&shards, &cut, 1, &execution),
        sluice_sample_shards(&shards, SLUICE_DRAW_CDF, &result, 1, &execution)}) {
    EXPECT_EQ(status, SLUICE_CALLBACK_FAILED);
  }
  EXPECT_STREQ(sluice_last_error(), "a callback threw: no threads");
}

TEST(CGuard, AProcessorThatFailsEndsItsRequestAlone) {
  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = 4;
  sluice_sampler* sampler = nullptr;
  ExpectOk(sluice_sampler_create(&options, &sampler));
  const sluice_logits_processor failing = {
      nullptr, [](void*, const int32_t*, size_t, size_t, float*, size_t) { return 5; }, false};
  sluice_request request;
  sluice_request_init(&request);
  sluice_step_request steps[2];
  for (size_t i = 0; i < 2; ++i) {
    sluice_step_request_init(&steps[i]);
    request.processors = &failing;
    request.processor_count = i == 0 ? 1 : 0;
    ExpectOk(sluice_sampler_add(sampler, &request, &steps[i].request));
  }
  const float logits[8] = {0, 1, 2, 3, 0, 1, 2, 3};
  sluice_token_result tokens[2];
  int32_t emitted[2];
  const sluice_step_input input = {{logits, 2, 4, 4, SLUICE_F32, {SLUICE_CPU, 0}}, steps, 2};
  sluice_step_output output = {};
  output.tokens = tokens;
  output.token_count = 2;
  output.emitted = emitted;
  output.emitted_count = 2;
  EXPECT_EQ(sluice_sampler_step(sampler, &input, &output), SLUICE_CALLBACK_FAILED);
  EXPECT_STREQ(sluice_last_error(), "a logits processor returned 5");
  EXPECT_EQ(emitted[0], 0);
  EXPECT_EQ(emitted[1], 1);
  sluice_sampler_destroy(sampler);
}

}  // namespace
}  // namespace sluice::test
