// A sampler of the C interface goes through the same life as one of C++ and gives the same bits at
// every step: requests of every kind, drafts, grammars, processors, every output.
#include <memory>

#include "tests/capi/as_c.h"
#include "tests/pipeline/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr int64_t kVocab = 37;

struct Destroy {
  void operator()(sluice_sampler* sampler) const { sluice_sampler_destroy(sampler); }
};
using CSampler = std::unique_ptr<sluice_sampler, Destroy>;

CSampler Create(int64_t vocab, int32_t max_requests, Backend backend) {
  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = vocab;
  options.max_requests = max_requests;
  options.backend = static_cast<sluice_backend>(backend);
  sluice_sampler* sampler = nullptr;
  ExpectOk(sluice_sampler_create(&options, &sampler));
  return CSampler(sampler);
}

// The same change in both languages: it looks at all that it is given.
void Change(std::span<const int32_t> tokens, size_t prompt_length, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); i += 3) {
    logits[i] += 0.125f * static_cast<float>(tokens.size() - prompt_length + 1);
  }
}
int ChangeInC(void* context, const int32_t* tokens, size_t count, size_t prompt_length,
              float* logits, size_t vocab) {
  ++*static_cast<int*>(context);
  Change({tokens, count}, prompt_length, {logits, vocab});
  return 0;
}

sluice_request_handle AddTo(sluice_sampler* sampler, const LiteralRequest& from,
                            std::span<const sluice_logits_processor> processors) {
  const CSamplingParams params(from.params);
  sluice_request request;
  sluice_request_init(&request);
  request.params = params.params;
  request.prompt = from.prompt.data();
  request.prompt_count = from.prompt.size();
  request.choice = from.choice;
  request.processors = processors.data();
  request.processor_count = processors.size();
  sluice_request_handle handle;
  ExpectOk(sluice_sampler_add(sampler, &request, &handle));
  return handle;
}

std::vector<int32_t> Tokens(const sluice_sampler* sampler, sluice_request_handle handle) {
  const int32_t* tokens = nullptr;
  size_t count = 0;
  ExpectOk(sluice_sampler_tokens(sampler, handle, &tokens, &count));
  return {tokens, tokens + count};
}

Stepped StepInC(sluice_sampler* sampler, const LogitsView& logits,
                std::span<const sluice_step_request> requests, int64_t width) {
  const size_t rows = static_cast<size_t>(logits.rows);
  Stepped out;
  out.tokens.resize(rows);
  out.emitted.resize(requests.size());
  out.ids.resize(rows * static_cast<size_t>(width));
  out.values.resize(rows * static_cast<size_t>(width));
  out.kept.resize(rows * ((kVocab + 31) / 32));
  out.masses.resize(rows);
  out.adjusted.resize(rows * kVocab);
  const sluice_step_input input = {AsC<sluice_logits_view>(logits), requests.data(),
                                   requests.size()};
  sluice_step_output output = {};
  output.tokens = DataAsC<sluice_token_result>(out.tokens);
  output.token_count = rows;
  output.emitted = out.emitted.data();
  output.emitted_count = out.emitted.size();
  output.logprobs = {static_cast<int32_t>(width), out.ids.data(), out.ids.size(),
                     out.values.data(), out.values.size()};
  output.kept = out.kept.data();
  output.kept_count = out.kept.size();
  output.masses = DataAsC<sluice_cut_mass>(out.masses);
  output.mass_count = rows;
  output.adjusted = {out.adjusted.data(), logits.rows, kVocab, kVocab, SLUICE_F32,
                     {SLUICE_CPU, 0}};
  ExpectOk(sluice_sampler_step(sampler, &input, &output));
  return out;
}

void ExpectSame(const Stepped& c, const Stepped& cpp) {
  EXPECT_TRUE(SameSequence(c.tokens, cpp.tokens));
  EXPECT_TRUE(SameSequence(c.emitted, cpp.emitted));
  EXPECT_TRUE(SameSequence(c.ids, cpp.ids));
  EXPECT_TRUE(SameSequence(c.values, cpp.values));
  EXPECT_TRUE(SameSequence(c.kept, cpp.kept));
  EXPECT_TRUE(SameSequence(c.masses, cpp.masses));
  EXPECT_TRUE(SameSequence(c.adjusted, cpp.adjusted));
}

