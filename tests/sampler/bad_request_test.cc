// Every wrong argument of the sampler is an Error that names it, and nothing has changed then.
//
// Built twice: SLUICE_OVER_C makes the same calls through the C interface, with the same answers.
#include <limits>
#include <tuple>

#include "tests/sampler/stepping.h"
#include "tests/support/bad_input.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#if SLUICE_OVER_C
#include "tests/capi/over_c.h"
namespace api = sluice::over_c;
#else
namespace api = sluice;
#endif

namespace sluice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using ParamCase = BadCase<SamplingParams>;

// One case a parameter and end of its range, for a vocabulary of four.
std::vector<ParamCase> ParamCases() {
  return {
      {[](auto& p) { p.temperature = kNan; }, "temperature", "nan", "[0, 2]"},
      {[](auto& p) { p.temperature = -1.0f; }, "temperature", "-1", "[0, 2]"},
      {[](auto& p) { p.temperature = 2.5f; }, "temperature", "2.5", "[0, 2]"},
      {[](auto& p) { p.top_k = -2; }, "top_k", "-2", "[-1, 2147483647]"},
      {[](auto& p) { p.top_p = 0.0f; }, "top_p", "0", "(0, 1]"},
      {[](auto& p) { p.top_p = 1.5f; }, "top_p", "1.5", "(0, 1]"},
      {[](auto& p) { p.top_p = kNan; }, "top_p", "nan", "(0, 1]"},
      {[](auto& p) { p.min_p = -0.1f; }, "min_p", "-0.1", "[0, 1]"},
      {[](auto& p) { p.top_n_sigma = 17.0f; }, "top_n_sigma", "17", "[0, 16]"},
      {[](auto& p) { p.typical_p = 0.0f; }, "typical_p", "0", "(0, 1]"},
      {[](auto& p) { p.xtc_probability = 1.5f; }, "xtc_probability", "1.5", "[0, 1]"},
      {[](auto& p) { p.xtc_threshold = -1.0f; }, "xtc_threshold", "-1", "[0, 1]"},
      {[](auto& p) { p.repetition_penalty = 0.0f; }, "repetition_penalty", "0",
       "(0, 3.4028235e+38]"},
      {[](auto& p) { p.repetition_penalty = std::numeric_limits<float>::infinity(); },
       "repetition_penalty", "inf", "(0, 3.4028235e+38]"},
      {[](auto& p) { p.frequency_penalty = 2.5f; }, "frequency_penalty", "2.5", "[-2, 2]"},
      {[](auto& p) { p.presence_penalty = kNan; }, "presence_penalty", "nan", "[-2, 2]"},
      {[](auto& p) { p.min_tokens = -1; }, "min_tokens", "-1", "[0, 2147483647]"},
      {[](auto& p) { p.dry_multiplier = -1.0f; }, "dry_multiplier", "-1", "[0, 100]"},
      {[](auto& p) { p.dry_base = 0.5f; }, "dry_base", "0.5", "[1, 100]"},
      {[](auto& p) { p.dry_allowed_length = 0; }, "dry_allowed_length", "0", "[1, 2147483647]"},
      {[](auto& p) { p.dry_range = -2; }, "dry_range", "-2", "[-1, 2147483647]"},
      {[](auto& p) { p.dry_sequence_breakers = {0, 4}; }, "dry_sequence_breakers", "4", "[0, 3]"},
      {[](auto& p) { p.logit_bias = {{-1, 0.0f}}; }, "logit_bias", "-1", "[0, 3]"},
      {[](auto& p) { p.logit_bias = {{1, kNan}}; }, "logit_bias", "nan", "a number"},
      {[](auto& p) { p.allowed_token_ids.emplace(); }, "allowed_token_ids", "an empty list",
       "at least one token id"},
      {[](auto& p) { p.allowed_token_ids = {{1, 4}}; }, "allowed_token_ids", "4", "[0, 3]"},
      {[](auto& p) { p.bad_words = {{1}, {}}; }, "bad_words", "an empty word",
       "at least one token id a word"},
      {[](auto& p) { p.bad_words = {{1, 9}}; }, "bad_words", "9", "[0, 3]"},
      {[](auto& p) { p.stop_token_ids = {-1}; }, "stop_token_ids", "-1", "[0, 3]"},
      {[](auto& p) { p.logprobs = -2; }, "logprobs", "-2", "[-1, 8388608]"},
  };
}

