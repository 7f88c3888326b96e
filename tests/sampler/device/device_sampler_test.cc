// The DeviceSampler gives the Sampler's bits in every company of requests, waits for nothing but
// its answers, and refuses what does not fit before anything has changed.
#include <atomic>
#include <chrono>
#include <thread>

#include "sluice/cuda/head.hpp"
#include "tests/sampler/device/device_mix.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

class DeviceSampler : public DeviceTest, public ::testing::WithParamInterface<DType> {};
using DeviceSamplerCalls = DeviceTest;

TEST_P(DeviceSampler, EqualsTheSamplerOnRandomMixesOfRequests) {
  Random random(17);
  int64_t tokens = 0;
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    // Of 20000 tokens with eight values, more tie than are sorted.
    const int64_t vocab = round == 5       ? 20000
                          : round % 3 == 2 ? random.Between(100, 1500)
                                           : random.Between(5, 40);
    Mix mix({.vocab = vocab,
             .dtype = GetParam(),
             .max_requests = round % 4 == 3 ? 40 : 8,
             .cuts = round % 2 == 1},
            random.Bits());
    for (int step = 0; step < 60 && !HasFailure(); ++step) mix.Step();
    EXPECT_EQ(mix.device().Waits(), 0);
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 3000);  // the test tests something
}

TEST_P(DeviceSampler, EqualsTheSamplerOnLargeTreesOfDrafts) {
  Random random(29);
  int64_t tokens = 0;
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Mix mix({.vocab = round == 7 ? 3000 : random.Between(6, 60),
             .dtype = GetParam(),
             .max_requests = 6,
             .max_drafts = 64,
             .max_tokens = 200,
             .cuts = round % 2 == 1,
             .kept = round % 4 > 1 || round == 7,
             .trees = 0.9},
            random.Bits());
    for (int step = 0; step < 40 && !HasFailure(); ++step) mix.Step();
    EXPECT_EQ(mix.device().Waits(), 0);
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 1500);  // the test tests something
}

INSTANTIATE_TEST_SUITE_P(, DeviceSampler, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

// Ordinary requests on rows like a model's.
struct Ordinary {
  explicit Ordinary(cuda::DeviceSamplerOptions options, int64_t rows = 4)
      : sampler(options), batch(RowsOf(options.vocab, rows)), device(batch, RowStartAt::kAligned) {
    for (int64_t r = 0; r < rows; ++r) {
      requests.push_back({.request = sampler.Add({.params = Params(r)})});
    }
  }
  static SamplingParams Params(int64_t r) {
    SamplingParams params;
    params.top_k = 50;
    params.frequency_penalty = 0.5f;
    params.seed = static_cast<uint64_t>(r);
    return params;
  }
  static std::vector<std::vector<float>> RowsOf(int64_t vocab, int64_t rows) {
    Random random(5);
    std::vector<std::vector<float>> made;
    for (int64_t r = 0; r < rows; ++r) made.push_back(MakeRow(RowKind::kMid, vocab, random));
    return made;
  }
  StepInput input() const { return {device.view(), requests}; }

  cuda::DeviceSampler sampler;
  Batch batch;
  DeviceBatch device;
  std::vector<StepRequest> requests;
};

constexpr cuda::DeviceSamplerOptions kOrdinary{.vocab = 1000, .max_requests = 8, .max_drafts = 2};

template <typename Call>
void ExpectError(Call call, ErrorCode code, const std::string& parameter) {
  try {
    call();
    ADD_FAILURE() << "no Error for " << parameter;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.parameter(), parameter) << error.what();
  }
}

