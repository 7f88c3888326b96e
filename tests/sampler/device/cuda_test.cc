// The CUDA backend gives the bits of the reference: Cuts, masses, masks and tokens of rows that
// models give, of rows that break samplers, and of parameters at the ends of their ranges.
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/row_launch.h"
#include "sluice/cuda/rows.hpp"
#include "tests/sampler/device/cuda_reference.h"
#include "tests/support/any_cut.h"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

class Cuda : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(Cuda, EqualsTheReferenceOnRandomRowsAndParameters) {
  Random random(31);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = 1 + static_cast<int64_t>(2999 * u * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    RequestRows rows;
    const int64_t count = 1 + random.Below(i % 8 == 0 ? 200 : 24);
    for (int64_t r = 0; r < count; ++r) {
      const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
      rows.Add(MakeRow(kind, vocab, random), RandomSwitchedParams(vocab, random), random);
    }
    ExpectReference(rows, GetParam(), kStarts[i % 2]);
  }
}

TEST_P(Cuda, EqualsTheReferenceOnHostileRowsAtExtremeParametersInEveryProfile) {
  Random random(7);
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    RequestRows rows;
    for (SelectParams params : ExtremeSelectParams()) {
      for (const NamedProfile& named : kProfiles) {
        params.profile = named.profile;
        rows.Add(hostile.values, params, random);
      }
    }
    for (const RowStartAt start : kStarts) ExpectReference(rows, GetParam(), start);
  }
}

constexpr cuda::TeamShape kTeams[] = {{1, 512}, {1, 1024}, {2, 512}, {8, 512}};

// Bins of value decide most of them; a Cut is sorted for where the list has a token a thread.
TEST_P(Cuda, EqualsTheReferenceOnLongListsInEveryTeam) {
  Random random(14);
  RequestRows rows;
  for (const int32_t top_k : {300, 497, 600, 1024, 1030, 1536, 2048}) {
    for (const NamedProfile& named : kProfiles) {
      for (SelectParams params :
           {SelectParams{.top_k = top_k}, SelectParams{.top_k = top_k, .top_p = 0.95f},
            SelectParams{.top_k = top_k, .top_p = 0.6f, .min_p = 1e-4f},
            SelectParams{.top_k = top_k, .xtc_probability = 1.0f, .xtc_threshold = 1e-3f}}) {
        params.profile = named.profile;
        const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
        rows.Add(MakeRow(kind, 20000, random), params, random);
      }
    }
  }
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    ExpectReference(rows, GetParam(), RowStartAt::kAligned);
  }
}

TEST_P(Cuda, EqualsTheReferenceOnLongListsThatCrowdInFewBins) {
  constexpr int64_t kVocab = 20000;
  const Profile min_p_last{.min_p_stage = MinPStage::kLast};
  Random random(15);
  RequestRows rows;
  // What becomes of a token from [0, 1), by its place: one far above all others, more and fewer
  // distinct values than a bin has room for tokens, neighbours in fp32, a boundary among ties,
  // fewer tokens than top-k wants.
  const std::vector<std::function<float(double, int64_t)>> values = {
      [](double u, int64_t i) { return i == 777 ? 1e9f : static_cast<float>(u); },
      [](double u, int64_t) { return std::floor(static_cast<float>(u) * 512.0f); },
      [](double u, int64_t) { return std::floor(static_cast<float>(u) * 40.0f); },
      [](double u, int64_t) { return 1.0f + static_cast<float>(u) * 0x1p-16f; },
      [](double u, int64_t i) { return i % 40 == 3   ? 2.0f
                                       : i % 10 == 3 ? 1.0f
                                                     : float(u) - 1.0f; },
      [](double u, int64_t i) { return i % 26 == 5 ? static_cast<float>(u) : -INFINITY; },
  };
  for (const auto& value : values) {
    for (const SelectParams& params :
         {SelectParams{.top_k = 400}, SelectParams{.top_k = 400, .top_p = 0.5f},
          SelectParams{.temperature = 0.1f, .top_k = 900, .top_p = 0.99f, .min_p = 0.3f},
          SelectParams{.top_k = 900, .min_p = 0.3f, .profile = min_p_last},
          SelectParams{.top_k = 900, .top_p = 0.9f, .min_p = 1.0f, .profile = min_p_last},
          SelectParams{.top_k = 700, .top_p = 1e-6f}}) {
      std::vector<float> row(kVocab);
      for (int64_t i = 0; i < kVocab; ++i) {
        row[static_cast<size_t>(i)] = value(random.Uniform(), i);
      }
      rows.Add(std::move(row), params, random);
    }
  }
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    ExpectReference(rows, GetParam(), RowStartAt::kAligned);
  }
}

