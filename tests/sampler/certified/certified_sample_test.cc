// Draws from a certified head: the ids, statuses and Cuts of Project and Sample.
#include <gtest/gtest.h>

#include <map>

#include "draw/draw_table.h"
#include "semantics/draw/draw.h"
#include "tests/head/certified_draws.h"
#include "tests/support/bad_input.h"
#include "tests/support/params.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

class CertifiedSample : public BackendTest {};

TEST_P(CertifiedSample, IsTheDenseHeadsForEveryKindOfHeadAndParameters) {
  Random random(1);
  for (int n = 0; n < Rounds(42); ++n) {
    const HeadKind head_kind = kAllHeadKinds[static_cast<size_t>(n) % std::size(kAllHeadKinds)];
    const CertificateKind kind = kCertificateKinds[random.Below(2)];
    const int64_t vocab = random.Between(1, 900);
    const int64_t dim = random.Between(1, 300);
    const Rows rows = Representable(MakeHead(head_kind, vocab, dim, random), dtype());
    const Batch weight(rows, dtype());
    const std::vector<float> bias = MakeBias(vocab, random);
    const CertifiedHead head({Matrix(weight), bias},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    Rows states;
    std::vector<SelectParams> params;
    std::vector<NoiseKey> keys;
    for (int r = 0; r < 8; ++r) {
      states.push_back(MakeHidden(random.Coin(0.6)
                                      ? HiddenKind::kPeaked
                                      : kAllHiddenKinds[random.Below(std::size(kAllHiddenKinds))],
                                  rows, random));
      params.push_back(RandomSwitchedParams(vocab, random));
      keys.push_back(RandomKey(random));
    }
    if (random.Coin(0.2)) states[5][0] = random.Coin() ? NAN : INFINITY;
    if (random.Coin(0.2)) params[3].top_p = 2.0f;
    const Batch hidden(states, kAllDTypes[random.Below(3)]);
    std::vector<int32_t> bitmask;
    const size_t words = static_cast<size_t>(8 * ((vocab + 31) / 32));
    const int fill = static_cast<int>(random.Below(4));
    for (size_t w = 0; fill != 0 && w < words; ++w) {
      const auto bits = static_cast<uint32_t>(random.Bits());
      bitmask.push_back(static_cast<int32_t>(fill == 1 ? bits : fill == 2 ? ~0u : bits & 1u << 7));
    }
    const CertifiedInput input{Matrix(hidden), bitmask};
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const Drawn actual = RunSample(head, input, params, keys, method, {backend()});
      const auto expected = DenseSample(head.head(), input, params, keys, method);
      ASSERT_TRUE(SameSequence(actual.results, expected))
          << n << " " << Name(kind) << " " << vocab << " x " << dim;
      const Drawn ids = RunSampleIds(head, input, params, keys, method, {backend()});
      ASSERT_TRUE(SameSequence(ids.results, WithoutCuts(expected)))
          << n << " " << Name(kind) << " " << vocab << " x " << dim;
    }
  }
}

// Ordinary parameters on heads as they are: that the certificate answers, not the dense head.
TEST_P(CertifiedSample, OfUsualParametersNeedsNoDenseHead) {
  Random random(2);
  const Rows rows = MakeHead(HeadKind::kNormal, 1500, 256, random);
  const Batch weight(rows, dtype());
  Rows states;
  for (int r = 0; r < 4; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  const Batch hidden(states, dtype());
  const CertifiedInput input{Matrix(hidden), {}};
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < 4; ++r) keys.push_back({7, r});
  const std::vector<SelectParams> usual = {
      {.temperature = 0.0f}, {.temperature = 0.8f, .top_k = 3, .top_p = 0.9f},
      {.temperature = 1.0f}, {.temperature = 0.7f},
      {.min_p = 0.1f},       {.top_k = 3, .min_p = 0.05f, .xtc_probability = 1.0f},
  };
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    for (size_t p = 0; p < usual.size(); ++p) {
      const std::vector<SelectParams> params(4, usual[p]);
      const Drawn drawn = RunSample(head, input, params, keys, DrawMethod::kGumbel, {backend()});
      EXPECT_TRUE(SameSequence(drawn.results,
                               DenseSample(head.head(), input, params, keys, DrawMethod::kGumbel)));
      EXPECT_EQ(drawn.stats.dense_rows, 0) << p << " " << Name(kind);
    }
    const std::vector<SelectParams> params(4, SelectParams{.typical_p = 0.9f});
    const Drawn drawn = RunSample(head, input, params, keys, DrawMethod::kGumbel, {backend()});
    EXPECT_EQ(drawn.stats.dense_rows, 4);
    EXPECT_EQ(drawn.rows[0].reason, DenseReason::kParameters);
  }
}