// Every call returns while the stream stands still; only Get waits.
TEST_F(DeviceSamplerCalls, WaitForNothingButTheAnswer) {
  Ordinary ordinary(kOrdinary);
  cudaStream_t stream = nullptr;
  Require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ordinary.sampler.Step(ordinary.input(), stream).Get();  // kernels are loaded at their first use
  const RequestHandle early = ordinary.sampler.Add({});
  ordinary.sampler.Accept(early, std::vector<int32_t>{1, 2, 3});
  ordinary.sampler.Rollback(early, 1);
  std::vector<StepRequest> one = {{.request = early}};
  LogitsView first_row = ordinary.device.view();
  first_row.rows = 1;
  ordinary.sampler.Step({first_row, one}, stream).Get();

  std::atomic<bool> goes_on = false;
  Require(cudaLaunchHostFunc(
      stream,
      [](void* flag) {  // at most ten seconds, so that a call that waits fails the test
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!static_cast<std::atomic<bool>*>(flag)->load() &&
               std::chrono::steady_clock::now() < end) {
          std::this_thread::yield();
        }
      },
      &goes_on));
  const cuda::StepHandle step = ordinary.sampler.Step(ordinary.input(), stream);
  ordinary.sampler.Remove(early);
  const std::vector<int32_t> prompt(500, 7);
  const RequestHandle late =
      ordinary.sampler.Add({.params = Ordinary::Params(9), .prompt = prompt});
  ordinary.sampler.Accept(late, std::vector<int32_t>(100, 3));
  ordinary.sampler.Rollback(late, 50);
  SamplingParams other = Ordinary::Params(9);
  other.top_p = 0.5f;
  ordinary.sampler.Update(late, other);
  const cuda::StepHandle next = ordinary.sampler.Step(ordinary.input(), stream);
  one[0].request = late;
  const cuda::StepHandle last = ordinary.sampler.Step({first_row, one}, stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(static_cast<cudaEvent_t>(step.event())), cudaErrorNotReady);
  goes_on = true;
  EXPECT_EQ(last.Get().emitted[0], 1);
  EXPECT_EQ(next.Get().emitted[3], 1);
  EXPECT_EQ(ordinary.sampler.Waits(), 0);
  Require(cudaStreamDestroy(stream));
}

// Tokens are counted on the device: the host may run ahead of it.
TEST_F(DeviceSamplerCalls, GiveTheSameTokensWhenTheHostRunsAhead) {
  Ordinary ahead(kOrdinary), behind(kOrdinary);
  for (int round = 0; round < 8; ++round) {
    std::vector<cuda::StepHandle> steps;
    for (int i = 0; i < 3; ++i) steps.push_back(ahead.sampler.Step(ahead.input(), nullptr));
    for (const cuda::StepHandle& step : steps) {
      const auto ids = behind.sampler.Step(behind.input(), nullptr).Get().ids;
      EXPECT_TRUE(SameSequence(step.Get().ids, ids));
    }
  }
}

// What the device hands on is what the host gets.
TEST_F(DeviceSamplerCalls, HandTheIdsOnOnTheDevice) {
  Ordinary ordinary(kOrdinary);
  const cuda::StepHandle step = ordinary.sampler.Step(ordinary.input(), nullptr);
  std::vector<int32_t> ids(4);
  Require(cudaMemcpy(ids.data(), step.ids().data, 16, cudaMemcpyDeviceToHost));
  EXPECT_TRUE(SameSequence(ids, step.Get().ids));
  for (const int32_t id : ids) EXPECT_GE(id, 0);
}