TEST(BadRequest, Validate) {
  ExpectErrors(ParamCases(), [](const SamplingParams& params) { api::Validate(params, 4); });
  SamplingParams hot{.temperature = 4.0f};
  EXPECT_NO_THROW(api::Validate(hot, 4, {.max_temperature = 4.0f}));
  ExpectError([&] { api::Validate(hot, 4, {.max_temperature = 3.0f}); }, "temperature", "4",
              "[0, 3]");
  SamplingParams whole{.top_k = -1};
  whole.logprobs = -1;
  EXPECT_NO_THROW(api::Validate(whole, 4));
}

TEST(BadRequest, Construction) {
  const std::vector<BadCase<SamplerOptions>> cases = {
      {[](auto& o) { o.vocab = 0; }, "vocab", "0", "[1, 8388608]"},
      {[](auto& o) { o.vocab = kMaxVocab + 1; }, "vocab", "8388609", "[1, 8388608]"},
      {[](auto& o) { o.max_requests = 0; }, "max_requests", "0", "[1, 1048576]"},
      {[](auto& o) { o.parallel.workers = 0; }, "parallel.workers", "0", "[1, 65536]"},
      {[](auto& o) { o.limits.max_temperature = kNan; }, "limits.max_temperature", "nan",
       "above 0"},
      {[](auto& o) { o.limits.max_temperature = 0.0f; }, "limits.max_temperature", "0", "above 0"},
      {[](auto& o) { o.backend = static_cast<Backend>(99); }, "backend", "99",
       "a backend of Backends()"},
  };
  for (const auto& bad : cases) {
    SamplerOptions options{.vocab = 4};
    bad.spoil(options);
    ExpectError([&] { api::Sampler sampler(options); }, bad.parameter, bad.value, bad.allowed);
  }
}

TEST(BadRequest, AddTakesNoSlotWhenItThrows) {
  struct Addition {
    std::vector<int32_t> prompt = {0, 3};
    LogitsProcessor processor = {nullptr,
                                 [](void*, std::span<const int32_t>, size_t, std::span<float>) {}};
    Request request;
  };
  api::Sampler sampler({.vocab = 4, .max_requests = 1});
  auto add = [&](Addition& a) {
    a.request.prompt = a.prompt;
    a.request.processors = {&a.processor, 1};
    sampler.Remove(sampler.Add(a.request));
  };
  std::vector<BadCase<Addition>> cases = {
      {[](auto& a) { a.prompt[1] = 4; }, "prompt", "4", "[0, 3]"},
      {[](auto& a) { a.prompt[0] = -1; }, "prompt", "-1", "[0, 3]"},
      {[](auto& a) { a.request.choice = 1u << 24; }, "choice", "16777216", "[0, 16777215]"},
      {[](auto& a) { a.request.max_new_tokens = -1; }, "max_new_tokens", "-1", "[0, 2147483647]"},
      {[](auto& a) { a.processor.apply = nullptr; }, "processors.apply", "null", "a function"},
  };
  for (const ParamCase& c : ParamCases()) {
    cases.push_back(
        {[spoil = c.spoil](auto& a) { spoil(a.request.params); }, c.parameter, c.value, c.allowed});
  }
  ExpectErrors(cases, add);
  sampler.Add({});
  EXPECT_EQ(sampler.FreeSlots(), 0);
  ExpectError([&] { sampler.Add({}); }, "requests", "2", "at most max_requests, 1, at a time",
              ErrorCode::kExhausted);
}

TEST(BadRequest, MoreLogprobsThanTokensAreRefusedAtOnce) {
  api::Sampler sampler({.vocab = 4});
  SamplingParams params;
  params.logprobs = 5;
  ExpectError([&] { sampler.Add({.params = params}); }, "logprobs", "5", "[-1, 4]");
}

