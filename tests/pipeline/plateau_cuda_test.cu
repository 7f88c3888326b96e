// Rows whose boundary lies among thousands of equal tokens, and rows in the order of their ids,
// which no first list holds: the CUDA backend gives the bits of the reference, and does not go by
// the definition, which takes ten times as long.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backend/row_launch.h"
#include "tests/pipeline/cuda_reference.h"
#include "tests/support/row_patches.h"

namespace sluice::test {
namespace {

constexpr cuda::TeamShape kTeams[] = {{1, 512}, {1, 1024}, {2, 512}, {8, 512}};

struct Plateau {
  const char* name;
  // The value of a token by its place in [0, 1), its id and what chance gives it from [0, 1).
  std::function<float(double place, int64_t id, double chance)> value;
};

std::function<float(double, int64_t, double)> Distinct(int values) {
  return [values](double, int64_t, double u) {
    return std::floor(static_cast<float>(u) * static_cast<float>(values)) * 0.5f;
  };
}

const Plateau kAllEqual = {"all equal", [](double, int64_t, double) { return 3.5f; }};
const Plateau kZeros = {"zeros of both signs",
                        [](double, int64_t id, double) { return id % 3 == 0 ? -0.0f : 0.0f; }};
const Plateau kEight = {"eight values", Distinct(8)};
const Plateau kRampUp = {"ramp up",
                         [](double place, int64_t, double) { return float(12.0 * place); }};
const Plateau kRampDown = {"ramp down",
                           [](double place, int64_t, double) { return float(-12.0 * place); }};
// What a mask of a large negative number leaves.
const Plateau kFewAboveMask = {"few above a mask", [](double, int64_t id, double u) {
                                 return id % 1000 == 7 ? float(4.0 * u) : -1e9f;
                               }};

std::vector<Plateau> Plateaus() {
  return {
      kAllEqual,
      kZeros,
      {"two values", Distinct(2)},
      {"three values", Distinct(3)},
      kEight,
      {"a hundred values", Distinct(100)},
      kRampUp,
      kRampDown,
      kFewAboveMask,
      {"ties at the end", [](double p, int64_t, double u) { return p < 0.8 ? float(u) : 2.0f; }},
      {"ties at the start", [](double p, int64_t, double u) { return p > 0.2 ? float(u) : 2.0f; }},
      {"some above ties",
       [](double, int64_t id, double u) { return id % 4001 == 11 ? 1.0f + float(u) : 0.25f; }},
      {"zeros of both signs below a few",
       [](double, int64_t id, double u) {
         return id % 1501 == 3 ? float(u) : id % 2 == 0 ? 0.0f : -0.0f;
       }},
      {"all equal but a NaN", [](double, int64_t id, double) { return id == 31313 ? NAN : 1.0f; }},
      {"all equal but one +inf",
       [](double, int64_t id, double) { return id == 31313 ? INFINITY : 1.0f; }},
      {"all equal but one", [](double, int64_t id, double) { return id == 31313 ? 1.5f : 1.0f; }},
      {"every third of two values, the others masked",
       [](double, int64_t id, double u) {
         return id % 3 != 0 ? -INFINITY : u < 0.5 ? 1.0f : 2.0f;
       }},
      {"a staircase", [](double p, int64_t, double) { return std::floor(float(8.0 * p)); }},
  };
}

std::vector<float> RowOf(const Plateau& plateau, int64_t vocab, Random& random) {
  std::vector<float> row(static_cast<size_t>(vocab));
  for (int64_t id = 0; id < vocab; ++id) {
    const double place = static_cast<double>(id) / static_cast<double>(vocab);
    row[static_cast<size_t>(id)] = plateau.value(place, id, random.Uniform());
  }
  return row;
}

class CudaPlateau : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(CudaPlateau, EqualsTheReferenceAtEveryTopK) {
  Random random(41);
  RequestRows rows;
  for (const Plateau& plateau : Plateaus()) {
    const std::vector<float> row = RowOf(plateau, 40000, random);
    for (const int32_t top_k : {1, 50, 97, 1024, 2048}) {
      SelectParams params{.top_k = top_k, .top_p = random.Coin() ? 0.9f : 1.0f};
      if (random.Coin()) params.profile = kProfiles[random.Below(std::size(kProfiles))].profile;
      rows.Add(row, params, random);
    }
    rows.Add(row, {.temperature = 0.0f}, random);
    rows.Add(row, {.top_k = 50, .min_p = 0.3f}, random);
    rows.Add(row, {.top_k = 50, .xtc_probability = 1.0f, .xtc_threshold = 1e-3f}, random);
  }
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    ExpectReference(rows, GetParam(), kStarts[shape.blocks % 2]);
  }
}

TEST_P(CudaPlateau, EqualsTheReferenceAtEveryTopP) {
  const Profile all_ties{.ties = Ties::kAll};
  const Profile inclusive{.top_p_boundary = TopPBoundary::kInclusive};
  Random random(42);
  RequestRows rows;
  for (const Plateau& plateau : Plateaus()) {
    const std::vector<float> row = RowOf(plateau, 40000, random);
    for (const float top_p : {1e-6f, 0.5f, 0.7f, 0.999f}) {
      rows.Add(row, {.top_p = top_p}, random);
    }
    rows.Add(row, {.temperature = 0.3f, .top_p = 0.7f}, random);
    rows.Add(row, {.top_p = 0.7f, .profile = all_ties}, random);
    rows.Add(row, {.top_p = 0.7f, .profile = inclusive}, random);
    rows.Add(row, {.top_p = 0.7f, .min_p = 0.1f}, random);
  }
  for (const cuda::TeamShape shape : kTeams) {
    SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
    const cuda::FixedShape fixed(shape);
    ExpectReference(rows, GetParam(), kStarts[shape.blocks % 2]);
  }
}

// Where a row is patched, its ties are masked or take the place of others.
TEST_P(CudaPlateau, EqualsTheReferenceOnPatchedRows) {
  Random random(43);
  const int64_t vocab = 40000;
  const PatchKind kinds[] = {
      {.allowed = 0.5}, {.count = 1000}, {.count = 300, .takes_the_top = true}, {}};
  for (const PatchKind& kind : kinds) {
    RequestRows rows, as_read;
    std::vector<HostPatch> patches;
    for (const Plateau& plateau : {kAllEqual, kZeros, kEight, kRampUp, kFewAboveMask}) {
      for (const SelectParams& params :
           {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_k = 1000},
            SelectParams{.top_p = 0.7f}, SelectParams{.temperature = 0.0f}}) {
        std::vector<float> row = RowOf(plateau, vocab, random);
        if (GetParam() != DType::kF32) {
          for (float& x : row) x = Widened(Narrowed(x, GetParam()), GetParam());
        }
        patches.push_back(MakePatch(kind, row, {}, random));
        as_read.Add(Patched(row, patches.back()), params, random);
        rows.Add(std::move(row), params, random);
        rows.keys.back() = as_read.keys.back();
      }
    }
    const Batch reference(as_read.values, DType::kF32);
    const SelectInput input{reference.view(), as_read.params, as_read.keys};
    const std::vector<Cut> expected = Selected(input).cuts;
    std::vector<std::vector<TokenResult>> drawn;
    for (const DrawMethod method : kMethods) drawn.push_back(Sampled(input, method));
    const DeviceBatch device(Batch(rows.values, GetParam()), RowStartAt::kAligned);
    const OnDevice<SelectParams> params(rows.params);
    const OnDevice<NoiseKey> keys(rows.keys);
    const PatchesOnDevice patches_there(patches);
    const cuda::RowParams on_device{params, keys, {}, patches_there.array()};
    for (const cuda::TeamShape shape : kTeams) {
      SCOPED_TRACE(testing::Message() << shape.blocks << " x " << shape.threads);
      const cuda::FixedShape fixed(shape);
      const OnDevice<Cut> cuts(rows.size());
      cuda::Select(device.view(), on_device, cuts, {}, nullptr);
      EXPECT_TRUE(SameSequence(cuts.Get(), expected));
      for (size_t m = 0; m < drawn.size(); ++m) {
        const OnDevice<TokenResult> results(rows.size());
        cuda::Sample(device.view(), on_device, kMethods[m], results, nullptr);
        EXPECT_TRUE(SameSequence(results.Get(), drawn[m]));
      }
    }
  }
}

