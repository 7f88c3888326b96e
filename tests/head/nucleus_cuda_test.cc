// What the certified head on a GPU knows of the mass of a row when it has computed its first
// tokens, and what it makes of that: heads whose logits and masses are known by arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "head/certified/cuda/certified_kernels.h"
#include "semantics/temperature.h"
#include "tests/head/device_head.h"
#include "tests/head/heads.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr int64_t kTops = 300;  // more than a nucleus is certified of

// Of one element: the first token of each of the first tiles, and far below them all others.
Rows TopsAndOthers(int64_t vocab, float step, float other) {
  Rows rows(static_cast<size_t>(vocab), std::vector<float>{other});
  for (int64_t t = 0; t < kTops; ++t) {
    rows[static_cast<size_t>(t * kTileRows)][0] = 1.0f - step * static_cast<float>(t);
  }
  return rows;
}

class NucleusCuda : public DeviceTest {
 protected:
  // What is known of the rows after the computation.
  std::vector<cuda::RowProgress> ProgressOf(const DeviceHead& device,
                                            const std::vector<SelectParams>& params) {
    const OnDevice<SelectParams> on_device(params);
    const OnDevice<NoiseKey> keys(std::vector<NoiseKey>(1));
    cuda::QuestionArgument question = {};
    question.method = DrawMethod::kCdf;
    question.params = on_device.data();
    question.keys = keys.data();
    question.has_params_per_row = params.size() > 1;
    call_ = cuda::ArgumentOf(device.call(), question);
    cuda::LaunchCertifiedPrefix(call_, nullptr);
    Require(cudaDeviceSynchronize());
    return Read(call_.memory.progress, call_.memory.rows);
  }

  // After ProgressOf: the ends of a row's tokens, those that were computed at both of them.
  struct Ends {
    std::vector<float> scores;
    std::vector<float> widths;
  };
  Ends EndsOf(int64_t row) const {
    const int64_t width = int64_t{call_.planes.tiles} * kTileRows;
    return {Read(call_.memory.scores + row * width, width),
            Read(call_.memory.widths + row * width, width)};
  }