TEST_P(Cuda, EqualsTheReferenceAtFullSize) {
  Random random(5);
  for (const int64_t vocab : {int64_t{128256}, int64_t{151936}, int64_t{262208}}) {
    SCOPED_TRACE(vocab);
    RequestRows rows;
    for (const RowKind kind : kAllRowKinds) {
      for (const SelectParams& params :
           {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f},
            SelectParams{.top_k = 2000}, SelectParams{}, RandomSwitchedParams(vocab, random)}) {
        rows.Add(MakeRow(kind, vocab, random), params, random);
      }
    }
    for (const RowStartAt start : kStarts) ExpectReference(rows, GetParam(), start);
  }
}

TEST_P(Cuda, EqualsTheReferenceOnHostileRowsAtFullSize) {
  Random random(6);
  for (const HostileRow& hostile : HostileRows(128256)) {
    SCOPED_TRACE(hostile.name);
    RequestRows rows;
    for (const SelectParams& params :
         {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f}, SelectParams{},
          SelectParams{.top_k = 50, .profile = ProfileByName("hf")}}) {
      rows.Add(hostile.values, params, random);
    }
    for (const RowStartAt start : kStarts) ExpectReference(rows, GetParam(), start);
  }
}

TEST_P(Cuda, DrawsAndMasksFromAnyCut) {
  Random random(8);
  const std::vector<float> temperatures = {1.0f, 0.7f, 0.0f};
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const int64_t vocab = kBlockWidths[random.Below(std::size(kBlockWidths))];
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    RequestRows rows;
    std::vector<Cut> any;
    for (int r = 0; r < 9; ++r) {
      rows.Add(AnyRow(vocab, random), {.temperature = random.Pick(temperatures)}, random);
      any.push_back(AnyCut(rows.values.back(), random));
    }
    const Batch batch(rows.values, GetParam());
    const DeviceBatch device(batch);
    const OnDevice<SelectParams> params(rows.params);
    const OnDevice<NoiseKey> keys(rows.keys);
    const OnDevice<Cut> cuts(any);
    for (const DrawMethod method : kMethods) {
      const Workspace workspace(SelectWorkspaceBytes(batch.view(), {Backend::kRef}));
      std::vector<TokenResult> expected(any.size());
      Draw({batch.view(), rows.params, rows.keys}, method, any, expected,
           {Backend::kRef, {}, workspace.span()});
      const OnDevice<TokenResult> results(any.size());
      cuda::Draw(device.view(), {params, keys}, method, cuts, results, nullptr);
      EXPECT_TRUE(SameSequence(results.Get(), expected));
    }
    Batch masked(rows.values, GetParam());
    Mask(masked.mutable_view(), any, {Backend::kRef});
    cuda::Mask(device.mutable_view(), cuts, nullptr);
    EXPECT_TRUE(SameSequence(device.row_bytes(), masked.row_bytes()));
  }
}