// From hidden states to tokens in one graph, which is captured once and reads what is there.
TEST_F(DeviceSamplerCalls, TakeTheHeadIntoTheirGraph) {
  constexpr int64_t kRows = 4, kDim = 64, kVocab = 1000;
  // [head]
  struct Head {
    cuda::HeadWeights weights;
    MatrixView hidden;         // read by every step, from the same place
    MutableLogitsView logits;  // those of the step
    int captures = 0;

    static void Enqueue(void* context, void* stream) {
      Head& head = *static_cast<Head*>(context);
      ++head.captures;
      cuda::Project(head.weights, head.hidden, head.logits, stream);
    }
  };
  // [head]
  constexpr Device kGpu{DeviceKind::kCuda, 0};
  Random random(9);
  auto normals = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& x : values) x = static_cast<float>(random.Normal());
    return values;
  };
  const OnDevice<float> weight(normals(kVocab * kDim));
  OnDevice<float> hidden(static_cast<size_t>(kRows * kDim));
  OnDevice<float> in_graph(static_cast<size_t>(kRows * kVocab));
  OnDevice<float> before(static_cast<size_t>(kRows * kVocab));
  Head head{{{weight.data(), kVocab, kDim, kDim, DType::kF32, kGpu}},
            {hidden.data(), kRows, kDim, kDim, DType::kF32, kGpu},
            {in_graph.data(), kRows, kVocab, kVocab, DType::kF32, kGpu}};
  Ordinary together(kOrdinary), apart(kOrdinary);
  for (int step = 0; step < 5; ++step) {
    const std::vector<float> states = normals(kRows * kDim);
    Require(cudaMemcpy(hidden.data(), states.data(), states.size() * 4, cudaMemcpyHostToDevice));
    cuda::Project(head.weights, head.hidden,
                  {before.data(), kRows, kVocab, kVocab, DType::kF32, kGpu}, nullptr);
    const LogitsView of_graph{in_graph.data(), kRows, kVocab, kVocab, DType::kF32, kGpu};
    const LogitsView of_call{before.data(), kRows, kVocab, kVocab, DType::kF32, kGpu};
    const auto expected = apart.sampler.Step({of_call, apart.requests}, nullptr).Get();
    // [step]
    const cuda::LogitsSource source{Head::Enqueue, &head};
    const auto actual = together.sampler.Step({of_graph, together.requests}, nullptr, source).Get();
    // [step]
    EXPECT_TRUE(SameSequence(actual.ids, expected.ids));
  }
  EXPECT_EQ(head.captures, 1);
}

// An engine moves its KV cache along the path without the host.
TEST_F(DeviceSamplerCalls, HandThePathOfATreeOnOnTheDevice) {
  Ordinary ordinary({.vocab = 1000, .max_requests = 8, .max_drafts = 3});
  const SamplingParams greedy{.temperature = 0.0f};
  const StepRequest alone{.request = ordinary.sampler.Add({.params = greedy})};
  std::vector<int32_t> on_top;
  for (int64_t r = 0; r < 4; ++r) {
    LogitsView row = ordinary.device.view();
    row.data = row.Row(r);
    row.rows = 1;
    on_top.push_back(ordinary.sampler.Step({row, {&alone, 1}}, nullptr).Get().ids[0]);
  }
  ordinary.sampler.Remove(alone.request);
  // Behind the root a wrong draft and a right one; behind that one, which row 2 is of, a right
  // one.
  const std::vector<int32_t> drafts = {on_top[0] == 0 ? 1 : 0, on_top[0], on_top[2]};
  const std::vector<int32_t> parents = {-1, -1, 1};
  const StepRequest tree{
      .request = ordinary.sampler.Add({.params = greedy}), .drafts = drafts, .parents = parents};
  const cuda::StepHandle step =
      ordinary.sampler.Step({ordinary.device.view(), {&tree, 1}}, nullptr);
  const cuda::DeviceStepResult result = step.Get();
  std::vector<int32_t> path(4);
  ASSERT_EQ(step.path().size, 4);
  Require(cudaMemcpy(path.data(), step.path().data, 16, cudaMemcpyDeviceToHost));
  EXPECT_EQ(path, (std::vector<int32_t>{0, 2, 3, -1}));
  EXPECT_TRUE(SameSequence(result.path, path));
  EXPECT_TRUE(SameSequence(result.ids, std::vector<int32_t>{on_top[0], on_top[2], on_top[3], -1}));
  EXPECT_EQ(result.emitted[0], 3);
  EXPECT_EQ(ordinary.sampler.Step(ordinary.input(), nullptr).path().size, 0);
}

// A tree takes the room of its longest path.
TEST_F(DeviceSamplerCalls, TreesTakeTheRoomOfTheirLongestPath) {
  Ordinary ordinary({.vocab = 1000, .max_requests = 8, .max_drafts = 3, .max_tokens = 2});
  const std::vector<int32_t> drafts = {1, 2, 3};
  const std::vector<int32_t> flat = {-1, -1, -1};
  const std::vector<int32_t> deep = {-1, 0, -1};
  StepRequest tree{.request = ordinary.sampler.Add({}), .drafts = drafts, .parents = deep};
  const StepInput input{ordinary.device.view(), {&tree, 1}};
  ExpectError([&] { ordinary.sampler.Step(input, nullptr); }, ErrorCode::kExhausted, "tokens");
  tree.parents = flat;
  const int32_t emitted = ordinary.sampler.Step(input, nullptr).Get().emitted[0];
  ordinary.sampler.Rollback(tree.request, emitted);
  EXPECT_GE(ordinary.sampler.Step(input, nullptr).Get().emitted[0], 1);
}

