// Processors on the device's logits, and kept sets that stay there: what the Sampler's processors
// find is what these find, what they leave gives the Sampler's tokens, and what does not go well
// changes nothing.
#include <cmath>
#include <stdexcept>

#include "sluice/error.hpp"
#include "tests/sampler/device/device_mix.h"

namespace sluice::test {
namespace {

class DeviceProcessors : public DeviceTest, public ::testing::WithParamInterface<DType> {};
using DeviceProcessorCalls = DeviceTest;

TEST_P(DeviceProcessors, EqualTheSamplersOnRandomMixesOfRequests) {
  Random random(29);
  int64_t tokens = 0;
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const int64_t vocab = round == 5       ? 20000
                          : round % 3 == 2 ? random.Between(100, 1500)
                                           : random.Between(5, 40);
    Mix mix({.vocab = vocab,
             .dtype = GetParam(),
             .max_requests = round % 4 == 3 ? 40 : 8,
             .cuts = round % 2 == 1,
             .kept = round % 4 > 1,
             .processors = true},
            random.Bits());
    for (int step = 0; step < 50 && !HasFailure(); ++step) mix.Step();
    EXPECT_EQ(mix.device().Waits(), 0);
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 2000);  // the test tests something
}

// Of plain requests and others, with drafts of both modes, by every rule.
TEST_P(DeviceProcessors, KeptSetsAndMassesEqualTheSamplers) {
  Random random(31);
  int64_t tokens = 0;
  for (int round = 0; round < 6 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const int64_t vocab = round == 5 ? 20000 : round % 2 == 0 ? random.Between(30, 70) : 3000;
    Mix mix({.vocab = vocab, .dtype = GetParam(), .cuts = round % 2 == 1, .kept = true},
            random.Bits());
    for (int step = 0; step < 40 && !HasFailure(); ++step) mix.Step();
    tokens += mix.tokens();
  }
  EXPECT_GT(tokens, 700);
}

INSTANTIATE_TEST_SUITE_P(, DeviceProcessors, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

constexpr int64_t kVocab = 300;
constexpr cuda::DeviceSamplerOptions kOptions{
    .vocab = kVocab, .max_requests = 4, .max_drafts = 2, .max_processed_rows = 4};

std::vector<std::vector<float>> SomeRows(int64_t rows) {
  Random random(3);
  std::vector<std::vector<float>> made;
  for (int64_t r = 0; r < rows; ++r) made.push_back(MakeRow(RowKind::kMid, kVocab, random));
  return made;
}

// Rows of a sampler, and a DeviceSampler with the same requests.
struct Pair {
  explicit Pair(int64_t row_count, const cuda::DeviceSamplerOptions& options = kOptions)
      : batch(SomeRows(row_count)), rows(batch), host({.vocab = kVocab}), device(options) {}

  void Add(const Request& request, std::vector<TestProcessor*> processors) {
    std::vector<cuda::DeviceLogitsProcessor> on_device;
    std::vector<LogitsProcessor> on_host;
    for (TestProcessor* processor : processors) {
      on_device.push_back(processor->OnDevice());
      on_host.push_back(processor->OnHost());
    }
    for_device.push_back({.request = device.Add(request, on_device)});
    Request of_host = request;
    of_host.params.seed = device.Seed(for_device.back().request);
    of_host.processors = on_host;
    for_host.push_back({.request = host.Add(of_host)});
  }
  void Drafts(size_t request, std::span<const int32_t> drafts) {
    for_host[request].drafts = for_device[request].drafts = drafts;
  }
  std::vector<TokenResult> OnHost() { return StepTokens(host, batch.view(), for_host); }
  cuda::StepHandle OnDevice() { return device.Step({rows.view(), for_device}, nullptr); }
  void ExpectSameStep() {
    const std::vector<TokenResult> expected = OnHost();
    const cuda::DeviceStepResult actual = OnDevice().Get();
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_EQ(actual.ids[r], expected[r].id) << r;
      EXPECT_EQ(actual.statuses[r], expected[r].status) << r;
    }
  }

  Batch batch;
  DeviceBatch rows;
  Sampler host;
  cuda::DeviceSampler device;
  std::vector<StepRequest> for_host;
  std::vector<StepRequest> for_device;
};

// What a processor was given, seen by one that changes nothing.
struct Witness {
  std::vector<float> values;
  std::vector<std::vector<int32_t>> before;  // the tokens before each row
  int64_t of_prompt = 0;