#if !SLUICE_OVER_C  // nothing is moved in C
TEST(BadRequest, AMovedFromSamplerSaysSo) {
  api::Sampler sampler({.vocab = 4});
  const api::Sampler moved = std::move(sampler);
  ExpectError([&] { sampler.Add({}); }, "sampler", "moved from",  // NOLINT(bugprone-use-after-move)
              "one that has not been moved from");
}
#endif

TEST(BadRequest, AStaleHandleIsNeverAnotherRequest) {
  api::Sampler sampler({.vocab = 4, .max_requests = 2});
  const RequestHandle stale = sampler.Add({});
  sampler.Remove(stale);
  const RequestHandle fresh = sampler.Add({});
  ASSERT_EQ(fresh.slot, stale.slot);
  const std::vector<int32_t> token = {1};
  const std::vector<std::function<void(RequestHandle)>> uses = {
      [&](RequestHandle h) { sampler.Remove(h); },
      [&](RequestHandle h) { sampler.Seed(h); },
      [&](RequestHandle h) { sampler.Tokens(h); },
      [&](RequestHandle h) { sampler.PromptLength(h); },
      [&](RequestHandle h) { sampler.Accept(h, token); },
      [&](RequestHandle h) { sampler.Rollback(h, 0); },
      [&](RequestHandle h) {
        const Batch batch({{0, 1, 2, 3}});
        const StepRequest request{.request = h};
        StepTokens(sampler, batch.view(), {&request, 1});
      },
  };
  const RequestHandle never{1, 0};
  for (const auto& use : uses) {
    for (const RequestHandle& handle : {stale, never}) {
      ExpectError([&] { use(handle); }, "request", "a handle of a request that was removed",
                  "a handle that Add returned and Remove has not seen");
    }
    ExpectError([&] { use({}); }, "request.slot", "-1", "[0, 1]");
    ExpectError([&] { use({2, 0}); }, "request.slot", "2", "[0, 1]");
  }
  EXPECT_TRUE(sampler.Tokens(fresh).empty());
}

TEST(BadRequest, AcceptAndRollbackChangeNothingWhenTheyThrow) {
  api::Sampler sampler({.vocab = 4, .max_requests = 1});
  const std::vector<int32_t> prompt = {0, 1};
  const RequestHandle handle = sampler.Add({.prompt = prompt});
  const std::vector<int32_t> tokens = {2, 3};
  const std::vector<int32_t> bad = {1, 4};
  sampler.Accept(handle, tokens);
  ExpectError([&] { sampler.Accept(handle, bad); }, "tokens", "4", "[0, 3]");
  ExpectError([&] { sampler.Rollback(handle, 3); }, "count", "3", "[0, 2]");
  ExpectError([&] { sampler.Rollback(handle, -1); }, "count", "-1", "[0, 2]");
  EXPECT_TRUE(SameSequence(sampler.Tokens(handle), std::vector<int32_t>{0, 1, 2, 3}));
}

// A step of two requests, the second with one draft, with every output.
struct StepCall {
  std::vector<float> values = {0, 1, 2, 3, 3, 2, 1, 0, 0, 2, 0, 1};
  api::Sampler sampler{{.vocab = 4, .max_requests = 3}};
  std::vector<int32_t> drafts = {0};
  std::vector<int32_t> parents = {-1};
  std::vector<int32_t> bitmask = {-1, -1};
  std::vector<float> q = {1, 0, 0, 0};
  SelectParams draft_params;
  std::vector<Cut> draft_cuts = std::vector<Cut>(1);
  std::vector<StepRequest> requests = std::vector<StepRequest>(2);
  LogitsView logits{values.data(), 3, 4, 4};

  std::vector<TokenResult> tokens = std::vector<TokenResult>(3);
  std::vector<int32_t> emitted = std::vector<int32_t>(2);
  int32_t width = 5;
  std::vector<int32_t> ids = std::vector<int32_t>(15);
  std::vector<float> listed = std::vector<float>(15);
  std::vector<int32_t> kept = std::vector<int32_t>(3);
  std::vector<CutMass> masses = std::vector<CutMass>(3);
  std::vector<float> adjusted_values = std::vector<float>(12);
  MutableLogitsView adjusted{adjusted_values.data(), 3, 4, 4};
  std::vector<int32_t> path = std::vector<int32_t>(3);