class CSamplerLife : public BackendTest {};

TEST_P(CSamplerLife, IsThatOfTheCppSampler) {
  constexpr int kRequests = 4;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    Sampler cpp({.vocab = kVocab, .max_requests = kRequests, .backend = backend()});
    const CSampler c = Create(kVocab, kRequests, backend());
    const LogitsProcessor processor{
        nullptr, [](void*, std::span<const int32_t> tokens, size_t prompt_length,
                    std::span<float> logits) { Change(tokens, prompt_length, logits); }};
    std::vector<LiteralRequest> requests;
    std::vector<RequestHandle> handles;
    std::vector<sluice_request_handle> c_handles;
    int calls = 0;
    for (int i = 0; i < kRequests; ++i) {
      requests.push_back(RandomLiteralRequest(kVocab, random));
      LiteralRequest& request = requests.back();
      request.params.draft_mode = random.Coin() ? DraftMode::kMatch : DraftMode::kReject;
      request.params.profile = kProfiles[random.Below(std::size(kProfiles))].profile;
      const size_t processors = i % 2;
      handles.push_back(cpp.Add({.params = request.params,
                                 .prompt = request.prompt,
                                 .choice = request.choice,
                                 .processors = {&processor, processors}}));
      // A copy that is gone when the step runs: add keeps its own.
      const auto copy = std::make_unique<sluice_logits_processor>(
          sluice_logits_processor{&calls, &ChangeInC, false});
      c_handles.push_back(AddTo(c.get(), request, {copy.get(), processors}));
      EXPECT_EQ(c_handles.back().slot, handles.back().slot);
      EXPECT_EQ(c_handles.back().generation, handles.back().generation);
    }
    for (int step = 0; step < 6; ++step) {
      std::vector<std::vector<float>> rows;
      std::vector<std::vector<int32_t>> drafts(kRequests);
      std::vector<std::vector<int32_t>> bitmasks(kRequests);
      std::vector<std::vector<float>> q(kRequests);
      std::vector<StepRequest> step_requests(kRequests);
      std::vector<sluice_step_request> c_requests(kRequests);
      for (size_t i = 0; i < kRequests; ++i) {
        for (int64_t n = random.Below(3); n > 0; --n) {
          drafts[i].push_back(static_cast<int32_t>(random.Below(kVocab)));
        }
        const int64_t n = static_cast<int64_t>(drafts[i].size());
        if (random.Coin(0.3)) bitmasks[i] = RandomBitmask(kVocab, n + 1, random);
        for (int64_t r = 0; r <= n; ++r) {
          rows.push_back(MakeRow(kAllRowKinds[random.Below(8)], kVocab, random));
        }
        StepRequest& request = step_requests[i];
        request.request = handles[i];
        request.drafts = drafts[i];
        request.bitmask = bitmasks[i];
        if (random.Coin(0.1)) request.forced = static_cast<int32_t>(random.Below(kVocab));
        if (random.Coin() && n > 0) {
          q[i].assign(static_cast<size_t>(n * kVocab), 1.0f / kVocab);
          request.draft_probabilities = {q[i].data(), n, kVocab, kVocab};
        }
        sluice_step_request& c_request = c_requests[i];
        sluice_step_request_init(&c_request);
        c_request.request = c_handles[i];
        c_request.drafts = drafts[i].data();
        c_request.draft_count = drafts[i].size();
        c_request.bitmask = bitmasks[i].data();
        c_request.word_count = bitmasks[i].size();
        c_request.forced = request.forced;
        c_request.draft_probabilities = AsC<sluice_matrix_view>(request.draft_probabilities);
      }
      const Batch batch(rows, dtype());
      ExpectSame(StepInC(c.get(), batch.view(), c_requests, kVocab + 1),
                 StepAll(cpp, batch.view(), step_requests, kVocab + 1));
      for (size_t i = 0; i < kRequests; ++i) {
        EXPECT_TRUE(SameSequence(Tokens(c.get(), c_handles[i]), cpp.Tokens(handles[i])));
        int64_t length = -1;
        ExpectOk(sluice_sampler_prompt_length(c.get(), c_handles[i], &length));
        EXPECT_EQ(length, cpp.PromptLength(handles[i]));
      }
      // Tokens from elsewhere, tokens taken back.
      const std::vector<int32_t> accepted = {1, 2, 3};
      cpp.Accept(handles[0], accepted);
      cpp.Rollback(handles[0], 2);
      ExpectOk(sluice_sampler_accept(c.get(), c_handles[0], accepted.data(), accepted.size()));
      ExpectOk(sluice_sampler_rollback(c.get(), c_handles[0], 2));
    }
    EXPECT_GT(calls, 0);
    int32_t slots = -1;
    ExpectOk(sluice_sampler_free_slots(c.get(), &slots));
    EXPECT_EQ(slots, 0);
    ExpectOk(sluice_sampler_remove(c.get(), c_handles[1]));
    ExpectOk(sluice_sampler_free_slots(c.get(), &slots));
    EXPECT_EQ(slots, 1);
  }
}