TEST_P(CertifiedSample, DrawsFromTheWholeSoftmaxAtAnyTemperature) {
  Random random(3);
  const Rows rows = MakeHead(HeadKind::kTies, 1500, 128, random);
  const Batch weight(rows, dtype());
  const CertifiedHead head({Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.seed = 5}, {}));
  Rows states;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;
  for (int r = 0; r < 64; ++r) {
    states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
    for (float& h : states.back()) h *= r % 8 == 7 ? 1000.0f : 1.0f;  // logits of thousands
    params.push_back({.temperature = std::vector<float>{0.01f, 0.5f, 1.0f, 2.0f}[random.Below(4)]});
    keys.push_back(RandomKey(random));
  }
  const Batch hidden(states, DType::kF32);
  const CertifiedInput input{Matrix(hidden), {}};
  const Drawn drawn = RunSample(head, input, params, keys, DrawMethod::kGumbel, {backend()});
  EXPECT_TRUE(SameSequence(drawn.results,
                           DenseSample(head.head(), input, params, keys, DrawMethod::kGumbel)));
}

// Every token whose score reaches the one asked for is listed: what the certificate rests on.
TEST_P(CertifiedSample, ContendersLeaveNobodyOut) {
  Random random(4);
  for (int n = 0; n < 30; ++n) {
    const int64_t vocab = random.Between(1, 500);
    std::vector<float> x;
    for (int64_t v = 0; v < vocab; ++v) {
      x.push_back(random.Coin(0.1) ? -INFINITY : static_cast<float>(10.0 * random.Normal()));
    }
    const NoiseKey key = RandomKey(random);
    const float max = 20.0f;
    const float scale = semantics::TemperatureScale(n % 3 == 0 ? 0.01f : 1.0f);
    const float best = static_cast<float>(5.0 * random.Normal());
    std::vector<int32_t> ids(x.size());
    ids.resize(static_cast<size_t>(
        DrawTableFor(backend()).list_contenders(x, max, scale, key, best, ids.data())));
    for (int32_t v = 0; v < vocab; ++v) {
      const float g = semantics::Gumbel(semantics::NoiseBits(key, semantics::Stream::kTarget, v));
      const float score = semantics::LogWeight(x[static_cast<size_t>(v)], max, scale) + g;
      const bool is_listed = std::find(ids.begin(), ids.end(), v) != ids.end();
      EXPECT_TRUE(is_listed || !(score >= best)) << n << " " << v;
    }
  }
}

SLUICE_FOR_EACH_BACKEND(CertifiedSample);

TEST(CertifiedSampleChecks, RefuseWhatDoesNotFit) {
  const std::vector<float> values(80, 0.5f);
  const MatrixView weight{values.data(), 10, 8, 8, DType::kF32, {}};
  const CertifiedHead head({weight}, HeadPlanes::Build(weight, {}, {}));
  const MatrixView hidden{values.data(), 2, 8, 8, DType::kF32, {}};
  const auto sample = [&](size_t params, size_t keys, DrawMethod method) {
    RunSample(head, {hidden, {}}, std::vector<SelectParams>(params), std::vector<NoiseKey>(keys),
              method, {});
  };
  EXPECT_NO_THROW(sample(1, 2, DrawMethod::kCdf));
  ExpectError([&] { sample(3, 1, DrawMethod::kGumbel); }, "params.size()", "3",
              "1 or the number of rows, 2");
  ExpectError([&] { sample(1, 0, DrawMethod::kGumbel); }, "keys.size()", "0",
              "1 or the number of rows, 2");
  ExpectError([&] { sample(1, 1, DrawMethod{9}); }, "draw_method", "9", "gumbel or cdf");
  const auto sample_ids = [&](size_t ids, size_t statuses, size_t params) {
    const std::vector<SelectParams> all(params);
    std::vector<int32_t> id(ids);
    std::vector<RowStatus> status(statuses);
    Execution execution;
    AlignedBytes memory(SampleFromHeadWorkspaceBytes(head, 2, execution));
    execution.workspace = memory.span();
    const NoiseKey key;
    SampleIdsFromHead(head, {hidden, {}}, all, {&key, 1}, {}, DrawMethod::kGumbel, id, status, {},
                      execution);
  };
  EXPECT_NO_THROW(sample_ids(2, 2, 1));
  EXPECT_NO_THROW(sample_ids(2, 0, 2));
  ExpectError([&] { sample_ids(1, 2, 1); }, "ids.size()", "1", "2");
  ExpectError([&] { sample_ids(2, 1, 1); }, "statuses.size()", "1", "2");
  ExpectError([&] { sample_ids(2, 2, 3); }, "params.size()", "3", "1 or the number of rows, 2");
  const MatrixView huge{values.data(), int64_t{1} << 62, 8, 8, DType::kF32, {}};
  ExpectError(
      [&] { SampleFromHead(head, {huge, {}}, {}, {}, {}, DrawMethod::kGumbel, {}, {}, {}); },
      "hidden.rows", "4611686018427387904", "[0, 2147483647]");
}

}  // namespace
}  // namespace sluice::test
