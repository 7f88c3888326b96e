// Steps whose log-probabilities come with the draw give the Sampler's bits: any parameters, any
// rows, any team, whatever requests ask for.
#include <limits>
#include <vector>

#include "cuda/row_launch.h"
#include "tests/sampler/device/device_mix.h"

namespace sluice::test {
namespace {

constexpr int32_t kMostListed = 128;
constexpr LogprobMode kRawModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits};
constexpr cuda::TeamShape kTeams[] = {{1, 512}, {1, 1024}, {2, 512}, {2, 1024}, {4, 512}, {8, 512}};

struct PlainRequests {
  void Add(std::vector<float> row, const SelectParams& select, int32_t listed) {
    SamplingParams of_request;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  of_request.name = select.name;
#include "sluice/params.def"
    of_request.profile = select.profile;
    of_request.seed = rows.size();
    if (listed >= 0) of_request.logprobs = listed;
    rows.push_back(std::move(row));
    params.push_back(of_request);
  }

  std::vector<std::vector<float>> rows;
  std::vector<SamplingParams> params;
};

void ExpectSampler(const PlainRequests& plain, DrawMethod method, DType dtype, RowStartAt start) {
  const int64_t vocab = std::ssize(plain.rows[0]);
  const auto count = static_cast<int32_t>(plain.rows.size());
  const Batch batch(plain.rows, dtype);
  const DeviceBatch on_device(batch, start);
  for (const LogprobMode mode : kRawModes) {
    SCOPED_TRACE(Name(mode));
    cuda::DeviceSampler device({.vocab = vocab,
                                .max_requests = count,
                                .max_tokens = 16,
                                .max_logprobs = kMostListed,
                                .bitmasks = false});
    Sampler host({.vocab = vocab, .max_requests = count});
    std::vector<StepRequest> for_device, for_host;
    for (SamplingParams params : plain.params) {
      params.logprob_mode = mode;
      params.draw_method = method;
      for_device.push_back({.request = device.Add({.params = params})});
      for_host.push_back({.request = host.Add({.params = params})});
    }
    const Stepped expected = StepAll(host, batch.view(), for_host, 1 + kMostListed);
    ExpectSame(device.Step({on_device.view(), for_device}, nullptr).Get(), expected,
               1 + kMostListed);
  }
}

std::vector<float> OddRow(RowKind kind, int64_t vocab, Random& random) {
  std::vector<float> row = MakeRow(kind, vocab, random);
  if (random.Coin(0.05)) random.Pick(row) = std::numeric_limits<float>::quiet_NaN();
  if (random.Coin(0.05)) random.Pick(row) = std::numeric_limits<float>::infinity();
  if (random.Coin(0.1)) {  // the largest is a zero of either sign
    for (float& x : row) x = x > 0.0f ? (random.Coin() ? 0.0f : -0.0f) : x;
  }
  if (random.Coin(0.05)) std::fill(row.begin(), row.end(), -0.0f);
  if (random.Coin(0.05)) {
    std::fill(row.begin() + 3, row.end(), -std::numeric_limits<float>::infinity());
  }
  return row;
}

// The draw reports in its own kernel where a list of the top may decide every row of the step; one
// that it cannot decide leaves the report to another kernel, for all.
void DrawFromTop(SelectParams& params, Random& random) {
  params.top_n_sigma = 0.0f;
  params.typical_p = 1.0f;
  params.profile.top_k_top_p = TopKTopP::kSequential;
  if (params.top_k <= 0 || params.top_k > 400)
    params.top_k = static_cast<int32_t>(random.Between(1, 300));
}

class DeviceLogprobs : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(DeviceLogprobs, EqualTheSamplersInEveryTeam) {
  Random random(71);
  const std::vector<int32_t> wishes = {-1, 0, 5, 20, 128};
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    for (int i = 0; i < 6 && !HasFailure(); ++i) {
      const int64_t vocab = i == 5 ? 40003 : random.Between(kMostListed, 3000);
      SCOPED_TRACE(vocab);
      PlainRequests plain;
      for (int r = 0; r < (i == 0 ? 150 : 25); ++r) {
        const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
        SelectParams params = RandomSelectParams(vocab, random);
        if (i % 3 != 1) DrawFromTop(params, random);
        plain.Add(OddRow(kind, vocab, random), params, random.Pick(wishes));
      }
      const DrawMethod method = i % 3 == 2 ? DrawMethod::kCdf : DrawMethod::kGumbel;
      ExpectSampler(plain, method, GetParam(),
                    i % 2 == 0 ? RowStartAt::kAligned : RowStartAt::kOneElementOn);
    }
  }
}

void ExpectSamplerInEveryTeam(std::initializer_list<SelectParams> all, DType dtype) {
  Random random(72);
  PlainRequests plain;
  for (const SelectParams& params : all) {
    for (const int32_t listed : {0, 20, 128}) {
      plain.Add(MakeRow(RowKind::kMid, 128256, random), params, listed);
    }
  }
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    ExpectSampler(plain, DrawMethod::kGumbel, dtype, RowStartAt::kAligned);
  }
}

TEST_P(DeviceLogprobs, EqualTheSamplersAtFullSizeInTheDrawsKernel) {
  ExpectSamplerInEveryTeam({{.top_k = 50, .top_p = 0.9f},
                            {.temperature = 0.0f},
                            {.temperature = 0.7f, .top_k = 3},
                            {.top_k = 300},
                            {.top_k = 400, .min_p = 0.05f},
                            {.top_k = 50, .xtc_probability = 1.0f, .xtc_threshold = 0.01f}},
                           GetParam());
}

// One row that a list of its top does not decide, and all are reported by another kernel.
TEST_P(DeviceLogprobs, EqualTheSamplersAtFullSizeInAKernelOfTheirOwn) {
  ExpectSamplerInEveryTeam({{.top_k = 50, .top_p = 0.9f},
                            {.temperature = 0.0f},
                            {.top_p = 0.7f},
                            {.top_p = 0.999f},
                            {.min_p = 0.05f},
                            {.top_k = 50, .typical_p = 0.95f}},
                           GetParam());
}

INSTANTIATE_TEST_SUITE_P(, DeviceLogprobs, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace sluice::test