SLUICE_FOR_EACH_BACKEND(CSamplerLife);

// With a Sluice draft model, as speculative decoding has it.
TEST(CSampler, ReadsTheDraftModelInPlace) {
  Random random(5);
  SamplingParams params;
  params.seed = 9;
  params.draft_mode = DraftMode::kReject;
  const LiteralRequest request{params, {1, 2}, {}, 0};
  Sampler cpp({.vocab = kVocab, .max_requests = 1});
  const CSampler c = Create(kVocab, 1, Backend::kAuto);
  const Batch batch({MakeRow(RowKind::kMid, kVocab, random), MakeRow(RowKind::kMid, kVocab, random)});
  const Batch model({MakeRow(RowKind::kMid, kVocab, random)});
  const SelectParams model_params{.top_k = 5};
  const std::vector<Cut> cuts = Selected({model.view(), {&model_params, 1}}).cuts;
  const std::vector<int32_t> drafts = {KeptIds(model.view(), cuts)[0][0]};
  const NoiseKey key{3, 2, 0, DrawStream::kDraft};
  StepRequest step{.request = AddTo(cpp, request), .drafts = drafts};
  step.draft_model = {model.view(), {&model_params, 1}, {&key, 1}};
  step.draft_cuts = cuts;
  sluice_step_request c_step;
  sluice_step_request_init(&c_step);
  c_step.request = AddTo(c.get(), request, {});
  c_step.drafts = drafts.data();
  c_step.draft_count = 1;
  c_step.draft_model = AsC(step.draft_model);
  c_step.draft_cuts = DataAsC<sluice_cut>(cuts);
  c_step.draft_cut_count = 1;
  ExpectSame(StepInC(c.get(), batch.view(), {&c_step, 1}, 0),
             StepAll(cpp, batch.view(), {&step, 1}));
}

TEST(CSampler, ReportsTheSeedThatItChose) {
  const CSampler c = Create(kVocab, 2, Backend::kRef);
  sluice_request request;
  sluice_request_init(&request);
  sluice_request_handle unseeded;
  ExpectOk(sluice_sampler_add(c.get(), &request, &unseeded));
  request.params.has_seed = true;
  request.params.seed = 0xfedcba9876543210u;
  sluice_request_handle seeded;
  ExpectOk(sluice_sampler_add(c.get(), &request, &seeded));
  uint64_t seed = 0;
  ExpectOk(sluice_sampler_seed(c.get(), seeded, &seed));
  EXPECT_EQ(seed, 0xfedcba9876543210u);
  ExpectOk(sluice_sampler_seed(c.get(), unseeded, &seed));
}

TEST(CSampler, AStaleHandleIsNeverAnotherRequest) {
  const CSampler c = Create(kVocab, 1, Backend::kRef);
  sluice_request request;
  sluice_request_init(&request);
  sluice_request_handle stale;
  sluice_request_handle fresh;
  ExpectOk(sluice_sampler_add(c.get(), &request, &stale));
  ExpectOk(sluice_sampler_remove(c.get(), stale));
  ExpectOk(sluice_sampler_add(c.get(), &request, &fresh));
  EXPECT_EQ(sluice_sampler_remove(c.get(), stale), SLUICE_INVALID_VALUE);
  EXPECT_STREQ(sluice_last_error(),
               "request = a handle of a request that was removed is not allowed: a handle that Add "
               "returned and Remove has not seen");
  ExpectOk(sluice_sampler_remove(c.get(), fresh));
}

TEST(CSampler, DestroyingNullDoesNothing) { sluice_sampler_destroy(nullptr); }

}  // namespace
}  // namespace sluice::test