// In the teams that batches from 1 to 512 rows get.
TEST_P(CudaPlateau, IsCertified) {
  struct Case {
    Plateau plateau;
    std::vector<SelectParams> params;
  };
  const SelectParams greedy{.temperature = 0.0f}, k50{.top_k = 50, .top_p = 0.9f};
  const SelectParams k1000{.top_k = 1000}, k2000{.top_k = 2000}, p7{.top_p = 0.7f};
  const std::vector<Case> cases = {
      {kAllEqual, {greedy, k50, k1000, k2000, p7}},
      {kZeros, {greedy, k50, k1000, p7}},
      {kEight, {greedy, k50, k1000, k2000, p7}},
      {kRampUp, {greedy, k50, k1000}},
      {kRampDown, {greedy, k50, k1000}},
      {kFewAboveMask, {greedy, k50, k1000, p7}},
  };
  const int64_t vocab = 128256;
  Random random(44);
  for (const Case& one : cases) {
    RequestRows rows;
    for (int i = 0; i < 4; ++i) {
      for (const SelectParams& params : one.params) {
        rows.Add(RowOf(one.plateau, vocab, random), params, random);
      }
    }
    const DeviceBatch device(Batch(rows.values, GetParam()), RowStartAt::kAligned);
    const OnDevice<SelectParams> params(rows.params);
    const OnDevice<NoiseKey> keys(rows.keys);
    for (const cuda::TeamShape shape : kTeams) {
      SCOPED_TRACE(testing::Message()
                   << one.plateau.name << ", " << shape.blocks << " x " << shape.threads);
      const cuda::FixedShape fixed(shape);
      const OnDevice<int32_t> ids(rows.size());
      const OnDevice<cuda::Way> ways(rows.size());
      cuda::SampleIds(device.view(), {params, keys}, DrawMethod::kGumbel, ids, {}, nullptr, ways);
      EXPECT_TRUE(SameSequence(ways.Get(), std::vector(rows.size(), cuda::Way::kCertified)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaPlateau, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