  template <typename T>
  static std::vector<T> Read(const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    Require(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  cuda::CertifiedArgs call_ = {};
};

double WeightAt(const cuda::RowProgress& progress, float x) {
  return std::exp2(static_cast<double>(x) * static_cast<double>(progress.filter_scale) +
                   static_cast<double>(progress.mass_offset));
}

// A thread of a block that is alone with such a row adds up 2000 weights at each end, and equal
// ones are rounded to the same side, which sums in fp32 show.
TEST_F(NucleusCuda, SumsOfALargeHeadAreThoseOfItsEnds) {
  constexpr int64_t kVocab = 1000003;
  const Batch weight(TopsAndOthers(kVocab, 0.0f, 0.5f), DType::kF32);
  constexpr size_t kRows = 66;  // a block each
  const Batch hidden(Rows(kRows, std::vector<float>{8.0f}), DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  device.Ask(hidden, {});
  std::vector<SelectParams> params;
  for (size_t r = 0; r < kRows; ++r) {
    params.push_back({.temperature = 0.75f + 0.01f * static_cast<float>(r), .top_p = 0.9f});
  }
  const std::vector<cuda::RowProgress> of_rows = ProgressOf(device, params);
  for (const size_t r : {size_t{0}, size_t{1}, size_t{17}, size_t{40}, kRows - 1}) {
    const cuda::RowProgress& progress = of_rows[r];
    ASSERT_EQ(progress.first, kTops);
    const Ends ends = EndsOf(static_cast<int64_t>(r));
    double least = 0.0, most = 0.0;
    for (size_t v = 0; v < static_cast<size_t>(kVocab); ++v) {
      least += WeightAt(progress, ends.scores[v] - ends.widths[v]);
      most += WeightAt(progress, ends.scores[v] + ends.widths[v]);
    }
    // Exponents lie within 16: their rounding is 2^-21, of which ln 2 is 3.3e-7; the instruction's
    // own error is 2^-22; equal weights add up exactly.
    EXPECT_NEAR(progress.least_mass / least, 1.0, 1e-6) << r;
    EXPECT_NEAR(progress.most_mass / most, 1.0, 1e-6) << r;
  }
}

TEST_F(NucleusCuda, SumsBoundTheMassOfTheRow) {
  constexpr int64_t kVocab = 40000;
  for (const DType dtype : kAllDTypes) {
    const Batch weight(TopsAndOthers(kVocab, 0.001f, 0.125f), dtype);
    DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
    for (const size_t rows : {size_t{1}, size_t{20}, size_t{70}}) {
      device.Ask(Batch(Rows(rows, std::vector<float>{8.0f}), DType::kF32), {});
      const std::vector<cuda::RowProgress> of_rows = ProgressOf(device, {{.top_p = 0.9f}});
      for (const size_t r : {size_t{0}, rows - 1}) {
        const cuda::RowProgress& progress = of_rows[r];
        double mass = 0.0;
        for (int64_t v = 0; v < kVocab; ++v) mass += WeightAt(progress, 8.0f * weight.Get(v, 0));
        // Weights are known to 1e-5.
        EXPECT_LE(progress.least_mass, mass * (1.0 + 1e-5)) << Name(dtype) << " " << rows;
        EXPECT_GE(progress.most_mass, mass * (1.0 - 1e-5)) << Name(dtype) << " " << rows;
        EXPECT_LT(progress.most_mass, 1.5 * progress.least_mass) << Name(dtype) << " " << rows;
        EXPECT_GT(progress.most_mass, 1.01 * progress.least_mass) << Name(dtype) << " " << rows;
      }
    }
  }
}

// Of strict planes the likeliest tokens are asked, and what they reach by both planes may lie above
// the least of the tokens that are computed first. The list is whole down to the former: likely
// tokens with wide intervals among less likely ones with narrow ones, of which some stay away from
// either end.
TEST_F(NucleusCuda, WhatReachesTheLeastOfTheFirstTokensIsComputed) {
  constexpr size_t kVocab = 4096, kWidth = 64, kWide = 24, kOthers = 150;
  Random random(61);
  int64_t below = 0;     // computed without need
  int64_t left_out = 0;  // though as likely as one that was computed
  for (int n = 0; n < 12; ++n) {
    Rows rows(kVocab);
    for (auto& row : rows) {
      for (size_t j = 0; j < kWidth; ++j)
        row.push_back(0.02f * static_cast<float>(random.Normal()));
    }
    std::vector<float> state = {0.0f};  // what makes an interval wide is no part of the logit
    while (state.size() < kWidth) state.push_back(static_cast<float>(random.Normal()));
    const auto put = [&](size_t v, double share, double wide) {
      for (size_t j = 0; j < kWidth; ++j) rows[v][j] += static_cast<float>(share) * state[j];
      rows[v][0] = static_cast<float>(wide);
    };
    const auto uniform = [&] { return static_cast<double>(random.Below(1 << 20)) * 0x1p-20; };
    std::vector<size_t> tiles(kVocab / kTileRows);
    for (size_t t = 0; t < tiles.size(); ++t) {
      tiles[t] = t;
      std::swap(tiles[t], tiles[static_cast<size_t>(random.Below(static_cast<int64_t>(t) + 1))]);
    }
    for (size_t i = 0; i < kWide; ++i) {
      put(tiles[i] * kTileRows, 0.3 + 0.002 * random.Normal(), 3.0);
    }
    for (size_t i = 0; i < kOthers; ++i) {
      put(tiles[kWide + i % 60] * kTileRows + i / 60, 0.15 + 0.11 * uniform(), 1.5 * uniform());
    }
    const Batch weight(rows, DType::kF32);
    const Batch hidden({state}, DType::kF32);
    DeviceHead device(weight, {},
                      HeadPlanes::Build(Matrix(weight), {.kind = CertificateKind::kStrict}));
    device.Ask(hidden, {});
    const cuda::RowProgress progress = ProgressOf(device, {{.top_p = 0.9f}})[0];
    ASSERT_EQ(progress.way, cuda::RowProgress::Way::kPlanes);
    ASSERT_LE(progress.listed, 256) << "all that were listed are computed";
    ASSERT_GE(progress.first, progress.k);
    const float least = semantics::ValueOfKey(progress.least_first);
    const Ends ends = EndsOf(0);
    const std::vector<float> logits = DenseLogits({Matrix(weight)}, {Matrix(hidden), {}})[0];
    float last = INFINITY;  // of the computed ones
    for (size_t v = 0; v < kVocab; ++v) {
      const bool is_computed = ends.widths[v] == 0.0f;
      EXPECT_TRUE(is_computed || logits[v] < least) << n << " token " << v << " of " << logits[v];
      below += is_computed && logits[v] < least ? 1 : 0;
      if (is_computed) last = std::min(last, logits[v]);
    }
    for (size_t v = 0; v < kVocab; ++v) left_out += ends.widths[v] > 0.0f && logits[v] >= last;
  }
  // A list that claims the rest of what it has claims those.
  EXPECT_GT(below, 0);
  EXPECT_GT(left_out, 0);
}

// The others' mass is known to some 3e-4 of the row's, a token has 1e-2 of it.
TEST_F(NucleusCuda, AnEndBetweenTheBoundsIsLeftToTheDenseHead) {
  constexpr int64_t kVocab = 40000;
  constexpr float kHidden = 16.0f;
  for (const DType dtype : kAllDTypes) {
    const Batch weight(TopsAndOthers(kVocab, 0.001f, 0.125f), dtype);
    DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
    const double scale = static_cast<double>(semantics::ScalesOf(SelectParams{}).filter);
    auto weight_of = [&](int64_t v) {
      return std::exp2(static_cast<double>(kHidden * (weight.Get(v, 0) - 1.0f)) * scale);
    };
    double mass = 0.0;
    for (int64_t v = 0; v < kVocab; ++v) mass += weight_of(v);
    double of_first = 0.0;
    for (int64_t t = 0; t < 40; ++t) {
      of_first += weight_of(t * kTileRows);
      if (t % 10 != 9) continue;
      const double of_next = weight_of((t + 1) * kTileRows);
      for (const bool is_between : {true, false}) {
        const double wanted = is_between ? of_first : of_first + 0.5 * of_next;
        const SelectParams params = {.top_p = static_cast<float>(wanted / mass)};
        for (const size_t count : {size_t{1}, size_t{2}}) {
          device.Ask(Batch(Rows(count, std::vector<float>{kHidden}), DType::kF32), {});
          device.Sample(std::vector<SelectParams>(count, params),
                        std::vector<NoiseKey>(count, {3, 4}), DrawMethod::kCdf);
          for (const cuda::HeadRow& row : device.rows()) {
            EXPECT_EQ(row.path, is_between ? CertifiedPath::kDense : CertifiedPath::kPlanes)
                << Name(dtype) << " " << t;
            EXPECT_EQ(row.reason, is_between ? DenseReason::kMass : DenseReason::kNone)
                << Name(dtype) << " " << t;
          }
        }
      }
    }
  }
}

// Ten tokens are kept, and the next one may be: where that one has the best score the dense head
// decides, and where another one has, nothing else needs to be known.
TEST_F(NucleusCuda, ADrawThatTheBoundsDoNotTouchNeedsNoDenseHead) {
  constexpr int64_t kVocab = 40000;
  constexpr int32_t kTokens = 10;
  constexpr size_t kRows = 64;
  constexpr float kHidden = 16.0f;
  const Batch weight(TopsAndOthers(kVocab, 0.001f, 0.125f), DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  std::vector<float> logits;
  double mass = 0.0, of_first = 0.0;
  const double scale = static_cast<double>(semantics::ScalesOf(SelectParams{}).filter);
  for (int64_t v = 0; v < kVocab; ++v) {
    logits.push_back(kHidden * weight.Get(v, 0));
    const double of_token = std::exp2(static_cast<double>(logits.back() - kHidden) * scale);
    mass += of_token;
    if (v % kTileRows == 0 && v < kTokens * kTileRows) of_first += of_token;
  }
  const std::vector<SelectParams> params(kRows, {.top_p = static_cast<float>(of_first / mass)});
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < kRows; ++r) keys.push_back({7, r});
  device.Ask(Batch(Rows(kRows, std::vector<float>{kHidden}), DType::kF32), {});
  const std::vector<int32_t> ids = device.Sample(params, keys, DrawMethod::kGumbel);
  const Batch rows(Rows(kRows, logits), DType::kF32);
  const std::vector<TokenResult> expected = Sampled({rows.view(), params, keys});
  const std::vector<SelectParams> one_more(kRows, {.top_k = kTokens + 1});
  const std::vector<TokenResult> best = Sampled({rows.view(), one_more, keys});
  const std::vector<cuda::HeadRow> head_rows = device.rows();
  size_t dense = 0;
  for (size_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(ids[r], expected[r].id) << r;
    const bool is_touched = best[r].id == kTokens * kTileRows;
    EXPECT_EQ(head_rows[r].path, is_touched ? CertifiedPath::kDense : CertifiedPath::kPlanes) << r;
    dense += is_touched ? 1 : 0;
  }
  EXPECT_GT(dense, 0u);
  EXPECT_LT(dense, kRows / 2);
}

// All tokens of a small head are computed where it has fewer tiles than tokens are wanted, so its
// mass is known.
TEST_F(NucleusCuda, NucleiOfASmallHeadNeedNoDenseHead) {
  Random random(21);
  for (const int64_t vocab : {1, 20, 100, 200}) {
    const Rows rows = MakeHead(HeadKind::kNormal, vocab, 64, random);
    const Batch weight(rows, DType::kBf16);
    DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
    const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random)}, DType::kF32);
    device.Ask(hidden, {});
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      device.Sample({{.top_p = 0.9f}}, {{3, 4}}, method);
      EXPECT_EQ(device.rows()[0].path, CertifiedPath::kPlanes) << vocab;
    }
  }
}

}  // namespace
}  // namespace sluice::test
