// Steps of requests from a certified head through C: what the C++ head gives, and the sampler's own
// step on the dense head's logits; errors name what was wrong, and nothing has changed.
#include <functional>
#include <string>
#include <vector>

#include "tests/capi/certified_head.h"
#include "tests/sampler/stepping.h"

namespace sluice::test {
namespace {

// A request for each of the fixture's rows, of which two are not finite.
class CCertifiedStep : public CCertifiedHead {
 protected:
  CCertifiedStep() : requests_(kRows) {
    bitmask_.assign(bitmask_.size(), -1);
    for (size_t r = 0; r < kRows; ++r) requests_[r].seed = 11 + r;
    requests_[0].temperature = 0.0f;
    requests_[0].repetition_penalty = 1.3f;
    requests_[1].top_k = 9;
    requests_[1].frequency_penalty = 0.5f;
    requests_[1].presence_penalty = 0.5f;
    requests_[1].logit_bias = {{7, 3.0f}, {8, -100.0f}};
    requests_[2].min_tokens = 3;
    requests_[2].stop_token_ids = {1, 2};
    requests_[2].bad_words = {{3}, {4, 5}};
    requests_[2].top_k = 2;
    requests_[3].allowed_token_ids = {{5, 6, 7}};
    sluice_sampler_options options;
    sluice_sampler_options_init(&options);
    options.vocab = kVocab;
    for (sluice_sampler*& sampler : samplers_) ExpectOk(sluice_sampler_create(&options, &sampler));
    for (const SamplingParams& params : requests_) {
      const CSamplingParams c(params);
      sluice_request request;
      sluice_request_init(&request);
      request.params = c.params;
      request.prompt = prompt_.data();
      request.prompt_count = prompt_.size();
      sluice_request_handle handle;
      for (sluice_sampler* sampler : samplers_) {
        ExpectOk(sluice_sampler_add(sampler, &request, &handle));
      }
      handles_.push_back(handle);  // they all name it alike
    }
  }
  ~CCertifiedStep() override {
    for (sluice_sampler* sampler : samplers_) sluice_sampler_destroy(sampler);
  }

  std::vector<RequestHandle> AddAllTo(Sampler& sampler) const {
    std::vector<RequestHandle> handles;
    for (const SamplingParams& params : requests_) {
      handles.push_back(sampler.Add({.params = params, .prompt = prompt_}));
    }
    return handles;
  }
  static std::vector<int32_t> TokensOf(const sluice_sampler* sampler,
                                       sluice_request_handle handle) {
    const int32_t* tokens = nullptr;
    size_t count = 0;
    ExpectOk(sluice_sampler_tokens(sampler, handle, &tokens, &count));
    return {tokens, tokens + count};
  }