  LogitsProcessor OnHost() {
    return {this, [](void* self, std::span<const int32_t> tokens, size_t prompt_length,
                     std::span<float> logits) {
              auto& seen = *static_cast<Witness*>(self);
              seen.values.insert(seen.values.end(), logits.begin(), logits.end());
              seen.before.emplace_back(tokens.begin(), tokens.end());
              seen.of_prompt = static_cast<int64_t>(prompt_length);
            }};
  }
  cuda::DeviceLogitsProcessor OnDevice() {
    return {this, [](void* self, const cuda::ProcessorRows& rows, void* stream) {
              Require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
              static_cast<Witness*>(self)->See(rows);
            }};
  }

 private:
  template <typename T>
  static std::vector<T> Copied(const void* from, int64_t count) {
    std::vector<T> values_there(static_cast<size_t>(count));
    Require(cudaMemcpy(values_there.data(), from, values_there.size() * sizeof(T),
                       cudaMemcpyDeviceToHost));
    return values_there;
  }

  void See(const cuda::ProcessorRows& rows) {
    const int32_t count = Copied<int32_t>(rows.token_count, 1)[0];
    for (int64_t r = 0; r < rows.logits.rows; ++r) {
      const std::vector<float> row = Copied<float>(rows.logits.Row(r), rows.logits.vocab);
      values.insert(values.end(), row.begin(), row.end());
      before.push_back(Copied<int32_t>(rows.tokens, count));
      const std::vector<int32_t> drafts = Copied<int32_t>(rows.drafts, r);
      before.back().insert(before.back().end(), drafts.begin(), drafts.end());
    }
    of_prompt = rows.prompt_length;
  }
};

// Behind bitmask, bad words, bias, penalties and DRY, and before the forced token.
TEST_F(DeviceProcessorCalls, FindWhatTheSamplersFind) {
  Random random(41);
  Sampler host({.vocab = kVocab});
  cuda::DeviceSampler device(kOptions);
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    LiteralRequest literal = RandomLiteralRequest(kVocab, random);
    literal.params.logprobs.reset();
    literal.params.temperature = 0.0f;
    Witness by_host, by_device;
    const LogitsProcessor host_witness = by_host.OnHost();
    const cuda::DeviceLogitsProcessor device_witness = by_device.OnDevice();
    Request request{.params = literal.params, .prompt = literal.prompt};
    std::vector<StepRequest> plain = {{.request = device.Add({})}, {.request = host.Add({})}};
    std::vector<StepRequest> for_device = {plain[0],
                                           {.request = device.Add(request, {&device_witness, 1})}};
    request.processors = {&host_witness, 1};
    std::vector<StepRequest> for_host = {plain[1], {.request = host.Add(request)}};

    // What the rows would give is accepted, so that the host's processors see all rows.
    std::vector<int32_t> drafts = {1, 2};
    const std::vector<int32_t> bitmask = RandomBitmask(kVocab, 3, random);
    std::vector<std::vector<float>> rows = SomeRows(4);
    rows[1][1] = rows[2][2] = 1e6f;
    const Batch with_drafts(rows);
    const DeviceBatch with_drafts_there(with_drafts);
    for_host[1].drafts = for_device[1].drafts = drafts;
    if (round % 2 == 0) for_host[1].bitmask = for_device[1].bitmask = bitmask;
    if (round % 3 == 0) for_host[1].forced = for_device[1].forced = 1;
    const std::vector<TokenResult> expected = StepTokens(host, with_drafts.view(), for_host);
    const auto answer = device.Step({with_drafts_there.view(), for_device}, nullptr).Get();
    ASSERT_EQ(answer.ids[1], expected[1].id);
    ASSERT_FALSE(by_host.before.empty());
    by_device.values.resize(by_host.values.size());  // rows behind a rejection
    by_device.before.resize(by_host.before.size());
    EXPECT_TRUE(SameSequence(by_device.values, by_host.values));
    EXPECT_TRUE(SameSequence(by_device.before, by_host.before));
    EXPECT_EQ(by_device.of_prompt, by_host.of_prompt);
    for (const StepRequest& each : for_host) host.Remove(each.request);
    for (const StepRequest& each : for_device) device.Remove(each.request);
  }
}

TEST_F(DeviceProcessorCalls, AreSkippedByGreedyRequestsWhereTheyCannotMoveTheArgmax) {
  TestProcessor moves{TestProcessor::Way::kRaise, 1, false};
  TestProcessor says_it_does_not{TestProcessor::Way::kRaise, 2, true};
  Pair pair(4);
  pair.Add({.params = {.temperature = 0.0f}}, {&moves});
  pair.Add({.params = {.temperature = 0.0f}}, {&says_it_does_not});
  pair.Add({.params = {.temperature = 0.0f}}, {&says_it_does_not, &moves});
  pair.Add({.params = {.temperature = 0.5f}}, {&says_it_does_not});
  for (int step = 0; step < 5; ++step) pair.ExpectSameStep();
  // It is the request's numbers of the step that count.
  pair.device.Update(pair.for_device[3].request, {.temperature = 0.0f});
  const std::vector<float> row = SomeRows(4)[3];
  EXPECT_EQ(pair.OnDevice().Get().ids[3], std::ranges::max_element(row) - row.begin());
}