// However many blocks share a row, and whatever rows are beside it.
TEST_P(Cuda, GivesARowTheSameTokenInAnyBatch) {
  Random random(9);
  const int64_t vocab = 32000;
  RequestRows rows;
  for (int r = 0; r < 160; ++r) {
    rows.Add(MakeRow(kAllRowKinds[r % 8], vocab, random), RandomSwitchedParams(vocab, random),
             random);
  }
  const DeviceBatch device(Batch(rows.values, GetParam()));
  const OnDevice<SelectParams> params(rows.params);
  const OnDevice<NoiseKey> keys(rows.keys);
  const OnDevice<TokenResult> all(rows.values.size());
  cuda::Sample(device.view(), {params, keys}, DrawMethod::kGumbel, all, nullptr);
  const std::vector<TokenResult> expected = all.Get();
  for (const size_t size : {size_t{1}, size_t{8}, size_t{20}, size_t{40}, size_t{80}}) {
    const OnDevice<TokenResult> some(size);
    LogitsView part = device.view();
    part.data = part.Row(3);
    part.rows = static_cast<int64_t>(size);
    cuda::Sample(part, {{params.data() + 3, part.rows}, {keys.data() + 3, part.rows}},
                 DrawMethod::kGumbel, some, nullptr);
    EXPECT_TRUE(SameSequence(
        some.Get(),
        std::vector(expected.begin() + 3, expected.begin() + 3 + static_cast<ptrdiff_t>(size))));
  }
}

// Typical before a top-k: rows with gaps of any width between their surprises, and shares that drop
// the top.
TEST_P(Cuda, EqualsTheReferenceAtTypicalBeforeTopK) {
  const std::vector<float> steps = {0.0f, 0.25f, 7.0f};
  const std::vector<int32_t> ks = {1, 5, 50, 400};
  const std::vector<float> shares = {0.95f, 0.5f, 0.9f, 0.2f, 0.999f, 1e-6f};
  Random random(13);
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    const int64_t vocab = i % 3 == 2 ? 128256 : 200 + random.Below(3000);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    RequestRows rows;
    for (int r = 0; r < 12; ++r) {
      std::vector<float> row =
          MakeRow(kAllRowKinds[random.Below(std::size(kAllRowKinds))], vocab, random);
      const float step = random.Pick(steps);
      for (float& x : row) x = step == 0.0f ? x : step * std::round(x / step);
      SelectParams params = RandomSwitchedParams(vocab, random);
      params.top_n_sigma = 0.0f;
      params.top_k = random.Pick(ks);
      params.typical_p = random.Pick(shares);
      if (random.Coin()) params.min_p = 0.0f;
      rows.Add(std::move(row), params, random);
    }
    ExpectReference(rows, GetParam(), RowStartAt::kAligned);
  }
}

// What is guessed of a row like a model's is certified at the parameters that people use, in teams
// of every shape: else the kernels are right, and many times too slow.
TEST_P(Cuda, CertifiesRowsLikeAModels) {
  const int64_t vocab = 128256;
  Random random(12);
  std::vector<std::vector<float>> values;
  for (int r = 0; r < 8; ++r) {
    values.push_back(MakeRow(r % 2 == 0 ? RowKind::kMid : RowKind::kPeaked, vocab, random));
  }
  for (const size_t rows : {size_t{1}, size_t{20}, size_t{48}, size_t{100}, size_t{300}}) {
    std::vector<std::vector<float>> of_batch;
    std::vector<NoiseKey> of_rows;
    for (size_t r = 0; r < rows; ++r) {
      of_batch.push_back(values[r % values.size()]);
      of_rows.push_back(RandomKey(random));
    }
    const DeviceBatch device(Batch(of_batch, GetParam()), RowStartAt::kAligned);
    const OnDevice<NoiseKey> keys(of_rows);
    for (const SelectParams& params :
         {SelectParams{.temperature = 0.0f}, SelectParams{}, SelectParams{.temperature = 0.7f},
          SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_k = 1000},
          SelectParams{.top_k = 2000}, SelectParams{.top_k = 1000, .min_p = 0.05f},
          SelectParams{.top_p = 0.7f}, SelectParams{.top_p = 0.95f},
          SelectParams{.min_p = 0.05f}}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, top_k " << params.top_k << ", top_p "
                                      << params.top_p << ", temperature " << params.temperature);
      const OnDevice<int32_t> ids(rows);
      const OnDevice<cuda::RowPath> ways(rows);
      cuda::SampleIds(device.view(), {OnDevice<SelectParams>({params}), keys}, DrawMethod::kGumbel,
                      ids, {}, nullptr, ways);
      EXPECT_TRUE(SameSequence(ways.Get(), std::vector(rows, cuda::RowPath::kCertified)));
    }
  }
}

