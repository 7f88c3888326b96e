// Draws by the kernel that knows of typical sampling give the reference's tokens and Cuts: any
// parameters, any rows, patched or not, in any team; and before a top-k they seldom need the
// definition.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "cuda/row_launch.h"
#include "sampler/device/kernels/sample_adjusted.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/row_patches.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr cuda::TeamShape kTeams[] = {{1, 512}, {1, 1024}, {2, 512}, {2, 1024}, {4, 512}, {8, 512}};
constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};

class TypicalDraws : public DeviceTest, public ::testing::WithParamInterface<DType> {};

// The rows as they are read, in fp32.
RequestRows AsRead(RequestRows rows, const std::vector<HostPatch>& patches, DType dtype) {
  for (size_t r = 0; r < rows.size(); ++r) {
    if (dtype != DType::kF32) {
      for (float& x : rows.values[r]) x = Widened(Narrowed(x, dtype), dtype);
    }
    if (!patches.empty()) rows.values[r] = Patched(rows.values[r], patches[r]);
  }
  return rows;
}

// patches: none, or one a row. Answers how many rows the definition had to decide.
int64_t ExpectReference(const RequestRows& rows, const std::vector<HostPatch>& patches, DType dtype,
                        RowStartAt start) {
  const RequestRows as_read = AsRead(rows, patches, dtype);
  const Batch reference(as_read.values, DType::kF32);
  const SelectInput input{reference.view(), as_read.params, as_read.keys};
  const size_t count = rows.size();
  const Batch batch(rows.values, dtype);
  const DeviceBatch device(batch, start);
  const OnDevice<SelectParams> params(rows.params);
  const OnDevice<NoiseKey> keys(rows.keys);
  std::optional<PatchesOnDevice> on_device;
  cuda::RowParams row_params{params, keys};
  if (!patches.empty()) row_params.patches = on_device.emplace(patches).array();
  int64_t by_definition = 0;
  for (const DrawMethod method : kMethods) {
    const std::vector<TokenResult> tokens = Sampled(input, method);
    std::vector<int32_t> expected_ids;
    std::vector<RowStatus> expected_statuses;
    for (const TokenResult& token : tokens) {
      expected_ids.push_back(token.id);
      expected_statuses.push_back(token.status);
    }
    for (const cuda::TeamShape shape : kTeams) {
      SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
      const cuda::FixedShape fixed(shape);
      const OnDevice<TokenResult> results(count);
      const OnDevice<int32_t> ids(count);
      const OnDevice<RowStatus> statuses(count);
      const OnDevice<cuda::RowPath> ways(count);
      cuda::SampleAdjusted(device.view(), row_params, method,
                           {results.data(), nullptr, nullptr, ways.data()}, {.has_typical = true},
                           nullptr);
      EXPECT_TRUE(SameSequence(results.Get(), tokens));
      const std::vector<cuda::RowPath> all_ways = ways.Get();
      by_definition = std::max<int64_t>(
          by_definition, std::count(all_ways.begin(), all_ways.end(), cuda::RowPath::kDefinition));
      cuda::SampleAdjusted(device.view(), row_params, method,
                           {nullptr, ids.data(), statuses.data(), nullptr}, {.has_typical = true},
                           nullptr);
      EXPECT_TRUE(SameSequence(ids.Get(), expected_ids));
      EXPECT_TRUE(SameSequence(statuses.Get(), expected_statuses));
      if (testing::Test::HasFailure()) return by_definition;
    }
  }
  return by_definition;
}

constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(), -0.0f, 1e38f};

// Half of the rows are such as the kernel is for.
SelectParams AnyParams(int64_t vocab, Random& random) {
  SelectParams params = RandomSwitchedParams(vocab, random);
  if (random.Coin(0.9)) params.typical_p = static_cast<float>(random.Uniform()) * 0.999f + 1e-4f;
  if (random.Coin()) return params;
  params.temperature = random.Coin() ? 1.0f : 0.6f;
  params.top_n_sigma = 0.0f;
  params.profile.top_k_top_p = TopKTopP::kSequential;
  params.profile.min_p_stage = MinPStage::kLast;
  params.top_k = 1 + static_cast<int32_t>(random.Below(random.Coin() ? 60 : 600));
  return params;
}

