// Log-probabilities, ranks and kept masses on a GPU are those of the reference, bit for bit.
#include <cmath>
#include <vector>

#include "sluice/cuda/logprobs.hpp"
#include "tests/support/any_cut.h"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr LogprobMode kModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                                  LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits};

class CudaLogprobs : public DeviceTest, public ::testing::WithParamInterface<DType> {};

// The NaN of a Cut is not what is asked for.
std::vector<TokenResult> Comparable(std::vector<TokenResult> results) {
  for (TokenResult& result : results) {
    if (std::isnan(result.cut.lower)) result.cut.lower = 0.0f;
    if (std::isnan(result.cut.upper)) result.cut.upper = 0.0f;
  }
  return results;
}

void ExpectReference(const RequestRows& rows, const std::vector<TokenResult>& tokens, DType dtype) {
  const RequestRowsOnDevice on_device(rows, dtype);
  const LogitsView view = on_device.batch().view();
  const Workspace workspace(SelectWorkspaceBytes(view, {Backend::kRef}));
  std::vector<uint64_t> masses;
  for (const LogprobMode mode : kModes) {
    SCOPED_TRACE(Name(mode));
    std::vector<TokenResult> expected = tokens;
    Logprobs({view, mode, rows.params}, expected, {}, {Backend::kRef, {}, workspace.span()});
    const OnDevice<TokenResult> results(tokens);
    const OnDevice<uint64_t> kept(tokens.size());
    cuda::Logprobs(on_device.view(), on_device.params(), mode, results, kept, nullptr);
    EXPECT_TRUE(SameSequence(Comparable(results.Get()), Comparable(expected)));
    if (masses.empty()) masses = kept.Get();
    EXPECT_TRUE(SameSequence(kept.Get(), masses));
    const OnDevice<TokenResult> alone(tokens);
    cuda::Logprobs(on_device.view(), on_device.params(), mode, alone, {}, nullptr);
    EXPECT_TRUE(SameSequence(Comparable(alone.Get()), Comparable(expected)));
  }
}

// Of tokens that Sample drew, whose Cuts' masses Select reports.
void ExpectReference(const RequestRows& rows, DType dtype) {
  const Batch batch(rows.values, dtype);
  const SelectInput input{batch.view(), rows.params, rows.keys};
  const std::vector<TokenResult> tokens = Sampled(input);
  ExpectReference(rows, tokens, dtype);

  const std::vector<CutMass> masses = Selected(input).masses;
  std::vector<uint64_t> expected;
  for (const CutMass& mass : masses) expected.push_back(mass.kept);
  const RequestRowsOnDevice on_device(rows, dtype);
  const OnDevice<TokenResult> results(tokens);
  const OnDevice<uint64_t> kept(tokens.size());
  cuda::Logprobs(on_device.view(), on_device.params(), LogprobMode::kRawLogits, results, kept,
                 nullptr);
  EXPECT_TRUE(SameSequence(kept.Get(), expected));
}

TEST_P(CudaLogprobs, EqualTheReferenceOnRandomRowsAndParameters) {
  Random random(51);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = 1 + static_cast<int64_t>(5999 * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    ExpectReference(RandomRequestRows(1 + random.Below(i % 8 == 0 ? 150 : 24), vocab, random),
                    GetParam());
  }
}

TEST_P(CudaLogprobs, EqualTheReferenceOnHostileRows) {
  Random random(52);
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    ExpectReference(ExtremeRequestRows(hostile, random), GetParam());
  }
}

TEST_P(CudaLogprobs, EqualTheReferenceAtFullSize) {
  Random random(53);
  RequestRows rows;
  for (const RowKind kind : kAllRowKinds) {
    for (const SelectParams& params :
         {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f}, SelectParams{}}) {
      rows.Add(MakeRow(kind, 128256, random), params, random);
    }
  }
  ExpectReference(rows, GetParam());
}

// Tokens that nobody would draw, from Cuts that no rule made.
TEST_P(CudaLogprobs, EqualTheReferenceOnAnyTokenOfAnyCut) {
  Random random(54);
  const std::vector<float> temperatures = {1.0f, 0.7f, 0.0f};
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const int64_t vocab = kBlockWidths[random.Below(std::size(kBlockWidths))];
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    RequestRows rows;
    std::vector<TokenResult> tokens;
    for (int r = 0; r < 9; ++r) {
      rows.Add(AnyRow(vocab, random), {.temperature = random.Pick(temperatures)}, random);
      TokenResult token;
      token.cut = AnyCut(rows.values.back(), random);
      token.id = static_cast<int32_t>(random.Below(vocab + 1)) - 1;
      if (random.Coin(0.1)) token.status = RowStatus::kNanInput;
      tokens.push_back(token);
    }
    ExpectReference(rows, tokens, GetParam());
  }
}

TEST_P(CudaLogprobs, ReadNothingForAnIdOutsideOfTheVocabulary) {
  Random random(55);
  RequestRows rows;
  rows.Add(MakeRow(RowKind::kMid, 100, random), {}, random);
  const RequestRowsOnDevice on_device(rows, GetParam());
  for (const int32_t id : {100, INT32_MAX, -1, INT32_MIN}) {
    TokenResult token;
    token.id = id;
    const OnDevice<TokenResult> results(std::vector<TokenResult>{token});
    cuda::Logprobs(on_device.view(), on_device.params(), LogprobMode::kRawLogprobs, results, {},
                   nullptr);
    EXPECT_TRUE(SameSequence(results.Get(), std::vector<TokenResult>{token}));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaLogprobs, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

using CudaLogprobsBadInput = DeviceTest;

TEST_F(CudaLogprobsBadInput, NamesWhatIsWrong) {
  struct Call {
    LogitsView logits = {
        reinterpret_cast<const float*>(256), 0, 8, 8, DType::kF32, {DeviceKind::kCuda, 0}};
    cuda::RowParams params = {{reinterpret_cast<const SelectParams*>(256), 1}};
    int mode = 0;
    cuda::DeviceArray<TokenResult> results = {reinterpret_cast<TokenResult*>(256), 0};
    cuda::DeviceArray<uint64_t> masses = {};
  };
  ExpectErrors<Call>({{[](Call& c) { c.mode = 4; }, "mode", "4", "[0, 3]"},
                      {[](Call& c) { c.results.size = 1; }, "results.size()", "1", "0"},
                      {[](Call& c) { c.masses = {reinterpret_cast<uint64_t*>(256), 2}; },
                       "kept_masses.size()", "2", "0"},
                      {[](Call& c) { c.logits.device.kind = DeviceKind::kCpu; }, "logits.device",
                       "cpu", "cuda", ErrorCode::kInvalidType}},
                     [](Call& c) {
                       cuda::Logprobs(c.logits, c.params, static_cast<LogprobMode>(c.mode),
                                      c.results, c.masses, nullptr);
                     });
}

}  // namespace
}  // namespace sluice::test
