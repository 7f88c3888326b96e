// Every call of the CUDA backend that takes patches gives the bits of the reference on the patched
// rows in fp32, whatever the type of the logits, and never looks at what a patch replaces.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "sluice/cuda/candidates.hpp"
#include "sluice/cuda/logprobs.hpp"
#include "sluice/research/qrita.hpp"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/row_patches.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};
constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

class CudaPatches : public DeviceTest, public ::testing::WithParamInterface<DType> {};

struct PatchedRows {
  RequestRows rows;
  std::vector<HostPatch> patches;

  // The logits that nobody may look at become NaN, in some rows.
  void Add(std::vector<float> row, HostPatch patch, const SelectParams& params, Random& random) {
    if (random.Coin()) {
      for (size_t i = 0; i < row.size(); ++i) {
        if (!patch.Allows(static_cast<int64_t>(i))) row[i] = kNan;
      }
      for (const int32_t id : patch.ids) row[static_cast<size_t>(id)] = kNan;
    }
    rows.Add(std::move(row), params, random);
    patches.push_back(std::move(patch));
  }
};

// The rows as they are read, in fp32.
RequestRows AsRead(const PatchedRows& patched, DType dtype) {
  RequestRows rows = patched.rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (dtype != DType::kF32) {
      for (float& x : rows.values[r]) x = Widened(Narrowed(x, dtype), dtype);
    }
    rows.values[r] = Patched(rows.values[r], patched.patches[r]);
  }
  return rows;
}

struct Lists {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<uint64_t> weights;
};

// One NaN is as good as another.
std::vector<TokenResult> Comparable(std::vector<TokenResult> results) {
  for (TokenResult& result : results) {
    if (std::isnan(result.logprob)) result.logprob = semantics::QuietNan();
  }
  return results;
}

void ExpectReference(const PatchedRows& patched, DType dtype, RowStartAt start) {
  const RequestRows as_read = AsRead(patched, dtype);
  const Batch reference(as_read.values, DType::kF32);
  const SelectInput input{reference.view(), as_read.params, as_read.keys};
  const size_t count = as_read.size();

  const Batch batch(patched.rows.values, dtype);
  const DeviceBatch device(batch, start);
  const OnDevice<SelectParams> params(as_read.params);
  const OnDevice<NoiseKey> keys(as_read.keys);
  const PatchesOnDevice patches(patched.patches);
  const cuda::RowParams on_device{params, keys, {}, patches.array()};

  const Selection expected = Selected(input);
  const OnDevice<Cut> cuts(count);
  const OnDevice<CutMass> masses(count);
  cuda::Select(device.view(), on_device, cuts, masses, nullptr);
  EXPECT_TRUE(SameSequence(cuts.Get(), expected.cuts));
  EXPECT_TRUE(SameSequence(masses.Get(), expected.masses));
  const OnDevice<Cut> alone(count);
  cuda::Select(device.view(), on_device, alone, {}, nullptr);
  EXPECT_TRUE(SameSequence(alone.Get(), expected.cuts));

  std::vector<TokenResult> tokens;
  for (const DrawMethod method : kMethods) {
    tokens = Sampled(input, method);
    const OnDevice<TokenResult> results(count);
    cuda::Sample(device.view(), on_device, method, results, nullptr);
    EXPECT_TRUE(SameSequence(results.Get(), tokens));
    const OnDevice<int32_t> ids(count);
    const OnDevice<RowStatus> statuses(count);
    cuda::SampleIds(device.view(), on_device, method, ids, statuses, nullptr);
    std::vector<int32_t> expected_ids;
    std::vector<RowStatus> expected_statuses;
    for (const TokenResult& token : tokens) {
      expected_ids.push_back(token.id);
      expected_statuses.push_back(token.status);
    }
    EXPECT_TRUE(SameSequence(ids.Get(), expected_ids));
    EXPECT_TRUE(SameSequence(statuses.Get(), expected_statuses));
    const OnDevice<TokenResult> drawn(count);
    cuda::Draw(device.view(), on_device, method, cuts, drawn, nullptr);
    EXPECT_TRUE(SameSequence(drawn.Get(), tokens));
  }

  const Workspace workspace(SelectWorkspaceBytes(input.logits, {Backend::kRef}));
  for (const CandidateOrder order : {CandidateOrder::kById, CandidateOrder::kByRank}) {
    std::vector<int64_t> offsets(count + 1);
    for (size_t r = 0; r < count; ++r) offsets[r + 1] = offsets[r] + expected.cuts[r].count;
    const auto size = static_cast<size_t>(offsets.back());
    Lists lists{std::vector<int32_t>(size), std::vector<float>(size), std::vector<uint64_t>(size)};
    Collect(input, expected.cuts, order, {offsets, lists.ids, lists.logits, lists.weights},
            {Backend::kRef, {}, workspace.span()});
    const OnDevice<int64_t> offsets_there(offsets);
    const OnDevice<int32_t> ids(size);
    const OnDevice<float> logits(size);
    const OnDevice<uint64_t> weights(size);
    cuda::Collect(device.view(), on_device, cuts, order, {offsets_there, ids, logits, weights},
                  nullptr);
    EXPECT_TRUE(SameSequence(ids.Get(), lists.ids));
    EXPECT_TRUE(SameSequence(logits.Get(), lists.logits));
    EXPECT_TRUE(SameSequence(weights.Get(), lists.weights));
  }

  for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kProcessedLogprobs,
                                 LogprobMode::kProcessedLogits}) {
    std::vector<TokenResult> with_logprobs = tokens;
    Logprobs({reference.view(), mode, as_read.params}, with_logprobs, {},
             {Backend::kRef, {}, workspace.span()});
    const OnDevice<TokenResult> results(tokens);
    const OnDevice<uint64_t> kept(count);
    cuda::Logprobs(device.view(), on_device, mode, results, kept, nullptr);
    EXPECT_TRUE(SameSequence(Comparable(results.Get()), Comparable(with_logprobs)));
    std::vector<uint64_t> kept_masses;
    for (const CutMass& mass : expected.masses) kept_masses.push_back(mass.kept);
    EXPECT_TRUE(SameSequence(kept.Get(), kept_masses));
  }
}