TEST_F(DeviceProcessorCalls, GiveARowTheStatusOfWhatTheyWrite) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        -std::numeric_limits<float>::infinity()}) {
    SCOPED_TRACE(value);
    struct Filled {
      float value;
      size_t count;  // of tokens, from 0 on
    } filled{value, value < 0 ? static_cast<size_t>(kVocab) : 1};
    const cuda::DeviceLogitsProcessor fills{
        &filled, [](void* self, const cuda::ProcessorRows& rows, void* stream) {
          const auto& own = *static_cast<Filled*>(self);
          const std::vector<float> values(own.count, own.value);
          Require(cudaMemcpyAsync(rows.logits.data, values.data(), values.size() * sizeof(float),
                                  cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)));
          Require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
        }};
    Pair pair(3);
    TestProcessor other;
    pair.Add({.params = {.seed = 1}}, {});
    pair.Add({.params = {.seed = 2}}, {&other});
    LogitsView two = pair.batch.view();
    two.rows = 2;
    const std::vector<TokenResult> expected = StepTokens(pair.host, two, pair.for_host);
    pair.for_device.push_back({.request = pair.device.Add({}, {&fills, 1})});
    const cuda::DeviceStepResult actual = pair.OnDevice().Get();
    EXPECT_EQ(actual.ids[0], expected[0].id);
    EXPECT_EQ(actual.ids[1], expected[1].id);
    EXPECT_EQ(actual.ids[2], -1);
    EXPECT_EQ(actual.emitted[2], 0);
    EXPECT_EQ(actual.statuses[2], std::isnan(value) ? RowStatus::kNanInput
                                  : value > 0       ? RowStatus::kPosInfInput
                                                    : RowStatus::kEmptySupport);
    // A forced token stands in place of what they wrote.
    pair.for_device[2].forced = 7;
    EXPECT_EQ(pair.OnDevice().Get().ids[2], 7);
  }
}

// Tokens are counted on the device: processors see those of steps that nobody has read.
TEST_F(DeviceProcessorCalls, SeeTheTokensWhenTheHostRunsAhead) {
  TestProcessor processor{TestProcessor::Way::kScale, 9};
  const std::vector<int32_t> drafts = {4, 5};
  Pair pair(3);
  pair.Add({.params = {.seed = 3}}, {&processor});
  pair.Drafts(0, drafts);
  for (int round = 0; round < 4; ++round) {
    std::vector<cuda::StepHandle> steps;
    for (int i = 0; i < 3; ++i) steps.push_back(pair.OnDevice());
    for (const cuda::StepHandle& step : steps) {
      const std::vector<TokenResult> expected = pair.OnHost();
      const auto ids = step.Get().ids;
      for (size_t r = 0; r < expected.size(); ++r) EXPECT_EQ(ids[r], expected[r].id);
    }
  }
  EXPECT_EQ(pair.device.Waits(), 0);
}

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

TEST_F(DeviceProcessorCalls, RefuseWhatWasNotPlannedAndChangeNothing) {
  TestProcessor processor;
  const cuda::DeviceLogitsProcessor on_device = processor.OnDevice();
  const LogitsProcessor on_host = processor.OnHost();
  const std::vector<int32_t> drafts = {4, 5};
  cuda::DeviceSamplerOptions options = kOptions;
  options.max_processed_rows = 2;
  Pair pair(3, options);
  pair.Add({.params = {.seed = 3}}, {&processor});
  pair.Drafts(0, drafts);
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidValue;
  ExpectError([&] { pair.OnDevice(); }, kInvalid, "processed rows");
  ExpectError([&] { pair.device.Add({.processors = {&on_host, 1}}); }, ErrorCode::kUnavailable,
              "request.processors");
  const cuda::DeviceLogitsProcessor nothing;
  ExpectError([&] { pair.device.Add({}, {&nothing, 1}); }, kInvalid, "processors.apply");
  options.max_processed_rows = 0;
  cuda::DeviceSampler without(options);
  ExpectError([&] { without.Add({}, {&on_device, 1}); }, kInvalid, "processors");
  EXPECT_EQ(without.FreeSlots(), 4);
  options.max_processed_rows = 1 << 16;
  ExpectError([&] { cuda::DeviceSampler more(options); }, kInvalid, "max_processed_rows");

  LogitsView one_there = pair.batch.view();
  one_there.rows = 1;
  const std::vector<StepRequest> alone_there = {{.request = pair.for_host[0].request}};
  const std::vector<TokenResult> expected = StepTokens(pair.host, one_there, alone_there);
  LogitsView one = pair.rows.view();
  one.rows = 1;
  const std::vector<StepRequest> alone = {{.request = pair.for_device[0].request}};
  EXPECT_EQ(pair.device.Step({one, alone}, nullptr).Get().ids[0], expected[0].id);
  EXPECT_EQ(pair.device.Waits(), 0);
}