  std::vector<int32_t> prompt_ = {1, 2, 3, 4, 4, 9};
  std::vector<SamplingParams> requests_;
  sluice_sampler* samplers_[2] = {};
  std::vector<sluice_request_handle> handles_;
};

TEST_F(CCertifiedStep, GivesWhatTheCppHeadAndTheDenseHeadGive) {
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead cpp = CppHead(kind);
    const sluice_certified_head* const head =
        Head(Built(Options(static_cast<sluice_certificate_kind>(kind))));
    Sampler dense({.vocab = kVocab});
    Sampler certified({.vocab = kVocab});
    const std::vector<RequestHandle> of_dense = AddAllTo(dense);
    const std::vector<RequestHandle> of_certified = AddAllTo(certified);
    for (const size_t i : {0, 1}) {  // from the beginning for either kind
      for (const sluice_request_handle handle : handles_) {
        const size_t count = TokensOf(samplers_[i], handle).size() - prompt_.size();
        ExpectOk(sluice_sampler_rollback(samplers_[i], handle, static_cast<int64_t>(count)));
      }
    }
    const Batch logits(DenseLogits(cpp.head(), CppInput()));
    std::vector<StepRequest> dense_step;
    for (const RequestHandle handle : of_dense) dense_step.push_back({.request = handle});
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(testing::Message() << Name(kind) << ", step " << step);
      const std::vector<TokenResult> expected = StepTokens(dense, logits.view(), dense_step);
      std::vector<TokenResult> results(kRows);
      std::vector<CertifiedRow> rows(kRows);
      AlignedBytes memory(SampleFromHeadWorkspaceBytes(cpp, kRows, {}));
      const CertifiedStats stats = certified.StepFromHead(cpp, CppInput(), of_certified, results,
                                                          rows, {.workspace = memory.span()});
      const Drawn all = Stepped(head, samplers_[0], handles_);
      const Drawn ids = SteppedIds(head, samplers_[1], handles_);
      ExpectSame(all.stats, stats);
      for (size_t r = 0; r < kRows; ++r) {
        ExpectSame(all.rows[r], rows[r]);
        EXPECT_TRUE(SameBits(AsC<TokenResult>(all.results[r]), results[r])) << r;
        EXPECT_TRUE(SameBits(AsC<TokenResult>(all.results[r]), expected[r])) << r;
        EXPECT_EQ(ids.results[r].id, expected[r].id) << r;
        EXPECT_EQ(ids.results[r].status, static_cast<uint8_t>(expected[r].status)) << r;
        for (const sluice_sampler* sampler : samplers_) {
          EXPECT_TRUE(SameSequence(TokensOf(sampler, handles_[r]), dense.Tokens(of_dense[r])));
        }
      }
      EXPECT_EQ(all.rows[0].path, SLUICE_PATH_PLANES);
      EXPECT_EQ(all.rows[3].path, SLUICE_PATH_ALLOWED);
      EXPECT_EQ(all.results[4].status, SLUICE_ROW_NAN_INPUT);
      EXPECT_EQ(TokensOf(samplers_[0], handles_[0]).size(), prompt_.size() + 1 + step);
      EXPECT_EQ(TokensOf(samplers_[0], handles_[4]).size(), prompt_.size());
    }
  }
}

TEST_F(CCertifiedStep, HeedsTheBitmaskOfTheInput) {
  const sluice_certified_head* const head = Head(Built());
  const Drawn open = SteppedIds(head, samplers_[0], handles_);
  const auto id = static_cast<size_t>(open.results[0].id);
  bitmask_[id / 32] &= ~(int32_t{1} << (id % 32));
  const Drawn masked = SteppedIds(head, samplers_[1], handles_);
  EXPECT_NE(masked.results[0].id, open.results[0].id);
  EXPECT_EQ(masked.results[1].id, open.results[1].id);
}

// Good arguments for both calls, to spoil one.
struct Call {
  const sluice_certified_head* head;
  sluice_certified_input input;
  sluice_sampler* sampler;
  const sluice_request_handle* requests;
  sluice_execution execution;
  size_t request_count = 6;
  size_t output_count = 6;
  size_t status_count = 6;
  size_t row_count = 6;
  sluice_token_result results_memory[6] = {};
  int32_t ids_memory[6] = {};
  sluice_row_status statuses_memory[6] = {};
  sluice_certified_row rows_memory[6] = {};
  const sluice_certified_input* input_given = &input;
  const sluice_execution* execution_given = &execution;
  sluice_token_result* results = results_memory;
  int32_t* ids = ids_memory;
  sluice_row_status* statuses = statuses_memory;
  sluice_certified_row* rows = rows_memory;

  sluice_status Step() {
    return sluice_sampler_step_from_head(sampler, head, input_given, requests, request_count,
                                         results, output_count, rows, row_count, nullptr,
                                         execution_given);
  }
  sluice_status StepIds() {
    return sluice_sampler_step_ids_from_head(sampler, head, input_given, requests, request_count,
                                             ids, output_count, statuses, status_count, rows,
                                             row_count, nullptr, execution_given);
  }
};