TEST_P(TypicalDraws, EqualTheReference) {
  Random random(31);
  for (const int64_t vocab : {1, 7, 100, 1000, 3000, 20000}) {
    SCOPED_TRACE(vocab);
    for (const bool is_patched : {false, true}) {
      RequestRows rows;
      std::vector<HostPatch> patches;
      for (int i = 0; i < (vocab > 10000 ? 40 : 90); ++i) {
        std::vector<float> row =
            MakeRow(kAllRowKinds[random.Below(std::size(kAllRowKinds))], vocab, random);
        if (random.Coin(0.1)) random.Pick(row) = kOdd[random.Below(std::size(kOdd))];
        if (is_patched) {
          const PatchKind& kind = kPatchKinds[random.Below(std::size(kPatchKinds))];
          patches.push_back(MakePatch(kind, row, {std::begin(kOdd), std::end(kOdd)}, random));
        }
        rows.Add(std::move(row), AnyParams(vocab, random), random);
      }
      ExpectReference(rows, patches, GetParam(),
                      random.Coin() ? RowStartAt::kAligned : RowStartAt::kOneElementOn);
      if (HasFailure()) return;
    }
  }
}

// One read decides where the last key is among what is listed or far from it.
TEST_P(TypicalDraws, SeldomNeedTheDefinitionOnRowsLikeAModels) {
  constexpr int64_t kVocab = 128256;
  Random random(32);
  for (const bool is_patched : {false, true}) {
    RequestRows rows;
    std::vector<HostPatch> patches;
    for (const RowKind kind : {RowKind::kPeaked, RowKind::kMid, RowKind::kBf16Rounded}) {
      for (const float p : {0.9f, 0.95f, 0.99f}) {
        for (const SelectParams& params :
             {SelectParams{.top_k = 50, .top_p = 0.9f, .typical_p = p},
              SelectParams{.top_k = 400, .typical_p = p},  // a list longer than a block
              SelectParams{.top_k = 20, .typical_p = p},
              SelectParams{.top_k = 50, .typical_p = p, .xtc_probability = 1.0f},
              SelectParams{.temperature = 0.7f, .top_k = 90, .typical_p = p}}) {
          rows.Add(MakeRow(kind, kVocab, random), params, random);
          if (!is_patched) continue;
          patches.push_back(
              MakePatch({.count = 300, .allowed = 0.9}, rows.values.back(), {}, random));
        }
      }
    }
    const int64_t by_definition = ExpectReference(rows, patches, GetParam(), RowStartAt::kAligned);
    EXPECT_LE(by_definition, std::ssize(rows.values) / 6);
  }
}

// The key is where no bin is: among many tokens that tie or nearly do, at both ends, behind ten
// octaves, behind a gap.
TEST_P(TypicalDraws, FindAKeyThatBinsDoNot) {
  constexpr int64_t kVocab = 20000;
  Random random(33);
  RequestRows rows;
  // What becomes of a token from [0, 1), by its place.
  const auto values = {
      +[](double u, int64_t) { return static_cast<float>(-3.0 * u); },
      +[](double u, int64_t i) { return static_cast<float>(i % 400 == 0 ? -u : -9.0 - u); },
      +[](double u, int64_t i) { return static_cast<float>(i % 400 == 0 ? -u : -7.0 - 4.0 * u); },
      +[](double u, int64_t i) { return static_cast<float>(i < 30 ? -0.001 * u : -5.0 - u); },
      +[](double u, int64_t i) { return static_cast<float>(i < 9 ? 0.0 : -6.0 - 0.01 * u); },
      +[](double u, int64_t i) {
        return static_cast<float>(i < 200 ? -4.0 * u : -16.0 - 12.0 * u);
      },
      +[](double u, int64_t i) { return i == 5 ? 1.0f : static_cast<float>(-8.0 - u); },
      +[](double u, int64_t i) { return i % 7 == 0 ? -std::floor(float(u) * 9.0f) : -20.0f; },
  };
  for (const auto value : values) {
    for (const float p : {0.01f, 0.1f, 0.3f, 0.5f, 0.7f, 0.9f, 0.95f, 0.99f, 0.999f}) {
      std::vector<float> row(kVocab);
      for (int64_t i = 0; i < kVocab; ++i) {
        row[static_cast<size_t>(i)] = value(random.Uniform(), i);
      }
      rows.Add(std::move(row), {.top_k = p < 0.5f ? 3 : 60, .typical_p = p}, random);
    }
  }
  ExpectReference(rows, {}, GetParam(), RowStartAt::kAligned);
}

INSTANTIATE_TEST_SUITE_P(, TypicalDraws, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace sluice::test