TEST_F(DeviceProcessorCalls, AcceptNothingOfAStepOfWhichOneThrows) {
  struct Mood {
    bool is_bad = false;
  } mood;
  const cuda::DeviceLogitsProcessor moody{&mood, [](void* self, const cuda::ProcessorRows&, void*) {
                                            if (static_cast<Mood*>(self)->is_bad) {
                                              throw std::runtime_error("in a bad mood");
                                            }
                                          }};
  TestProcessor processor{TestProcessor::Way::kAdd, 5};
  Pair pair(3);
  pair.Add({.params = {.frequency_penalty = 1.0f, .seed = 1}}, {&processor});
  pair.Add({.params = {.presence_penalty = 1.0f, .seed = 2}}, {});
  pair.for_device.push_back({.request = pair.device.Add({.params = {.seed = 3}}, {&moody, 1})});
  pair.for_host.push_back({.request = pair.host.Add({.params = {.seed = 3}})});
  pair.ExpectSameStep();
  mood.is_bad = true;
  EXPECT_THROW(pair.OnDevice(), std::runtime_error);
  EXPECT_THROW(pair.OnDevice(), std::runtime_error);
  mood.is_bad = false;
  for (int step = 0; step < 5; ++step) pair.ExpectSameStep();
  EXPECT_EQ(pair.device.Waits(), 0);
}

// A tenth of a second of the device, then what the processor was shown.
__global__ void ReadCountLate(const int32_t* token_count, int32_t* seen) {
  const int64_t start = clock64();
  while (clock64() - start < 200'000'000) {
  }
  *seen = *token_count;
}

// What is enqueued of a step that throws may still read its requests.
TEST_F(DeviceProcessorCalls, ReadTheirOwnRequestThoughAnotherThrewAndItsPlaceIsTaken) {
  const OnDevice<int32_t> seen(1);
  const cuda::DeviceLogitsProcessor late{
      seen.data(), [](void* to, const cuda::ProcessorRows& rows, void* stream) {
        ReadCountLate<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(rows.token_count,
                                                                      static_cast<int32_t*>(to));
      }};
  const cuda::DeviceLogitsProcessor throws{
      nullptr, [](void*, const cuda::ProcessorRows&, void*) { throw std::runtime_error("no"); }};
  const std::vector<int32_t> prompt = {1, 2, 3};
  const std::vector<cuda::DeviceLogitsProcessor> processors = {late, throws};
  cuda::DeviceSamplerOptions options = kOptions;
  options.max_requests = 1;
  cuda::DeviceSampler sampler(options);
  const DeviceBatch rows{Batch(SomeRows(1))};
  const std::vector<StepRequest> one = {{.request = sampler.Add({.prompt = prompt}, processors)}};
  EXPECT_THROW(sampler.Step({rows.view(), one}, nullptr), std::runtime_error);
  sampler.Remove(one[0].request);
  sampler.Add({});
  EXPECT_EQ(seen.Get()[0], 3);
}

// Rows without processors beside some that have them are drawn as they are alone.
TEST_F(DeviceProcessorCalls, LeaveTheOtherRowsAlone) {
  TestProcessor processor{TestProcessor::Way::kRaise, 5};
  Pair with(3), without(3);
  for (Pair* pair : {&with, &without}) {
    pair->Add({.params = {.top_k = 20, .seed = 1}}, {});
    pair->Add({.params = {.seed = 2}},
              pair == &with ? std::vector{&processor} : std::vector<TestProcessor*>());
    pair->Add({.params = {.top_p = 0.8f, .frequency_penalty = 0.5f, .seed = 3}}, {});
  }
  for (int step = 0; step < 10; ++step) {
    const auto ids = with.OnDevice().Get().ids;
    const auto alone = without.OnDevice().Get().ids;
    EXPECT_EQ(ids[0], alone[0]);
    EXPECT_LT(ids[1], 5);  // what the processor raises
    EXPECT_EQ(ids[2], alone[2]);
  }
}

}  // namespace
}  // namespace sluice::test