constexpr RowStartAt kStarts[] = {RowStartAt::kAligned, RowStartAt::kOneElementOn};

TEST_P(CudaPatches, EqualTheReferenceOnRandomRowsAndParameters) {
  Random random(61);
  const std::vector<float> odd = {-kInf, -kInf, 0.0f, -0.0f, 40.0f, -3e38f};
  for (int i = 0; i < 90 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = i < 4 ? (i == 0 ? 1 : 30 + i) : 1 + static_cast<int64_t>(2999 * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    PatchedRows rows;
    const int64_t count = 1 + random.Below(i % 8 == 0 ? 200 : 24);
    for (int64_t r = 0; r < count; ++r) {
      std::vector<float> row =
          MakeRow(kAllRowKinds[random.Below(std::size(kAllRowKinds))], vocab, random);
      const PatchKind& kind = kPatchKinds[random.Below(std::size(kPatchKinds))];
      HostPatch patch = MakePatch(kind, row, odd, random);
      rows.Add(std::move(row), std::move(patch), RandomSwitchedParams(vocab, random), random);
    }
    ExpectReference(rows, GetParam(), kStarts[i % 2]);
  }
}

// Statuses are those of the patched values.
TEST_P(CudaPatches, EqualTheReferenceOnValuesThatBreakSamplers) {
  Random random(62);
  const std::vector<float> odd = {kNan, kInf, -kInf, 3e38f, 1e-45f, -0.0f};
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const int64_t vocab = i % 4 == 3 ? 40000 : 1 + random.Below(700);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    PatchedRows rows;
    for (int r = 0; r < 12; ++r) {
      std::vector<float> row = MakeRow(RowKind::kMid, vocab, random);
      if (random.Coin(0.3)) random.Pick(row) = random.Pick(odd);
      const PatchKind& kind = kPatchKinds[random.Below(std::size(kPatchKinds))];
      HostPatch patch = MakePatch(kind, row, random.Coin() ? odd : std::vector<float>(), random);
      rows.Add(std::move(row), std::move(patch), RandomSwitchedParams(vocab, random), random);
    }
    ExpectReference(rows, GetParam(), kStarts[i % 2]);
  }
}