// Neighbours alike are more tokens than a rank among vectors tells: where every other vector has
// two pairs, 3700 at k = 2000, give or take 280, and a list holds 3328.
TEST_F(DeviceTest, ListsAgainWhatALongListHasNoRoomFor) {
  const int64_t vocab = 128256;
  Random random(18);
  RequestRows rows;
  for (int r = 0; r < 8; ++r) {
    std::vector<float> row(static_cast<size_t>(vocab));
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_alike = i / 4 % 2 == 1 && i % 2 == 1;
      row[i] = is_alike ? row[i - 1] : static_cast<float>(random.Normal());
    }
    rows.Add(std::move(row), {.top_k = 2000, .top_p = r % 2 == 0 ? 1.0f : 0.9f}, random);
  }
  const cuda::FixedShape fixed({1, 512});
  const DeviceBatch device(Batch(rows.values, DType::kF32), RowStartAt::kAligned);
  const OnDevice<int32_t> ids(rows.values.size());
  const OnDevice<cuda::RowPath> ways(rows.values.size());
  cuda::SampleIds(device.view(),
                  {OnDevice<SelectParams>(rows.params), OnDevice<NoiseKey>(rows.keys)},
                  DrawMethod::kGumbel, ids, {}, nullptr, ways);
  EXPECT_TRUE(SameSequence(ways.Get(), std::vector(rows.values.size(), cuda::RowPath::kCertified)));
  ExpectReference(rows, DType::kF32, RowStartAt::kAligned);
}

// Where one read samples the whole row, a rank among vectors is one among their tokens.
TEST_F(DeviceTest, CertifiesLongListsOfShortRows) {
  Random random(19);
  const OnDevice<SelectParams> params(std::vector<SelectParams>{{.top_k = 2000}});
  const OnDevice<NoiseKey> keys(std::vector<NoiseKey>{{7, 1}});
  const std::vector<std::pair<DType, int64_t>> widths = {
      {DType::kF32, 12000}, {DType::kBf16, 24000}, {DType::kF32, 3000}};
  for (const auto& [dtype, vocab] : widths) {
    SCOPED_TRACE(testing::Message() << Name(dtype) << ", vocab " << vocab);
    const std::vector<float> row = MakeRow(RowKind::kMid, vocab, random);
    const DeviceBatch device(Batch({row}, dtype), RowStartAt::kAligned);
    for (const cuda::TeamShape shape : kTeams) {
      const cuda::FixedShape fixed(shape);
      const OnDevice<int32_t> ids(1);
      const OnDevice<cuda::RowPath> ways(1);
      cuda::SampleIds(device.view(), {params, keys}, DrawMethod::kGumbel, ids, {}, nullptr, ways);
      EXPECT_EQ(ways.Get()[0], cuda::RowPath::kCertified);
    }
  }
}

// Eight tokens hold the mass, and so many others are equal that no list holds the nucleus. At these
// positions the noise lets a masked token behind a warp's stretch pass for one that may win, and
// what it shares an eight with, which is the eight of the mass, must not count twice.
TEST_F(DeviceTest, CountsATokenOnceAtTheEndOfAWarpsStretch) {
  const int64_t vocab = 98304;
  std::vector<float> row(static_cast<size_t>(vocab), 8.625f);
  std::fill_n(row.begin() + 768, 8, 20.0f);
  const Batch batch({row}, DType::kBf16);
  const DeviceBatch device(batch, RowStartAt::kAligned);
  const std::vector<SelectParams> params = {{.top_p = 0.8f}};
  const OnDevice<SelectParams> params_there(params);
  for (const uint32_t position : {42457u, 64733u, 80563u}) {
    const std::vector<NoiseKey> keys = {{7, position}};
    const OnDevice<int32_t> ids(1);
    cuda::SampleIds(device.view(), {params_there, OnDevice<NoiseKey>(keys)}, DrawMethod::kGumbel,
                    ids, {}, nullptr);
    EXPECT_EQ(ids.Get()[0], Sampled({batch.view(), params, keys})[0].id) << position;
  }
}