  StepCall() {
    SamplingParams params;
    params.seed = 3;
    params.logprobs = -1;
    params.presence_penalty = 1.0f;
    params.draft_mode = DraftMode::kReject;
    for (StepRequest& request : requests) request.request = sampler.Add({.params = params});
    requests[1].drafts = drafts;
    requests[1].parents = parents;
    requests[1].bitmask = bitmask;
    requests[1].draft_probabilities = {q.data(), 1, 4, 4};
  }
  void UseSluiceDraft() {
    requests[1].draft_probabilities = {};
    requests[1].draft_model.logits = {q.data(), 1, 4, 4};
    requests[1].draft_model.params = {&draft_params, 1};
    requests[1].draft_cuts = draft_cuts;
  }
  void Run() {
    sampler.Step({logits, requests}, {.tokens = tokens,
                                      .emitted = emitted,
                                      .logprobs = {width, ids, listed},
                                      .kept = kept,
                                      .masses = masses,
                                      .adjusted = adjusted,
                                      .path = path});
  }
};

std::vector<BadCase<StepCall>> StepCases() {
  auto cases = ViewCases<StepCall>("logits", "vocab", 4, kMaxVocab,
                                   [](StepCall& s) -> LogitsView& { return s.logits; });
  auto outputs = ViewCases<StepCall>("adjusted", "vocab", 4, kMaxVocab,
                                     [](StepCall& s) -> MutableLogitsView& { return s.adjusted; });
  auto q = ViewCases<StepCall>(
      "draft_probabilities", "columns", 4, kMaxVocab,
      [](StepCall& s) -> MatrixView& { return s.requests[1].draft_probabilities; });
  auto sluice = ViewCases<StepCall>("draft_model.logits", "vocab", 4, kMaxVocab,
                                    [](StepCall& s) -> LogitsView& {
                                      if (s.requests[1].draft_cuts.empty()) s.UseSluiceDraft();
                                      return s.requests[1].draft_model.logits;
                                    });
  for (auto* optional : {&outputs, &q, &sluice}) {
    std::erase_if(*optional, [](const auto& c) { return c.value == "null"; });
    Append(cases, *optional);
  }
  Append(cases,
         {{[](StepCall& s) { s.logits.vocab = 3; }, "logits.vocab", "3", "4"},
          {[](StepCall& s) { s.logits.rows = 2; }, "logits.rows", "2", "3"},
          {[](StepCall& s) { s.requests.resize(4); }, "requests.size()", "4", "[0, 3]"},
          {[](StepCall& s) { s.requests[1].request = s.requests[0].request; }, "requests",
           "a request that appears twice", "each request once a step"},
          {[](StepCall& s) { s.drafts[0] = 4; }, "drafts", "4", "[0, 3]"},
          {[](StepCall& s) { s.drafts[0] = -1; }, "drafts", "-1", "[0, 3]"},
          {[](StepCall& s) { s.parents[0] = 0; }, "parents", "0", "-1"},
          {[](StepCall& s) { s.parents[0] = -2; }, "parents", "-2", "-1"},
          {[](StepCall& s) { s.requests[0].parents = s.parents; }, "parents.size()", "1", "0"},
          {[](StepCall& s) {
             s.drafts.resize(65);
             s.parents.resize(65, -1);
             s.requests[1].drafts = s.drafts;
             s.requests[1].parents = s.parents;
           },
           "drafts.size()", "65", "[0, 64]"},
          {[](StepCall& s) { s.path.resize(2); }, "path.size()", "2", "3"},
          {[](StepCall& s) { s.requests[1].bitmask = std::span(s.bitmask).first(1); },
           "bitmask.size()", "1", "2"},
          {[](StepCall& s) { s.requests[0].forced = 4; }, "forced", "4", "[-1, 3]"},
          {[](StepCall& s) { s.requests[0].forced = -2; }, "forced", "-2", "[-1, 3]"},
          {[](StepCall& s) { s.requests[1].draft_model.logits = s.logits; }, "draft_probabilities",
           "given with draft_model", "at most one of the two"},
          {[](StepCall& s) { s.requests[1].draft_probabilities.rows = 2; },
           "draft_probabilities.rows", "2", "1"},
          {[](StepCall& s) { s.requests[1].draft_probabilities.columns = 3; },
           "draft_probabilities.columns", "3", "4"},
          {[](StepCall& s) { s.requests[1].draft_probabilities.dtype = DType::kF16; },
           "draft_probabilities.dtype", "float16", "float32", ErrorCode::kInvalidType},
          {[](StepCall& s) {
             s.UseSluiceDraft();
             s.requests[1].draft_model.params = {};
           },
           "draft_model.params.size()", "0", "1 or the number of rows, 1"},
          {[](StepCall& s) {
             s.UseSluiceDraft();
             s.requests[1].draft_cuts = {};
           },
           "draft_cuts.size()", "0", "1"},
          {[](StepCall& s) { s.tokens.resize(2); }, "tokens.size()", "2", "3"},
          {[](StepCall& s) { s.emitted.resize(3); }, "emitted.size()", "3", "2"},
          {[](StepCall& s) { s.width = 4; }, "logprobs.width", "4",
           "at least 1 + the request's logprobs, 5"},
          {[](StepCall& s) { s.width = 6; }, "logprobs.width", "6", "[0, 5]"},
          {[](StepCall& s) { s.width = -1; }, "logprobs.width", "-1", "[0, 5]"},
          {[](StepCall& s) { s.ids.resize(14); }, "logprobs.ids.size()", "14", "15"},
          {[](StepCall& s) { s.listed.resize(16); }, "logprobs.values.size()", "16", "15"},
          {[](StepCall& s) { s.kept.resize(2); }, "kept.size()", "2", "3"},
          {[](StepCall& s) { s.masses.resize(1); }, "masses.size()", "1", "3"},
          {[](StepCall& s) { s.adjusted.rows = 1; }, "adjusted.rows", "1", "3"},
          {[](StepCall& s) { s.adjusted.vocab = 3; }, "adjusted.vocab", "3", "4"},
          {[](StepCall& s) { s.adjusted.dtype = DType::kF16; }, "adjusted.dtype", "float16",
           "float32", ErrorCode::kInvalidType}});
  return cases;
}