TEST_P(CudaPatches, EqualTheReferenceAtFullSize) {
  Random random(63);
  const SelectParams all_params[] = {
      {.top_k = 50, .top_p = 0.9f}, {.top_p = 0.7f}, {},
      {.temperature = 0.0f},        {.top_k = 2000}, {.min_p = 0.05f, .typical_p = 0.9f}};
  for (const int64_t vocab : {int64_t{32000}, int64_t{128256}, int64_t{262208}}) {
    SCOPED_TRACE(vocab);
    PatchedRows rows;
    for (size_t i = 0; i < std::size(kPatchKinds); ++i) {
      std::vector<float> row = MakeRow(kAllRowKinds[i % 4], vocab, random);
      HostPatch patch = MakePatch(kPatchKinds[i], row, {-kInf}, random);
      rows.Add(std::move(row), std::move(patch), all_params[i % std::size(all_params)], random);
    }
    ExpectReference(rows, GetParam(), kStarts[vocab % 3 == 0 ? 1 : 0]);
  }
}

// A row has the same token whoever shares it and whatever is beside it; the largest vocabularies
// need no other way.
TEST_P(CudaPatches, GiveARowTheSameTokenInAnyBatch) {
  Random random(64);
  for (const int64_t vocab : {int64_t{32000}, int64_t{1} << 22}) {
    PatchedRows rows;
    const size_t all_rows = vocab > 100000 ? 2 : 160;
    for (size_t r = 0; r < all_rows; ++r) {
      std::vector<float> row = MakeRow(kAllRowKinds[r % 8], vocab, random);
      HostPatch patch =
          MakePatch(kPatchKinds[(r + 4) % std::size(kPatchKinds)], row, {-kInf}, random);
      rows.Add(std::move(row), std::move(patch), {.top_k = 50, .top_p = 0.9f}, random);
    }
    const RequestRows as_read = AsRead(rows, GetParam());
    const Batch reference(as_read.values, DType::kF32);
    const std::vector<TokenResult> expected =
        Sampled({reference.view(), as_read.params, as_read.keys});
    const DeviceBatch device(Batch(rows.rows.values, GetParam()), RowStartAt::kOneElementOn);
    const OnDevice<SelectParams> params(rows.rows.params);
    const OnDevice<NoiseKey> keys(rows.rows.keys);
    const PatchesOnDevice patches(rows.patches);
    for (const size_t size : {size_t{1}, size_t{2}, size_t{20}, size_t{40}, size_t{80}, all_rows}) {
      if (size > all_rows) continue;
      const OnDevice<TokenResult> some(size);
      LogitsView part = device.view();
      part.rows = static_cast<int64_t>(size);
      cuda::Sample(part,
                   {{params.data(), part.rows},
                    {keys.data(), part.rows},
                    {},
                    {patches.array().data, part.rows}},
                   DrawMethod::kGumbel, some, nullptr);
      EXPECT_TRUE(SameSequence(
          some.Get(),
          std::vector(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(size))));
    }
  }
}