// Values so large that their product with a scale rounds by more than all weights span: no mass can
// be certified in the unit of the sample. Of 1600001024 the unit is 2^-88.07, and 2^40 / unit no
// float.
TEST_F(DeviceTest, SelectsAmongHugeValues) {
  for (const float huge : {1600001024.0f, 3.1e9f, 3e38f}) {
    std::vector<float> row(128256, 0.0f);
    for (size_t k = 0; k < 501; ++k) row[256 * k + 64 * (k % 2)] = huge;
    RequestRows rows;
    Random random(3);
    for (const float top_p : {1e-5f, 1e-3f, 0.5f}) rows.Add(row, {.top_p = top_p}, random);
    ExpectReference(rows, DType::kF32, RowStartAt::kAligned);
  }
}

// A nucleus that reaches below every bin of weight: one token in ten thousand comes from there, and
// a token that nothing is known of must not count as dropped.
TEST_F(DeviceTest, DrawsFromANucleusBelowAllBins) {
  const int64_t vocab = int64_t{1} << 22;
  constexpr size_t kPositions = 30000, kAtOnce = 16;
  std::vector<float> row(static_cast<size_t>(vocab), -24.33f);
  row[0] = 0.0f;
  const DeviceBatch device(Batch(std::vector(kAtOnce, row), DType::kF32), RowStartAt::kAligned);
  const OnDevice<SelectParams> params(std::vector<SelectParams>{{.top_p = 0.99999f}});
  std::vector<NoiseKey> all_keys(kPositions);
  for (size_t i = 0; i < kPositions; ++i) all_keys[i] = {7, static_cast<uint32_t>(i)};
  const OnDevice<NoiseKey> keys(all_keys);
  const OnDevice<int32_t> ids(kPositions);
  const OnDevice<TokenResult> results(kPositions);
  for (size_t i = 0; i < kPositions; i += kAtOnce) {
    const cuda::RowParams on_device{params, {keys.data() + i, kAtOnce}};
    cuda::SampleIds(device.view(), on_device, DrawMethod::kGumbel, {ids.data() + i, kAtOnce}, {},
                    nullptr);
    cuda::Sample(device.view(), on_device, DrawMethod::kGumbel, {results.data() + i, kAtOnce},
                 nullptr);
  }
  std::vector<int32_t> expected;
  for (const TokenResult& result : results.Get()) expected.push_back(result.id);
  EXPECT_TRUE(SameSequence(ids.Get(), expected));
}

// A graph is captured once and sees the parameters and logits of each replay.
TEST_P(Cuda, SamplesInACapturedGraph) {
  Random random(10);
  const int64_t vocab = 5000;
  auto make = [&](int32_t top_k) {
    RequestRows rows;
    for (int r = 0; r < 4; ++r) {
      rows.Add(MakeRow(RowKind::kMid, vocab, random), {.top_k = top_k}, random);
    }
    return rows;
  };
  const RequestRows first = make(50);
  const Batch batch(first.values, GetParam());
  const DeviceBatch device(batch);
  OnDevice<SelectParams> params(first.params);
  OnDevice<NoiseKey> keys(first.keys);
  const OnDevice<TokenResult> results(4);
  cudaStream_t stream;
  Require(cudaStreamCreate(&stream));
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::Sample(device.view(), {params, keys}, DrawMethod::kGumbel, results, stream);
  cudaGraph_t graph;
  Require(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  Require(cudaGraphInstantiate(&executable, graph, 0));
  for (const int32_t top_k : {50, 1, 0}) {
    RequestRows rows = make(top_k);
    rows.values = first.values;
    params.Set(rows.params);
    keys.Set(rows.keys);
    Require(cudaGraphLaunch(executable, stream));
    Require(cudaStreamSynchronize(stream));
    EXPECT_TRUE(SameSequence(results.Get(), Sampled({batch.view(), rows.params, rows.keys})));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(DTypes, Cuda, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