TEST_F(DeviceSamplerCalls, GoOnWithOtherNumbersAfterAnUpdate) {
  Ordinary ordinary(kOrdinary);
  const std::vector<int32_t> prompt = {5, 6, 7, 5};
  SamplingParams params = Ordinary::Params(3);
  const RequestHandle request = ordinary.sampler.Add({.params = params, .prompt = prompt});
  ordinary.sampler.Accept(request, prompt);
  params.temperature = 0.6f;
  params.repetition_penalty = 1.7f;
  params.dry_multiplier = 3.0f;
  ordinary.sampler.Update(request, params);
  Sampler host({.vocab = 1000});
  const RequestHandle expected = host.Add({.params = params, .prompt = prompt});
  host.Accept(expected, prompt);
  LogitsView row = ordinary.device.view();
  row.rows = 1;
  const std::vector<StepRequest> on_device = {{.request = request}};
  const std::vector<StepRequest> on_host = {{.request = expected}};
  for (int step = 0; step < 20; ++step) {
    const auto tokens = StepTokens(host, ordinary.batch.row(0), on_host);
    EXPECT_EQ(ordinary.sampler.Step({row, on_device}, nullptr).Get().ids[0], tokens[0].id);
  }
}

// A row with trouble has its status; the rows beside it have their tokens.
TEST_F(DeviceSamplerCalls, TellTheStatusOfARowAndGoOnWithTheOthers) {
  Ordinary ordinary(kOrdinary);
  std::vector<int32_t> nothing((1000 + 31) / 32, 0);
  const auto alone = [&] {
    Ordinary other(kOrdinary);
    const auto ids = other.sampler.Step(other.input(), nullptr).Get().ids;
    return std::vector<int32_t>(ids.begin(), ids.end());
  }();
  ordinary.requests[2].bitmask = nothing;
  const auto result = ordinary.sampler.Step(ordinary.input(), nullptr).Get();
  EXPECT_EQ(result.statuses[2], RowStatus::kEmptySupport);
  EXPECT_EQ(result.ids[2], -1);
  EXPECT_EQ(result.emitted[2], 0);
  for (const size_t r : {0, 1, 3}) {
    EXPECT_EQ(result.ids[r], alone[r]);
    EXPECT_EQ(result.statuses[r], RowStatus::kOk);
  }
}