// What is guessed of a patched row is certified as well, even where the patches take its top away:
// the sample that the guess is made from is patched.
TEST_P(CudaPatches, CertifyRowsLikeAModels) {
  Random random(65);
  const int64_t vocab = 128256;
  for (const size_t count : {size_t{1}, size_t{48}, size_t{300}}) {
    RequestRows rows;
    std::vector<HostPatch> all;
    const PatchKind kinds[] = {{},
                               {.count = 1000},
                               {.count = 300, .takes_the_top = true},
                               {.allowed = 0.5},
                               {.allowed = 0.02},
                               {.count = 1000, .allowed = 0.5},
                               {.count = 1, .others_masked = true}};
    std::vector<std::vector<float>> values;
    std::vector<HostPatch> patches;
    for (size_t i = 0; i < std::size(kinds); ++i) {
      values.push_back(MakeRow(RowKind::kMid, vocab, random));
      patches.push_back(MakePatch(kinds[i], values.back(), {}, random));
    }
    for (size_t r = 0; r < count; ++r) {
      rows.Add(values[r % values.size()], {}, random);
      all.push_back(patches[r % values.size()]);
    }
    const DeviceBatch device(Batch(rows.values, GetParam()), RowStartAt::kAligned);
    const OnDevice<NoiseKey> keys(rows.keys);
    const PatchesOnDevice on_device(all);
    for (const SelectParams& params :
         {SelectParams{.temperature = 0.0f}, SelectParams{.top_k = 50, .top_p = 0.9f},
          SelectParams{.top_p = 0.7f}}) {
      SCOPED_TRACE(testing::Message() << count << " rows, top_k " << params.top_k);
      const OnDevice<int32_t> ids(count);
      const OnDevice<cuda::RowPath> ways(count);
      cuda::SampleIds(
          device.view(),
          {OnDevice<SelectParams>(std::vector<SelectParams>{params}), keys, {}, on_device.array()},
          DrawMethod::kGumbel, ids, {}, nullptr, ways);
      EXPECT_TRUE(SameSequence(ways.Get(), std::vector(count, cuda::RowPath::kCertified)));
    }
  }
}

// Ids that are none, and a mask's bits behind the vocabulary, change nothing.
TEST_P(CudaPatches, ReadNothingOutsideOfTheVocabulary) {
  Random random(66);
  const std::vector<float> row = MakeRow(RowKind::kMid, 1000, random);
  HostPatch patch;
  patch.ids = {-7, 3, 1000, 1001, 5000, INT32_MAX - 1};
  patch.values = {50.0f, 9.0f, 60.0f, kNan, kInf, kNan};
  patch.allowed.assign(32, -1);
  HostPatch meant = patch;
  meant.ids = {3};
  meant.values = {9.0f};
  RequestRows rows;
  rows.Add(row, {.top_k = 3}, random);
  const DeviceBatch device(Batch(rows.values, GetParam()));
  const OnDevice<SelectParams> params(rows.params);
  const OnDevice<NoiseKey> keys(rows.keys);
  std::vector<std::vector<TokenResult>> results;
  for (const HostPatch& one : {patch, meant}) {
    const PatchesOnDevice patches(std::vector<HostPatch>{one});
    const OnDevice<TokenResult> result(1);
    cuda::Sample(device.view(), {params, keys, {}, patches.array()}, DrawMethod::kGumbel, result,
                 nullptr);
    results.push_back(result.Get());
  }
  EXPECT_TRUE(SameSequence(results[0], results[1]));
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaPatches, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

using CudaPatchesBadInput = DeviceTest;

TEST_F(CudaPatchesBadInput, NamesWhatIsWrong) {
  const LogitsView logits = {
      reinterpret_cast<const float*>(256), 2, 8, 8, DType::kF32, {DeviceKind::kCuda, 0}};
  auto params = [](int64_t patches, bool is_null = false) {
    return cuda::RowParams{
        {reinterpret_cast<const SelectParams*>(256), 1},
        {reinterpret_cast<const NoiseKey*>(256), 1},
        {},
        {is_null ? nullptr : reinterpret_cast<const cuda::RowPatch*>(256), patches}};
  };
  const cuda::DeviceArray<Cut> cuts = {reinterpret_cast<Cut*>(256), 2};
  ExpectError([&] { cuda::Select(logits, params(1), cuts, {}, nullptr); }, "patches.size()", "1",
              "2");
  ExpectError([&] { cuda::Select(logits, params(2, true), cuts, {}, nullptr); }, "patches.data",
              "null", "a pointer to device memory");
  const MutableLogitsView writable = {reinterpret_cast<float*>(256), 2, 8, 8, DType::kF32,
                                      {DeviceKind::kCuda, 0}};
  ExpectError([&] { cuda::SelectAndMask(writable, params(2), cuts, nullptr); }, "patches.size()",
              "2", "0");
  ExpectError(
      [&] {
        research::SelectByQrita(logits, params(2),
                                {.variant = research::QritaVariant::kNoTruncation}, cuts, nullptr);
      },
      "patches.size()", "2", "0");
}

}  // namespace
}  // namespace sluice::test