TEST_F(CCertifiedStep, RefusesWhatDoesNotFitAndAcceptsNothing) {
  const sluice_certified_head* const head = Head(Built());
  AlignedBytes memory(1 << 20);
  sluice_execution execution = AsC(Execution{.workspace = memory.span()});
  std::vector<sluice_request_handle> twice = handles_;
  twice[5] = twice[0];
  std::vector<sluice_request_handle> stale = handles_;
  stale[2].generation += 1;
  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = kVocab + 1;
  sluice_sampler* other = nullptr;
  ExpectOk(sluice_sampler_create(&options, &other));

  sluice_request request;
  sluice_request_init(&request);
  const sluice_logits_processor processor = {
      nullptr, [](void*, const int32_t*, size_t, size_t, float*, size_t) { return 0; }, false};
  request.processors = &processor;
  request.processor_count = 1;
  std::vector<sluice_request_handle> processed = handles_;
  ExpectOk(sluice_sampler_add(samplers_[0], &request, &processed[1]));

  const auto call_with = [&](const std::function<void(Call&)>& spoil, auto run) {
    Call call{.head = head,
              .input = input_,
              .sampler = samplers_[0],
              .requests = handles_.data(),
              .execution = execution};
    spoil(call);
    return (call.*run)();
  };
  const auto expect_refused = [&](const std::string& message,
                                  const std::function<void(Call&)>& spoil) {
    for (const auto run : {&Call::Step, &Call::StepIds}) {
      ExpectFailure(call_with(spoil, run), message);
    }
  };
  const std::string pointer = " = null is not allowed: a pointer";
  const std::string elements = pointer + " to the elements";
  expect_refused("certified" + pointer, [](Call& c) { c.head = nullptr; });
  expect_refused("input" + pointer, [](Call& c) { c.input_given = nullptr; });
  expect_refused("sampler" + pointer, [](Call& c) { c.sampler = nullptr; });
  expect_refused("execution" + pointer, [](Call& c) { c.execution_given = nullptr; });
  expect_refused("requests" + elements, [](Call& c) { c.requests = nullptr; });
  expect_refused("rows" + elements, [](Call& c) { c.rows = nullptr; });
  expect_refused("bitmask" + elements, [](Call& c) { c.input.bitmask = nullptr; });
  expect_refused("bitmask.size() = 113 is not allowed: 114",
                 [](Call& c) { c.input.word_count -= 1; });
  expect_refused("hidden.dim = 128 is not allowed: 130",
                 [](Call& c) { c.input.hidden.columns = 128; });
  expect_refused("requests.size() = 5 is not allowed: 6", [](Call& c) { c.request_count = 5; });
  expect_refused("rows.size() = 5 is not allowed: 6", [](Call& c) { c.row_count = 5; });
  expect_refused("sampler.vocab = 601 is not allowed: 600", [&](Call& c) { c.sampler = other; });
  expect_refused("requests = a request that appears twice is not allowed: each request once a step",
                 [&](Call& c) { c.requests = twice.data(); });
  expect_refused(
      "request = a handle of a request that was removed is not allowed: a handle that Add returned "
      "and Remove has not seen",
      [&](Call& c) { c.requests = stale.data(); });
  expect_refused(
      "requests = a request with a logits processor is not allowed: requests with no processor "
      "that runs: processors need all logits",
      [&](Call& c) { c.requests = processed.data(); });
  ExpectFailure(call_with([](Call& c) { c.results = nullptr; }, &Call::Step), "results" + elements);
  ExpectFailure(call_with([](Call& c) { c.ids = nullptr; }, &Call::StepIds), "ids" + elements);
  ExpectFailure(call_with([](Call& c) { c.statuses = nullptr; }, &Call::StepIds),
                "statuses" + elements);
  ExpectFailure(call_with([](Call& c) { c.output_count = 5; }, &Call::Step),
                "results.size() = 5 is not allowed: 6");
  ExpectFailure(call_with([](Call& c) { c.output_count = 5; }, &Call::StepIds),
                "ids.size() = 5 is not allowed: 6");
  ExpectFailure(call_with([](Call& c) { c.status_count = 5; }, &Call::StepIds),
                "statuses.size() = 5 is not allowed: 6");
  size_t bytes = 0;
  ExpectOk(sluice_sample_from_head_workspace_bytes(head, kRows, &execution, &bytes));
  for (const auto run : {&Call::Step, &Call::StepIds}) {
    EXPECT_EQ(call_with([&](Call& c) { c.execution.workspace_bytes = bytes - 1; }, run),
              SLUICE_INVALID_VALUE);
    EXPECT_STREQ(sluice_last_error_parameter(), "execution.workspace.size()");
  }
  for (const sluice_request_handle handle : handles_) {
    EXPECT_EQ(TokensOf(samplers_[0], handle), prompt_);
  }
  ExpectOk(call_with([&](Call& c) { c.execution.workspace_bytes = bytes; }, &Call::StepIds));
  EXPECT_EQ(TokensOf(samplers_[0], handles_[0]).size(), prompt_.size() + 1);
  sluice_sampler_destroy(other);
}

}  // namespace
}  // namespace sluice::test