TEST_F(DeviceSamplerCalls, RefuseWhatDoesNotFitAndChangeNothing) {
  Ordinary ordinary(kOrdinary), untouched(kOrdinary);
  cuda::DeviceSampler& sampler = ordinary.sampler;
  auto step = [&](auto spoil) {
    return [&, spoil] {
      std::vector<StepRequest> requests = ordinary.requests;
      LogitsView logits = ordinary.device.view();
      spoil(requests, logits);
      sampler.Step({logits, requests}, nullptr);
    };
  };
  using Requests = std::vector<StepRequest>;
  const RequestHandle gone = sampler.Add({});
  sampler.Remove(gone);
  const std::vector<int32_t> drafts = {1, 2, 3};
  const std::vector<int32_t> no_token = {1000};
  const std::vector<int32_t> short_mask = {1, 2};
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidValue;
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].request = gone; }), kInvalid, "request");
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].request = r[0].request; }), kInvalid,
              "requests");
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].drafts = drafts; }), kInvalid,
              "drafts.size()");
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].drafts = no_token; }), kInvalid, "drafts");
  const std::vector<int32_t> parents = {0, -2};
  const std::vector<int32_t> one_draft = {1};
  const SelectParams draft_params;
  auto use_model = [&](StepRequest& request) {
    request.drafts = one_draft;
    request.draft_model.logits = ordinary.device.view();
    request.draft_model.logits.rows = 1;
    request.draft_model.params = {&draft_params, 1};
  };
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].parents = parents; }), kInvalid,
              "parents.size()");
  for (const size_t i : {0, 1}) {
    ExpectError(step([&](Requests& r, LogitsView&) {
                  r[1].drafts = one_draft;
                  r[1].parents = std::span(parents).subspan(i, 1);
                }),
                kInvalid, "parents");
  }
  ExpectError(step([&](Requests& r, LogitsView&) { use_model(r[1]); }), kInvalid,
              "draft_cuts.size()");
  ExpectError(step([&](Requests& r, LogitsView&) {
                use_model(r[1]);
                r[1].draft_model.params = {};
              }),
              kInvalid, "draft_model.params.size()");
  ExpectError(step([&](Requests& r, LogitsView&) {
                use_model(r[1]);
                r[1].draft_model.logits.rows = 2;
              }),
              kInvalid, "draft_model.logits.rows");
  ExpectError(step([&](Requests& r, LogitsView&) {
                use_model(r[1]);
                r[1].draft_model.logits.device.kind = DeviceKind::kCpu;
              }),
              ErrorCode::kInvalidType, "draft_model.logits.device");
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].bitmask = short_mask; }), kInvalid,
              "bitmask.size()");
  ExpectError(step([&](Requests& r, LogitsView&) { r[1].forced = 1000; }), kInvalid, "forced");
  ExpectError(step([&](Requests&, LogitsView& l) { l.rows = 3; }), kInvalid, "logits.rows");
  ExpectError(step([&](Requests&, LogitsView& l) { l.vocab = 999; }), kInvalid, "logits.vocab");
  ExpectError(step([&](Requests&, LogitsView& l) { l.device.kind = DeviceKind::kCpu; }),
              ErrorCode::kInvalidType, "logits.device");
  ExpectError([&] { sampler.Remove(gone); }, kInvalid, "request");
  ExpectError([&] { sampler.Rollback(ordinary.requests[0].request, 1); }, kInvalid, "count");
  ExpectError([&] { sampler.Accept(ordinary.requests[0].request, no_token); }, kInvalid, "tokens");
  ExpectError([&] { sampler.Add({.params = {.top_p = 2.0f}}); }, kInvalid, "top_p");
  ExpectError([&] { sampler.Add({.params = {.logprobs = 1}}); }, kInvalid, "logprobs");
  const LogitsProcessor processor{
      .apply = [](void*, std::span<const int32_t>, size_t, std::span<float>) {}};
  ExpectError([&] { sampler.Add({.processors = {&processor, 1}}); }, ErrorCode::kUnavailable,
              "request.processors");
  const std::vector<int32_t> long_prompt(5000, 1);
  ExpectError([&] { sampler.Add({.prompt = long_prompt}); }, kInvalid, "prompt.size()");
  ExpectError(
      [&] {
        while (true) sampler.Add({});
      },
      ErrorCode::kExhausted, "requests");
  ExpectError([&] { sampler.Accept(ordinary.requests[0].request, std::vector<int32_t>(4097, 1)); },
              ErrorCode::kExhausted, "tokens.size()");
  const OnDevice<std::byte> memory(100);
  ExpectError([&] { cuda::DeviceSampler(kOrdinary, memory); }, kInvalid, "memory.size");
  ExpectError([&] { cuda::DeviceSampler({.vocab = 0}); }, kInvalid, "vocab");
  ExpectError([&] { cuda::DeviceSampler({.vocab = 5, .max_drafts = 65}); }, kInvalid, "max_drafts");
  ExpectError([&] { cuda::StepHandle().Get(); }, kInvalid, "step");

  const cuda::StepHandle first = sampler.Step(ordinary.input(), nullptr);
  EXPECT_TRUE(
      SameSequence(first.Get().ids, untouched.sampler.Step(untouched.input(), nullptr).Get().ids));
  for (int i = 0; i < cuda::DeviceSampler::kStepsKept; ++i) sampler.Step(ordinary.input(), nullptr);
  ExpectError([&] { first.Get(); }, kInvalid, "step");
  ExpectError([&] { sampler.Rollback(ordinary.requests[0].request, 1); }, kInvalid, "request");
}

}  // namespace
}  // namespace sluice::test