TEST(BadRequest, Step) {
  ExpectErrors(StepCases(), [](StepCall& step) { step.Run(); });
}

TEST(BadRequest, AStepThatThrowsHasChangedNothing) {
  StepCall good;
  good.Run();
  for (const auto& bad : StepCases()) {
    StepCall step;
    // What the case changes is put back by hand: the sampler itself is what is looked at.
    const auto [values, drafts, requests, logits, adjusted, width] =
        std::tuple(step.values, step.drafts, step.requests, step.logits, step.adjusted, step.width);
    bad.spoil(step);
    EXPECT_THROW(step.Run(), Error) << bad.parameter;
    for (const TokenResult& token : step.tokens) EXPECT_TRUE(SameBits(token, TokenResult{}));
    for (const StepRequest& request : requests) {
      EXPECT_TRUE(step.sampler.Tokens(request.request).empty());
    }
    step.drafts[0] = drafts[0];
    step.parents[0] = -1;
    step.requests = requests;
    step.logits = logits;
    step.adjusted = adjusted;
    step.width = width;
    step.tokens.resize(3);
    step.emitted.resize(2);
    step.ids.resize(15);
    step.listed.resize(15);
    step.kept.resize(3);
    step.masses.resize(3);
    step.path.resize(3);
    step.requests[1].drafts = std::span(step.drafts).first(1);
    step.requests[1].parents = std::span(step.parents).first(1);
    step.Run();
    EXPECT_TRUE(SameSequence(step.tokens, good.tokens)) << bad.parameter;
    EXPECT_TRUE(SameSequence(step.adjusted_values, good.adjusted_values));
  }
}

}  // namespace
}  // namespace sluice::test
