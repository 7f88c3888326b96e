// The certified head on a GPU: the intervals of the reference, and the dense head's first tokens,
// logits and draws, bit for bit, whatever the head.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "cuda/ptx.cuh"
#include "head/certified/cuda/branchless_sqrt.cuh"
#include "tests/head/head_on_device.h"
#include "tests/head/planted.h"
#include "tests/support/params.h"

namespace sluice::test {
namespace {

class CertifiedCuda : public HeadOnDevice, public ::testing::WithParamInterface<DType> {};

class PlantedFaultCuda : public DeviceTest {};

class BranchlessSqrtCuda : public DeviceTest {};

// Lets the next kernel start, and only some milliseconds later has written.
__global__ void WriteLateKernel(std::byte* to, const std::byte* from, int64_t bytes) {
  cuda::LetNextKernelStart();
  const int64_t start = clock64();
  while (clock64() - start < 4'000'000) {
  }
  for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

// Counts the numbers with a plain root for which it is not sqrtf's.
__global__ void CompareBranchlessSqrtKernel(unsigned long long* plain, unsigned long long* wrong) {
  unsigned long long of_thread = 0;
  const uint32_t threads = gridDim.x * blockDim.x;  // a power of two
  for (uint32_t bits = blockIdx.x * blockDim.x + threadIdx.x;;) {
    const float x = __uint_as_float(bits);
    if (cuda::HasBranchlessSqrt(x)) {
      ++of_thread;
      if (__float_as_uint(cuda::BranchlessSqrt(x)) != __float_as_uint(sqrtf(x)))
        atomicAdd(wrong, 1);
    }
    if (bits >= ~0u - threads + 1) break;
    bits += threads;
  }
  atomicAdd(plain, of_thread);
}

Rows MakeStates(const Rows& head, int64_t count, Random& random) {
  Rows states;
  for (int64_t r = 0; r < count; ++r) {
    states.push_back(MakeHidden(
        kAllHiddenKinds[static_cast<size_t>(r) % std::size(kAllHiddenKinds)], head, random));
  }
  return states;
}

// All of them: normal numbers from 2^-101 on.
TEST_F(BranchlessSqrtCuda, AreTheRoundedOnes) {
  const OnDevice<unsigned long long> counts({0, 0});
  CompareBranchlessSqrtKernel<<<1024, 256>>>(counts.data(), counts.data() + 1);
  Require(cudaDeviceSynchronize());
  const std::vector<unsigned long long> expected = {0x7f800000ull - (26ull << 23), 0};
  EXPECT_EQ(counts.Get(), expected);
}

TEST_P(CertifiedCuda, ScoresAndWidthsAreThoseOfTheReference) {
  Random random(11);
  for (const int64_t dim : {1, 100, 128, 129, 640, 1100}) {
    for (const int64_t count : {1, 4, 5, 8, 13, 17, 40}) {
      for (const CertificateKind kind : kCertificateKinds) {
        const int64_t vocab = random.Between(1, 90);
        const HeadKind head_kind = kAllHeadKinds[random.Below(std::size(kAllHeadKinds))];
        const Rows rows = Representable(MakeHead(head_kind, vocab, dim, random), GetParam());
        const Batch weight(rows, GetParam());
        const std::vector<float> bias = MakeBias(vocab, random);
        const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5});
        const Batch hidden(MakeStates(rows, count, random), kAllDTypes[random.Below(3)]);
        DeviceHead device(weight, bias, planes);
        const auto actual = ScoredOnDevice(device, hidden);
        const auto expected = Scored(kScoreRef, planes, bias, Matrix(hidden));
        for (size_t r = 0; r < expected.size(); ++r) {
          for (size_t v = 0; v < static_cast<size_t>(vocab); ++v) {
            const bool is_endless = !(expected[r].widths[v] < INFINITY);
            ASSERT_TRUE(is_endless ? !(actual[r].widths[v] < INFINITY)
                                   : SameBits(actual[r].widths[v], expected[r].widths[v]) &&
                                         SameBits(actual[r].scores[v], expected[r].scores[v]))
                << dim << " row " << r << " of " << count << " token " << v << " of " << vocab
                << ": " << actual[r].scores[v] << " within " << actual[r].widths[v] << ", not "
                << expected[r].scores[v] << " within " << expected[r].widths[v];
          }
        }
      }
    }
  }
}

// Kernels start early, and the one that scores reads the planes before it waits.
TEST_P(CertifiedCuda, ReadsPlanesThatTheKernelBeforeWrites) {
  Random random(14);
  const Rows rows = MakeHead(HeadKind::kNormal, 200, 256, random);
  const Batch weight(rows, GetParam());
  const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = 5});
  DeviceHead device(weight, {}, planes);
  const cuda::DevicePlaneLayout layout(CertificateKind::kDither4, 200, 256);
  std::byte* const codes = device.planes() + layout.codes;
  const auto bytes = static_cast<int64_t>(layout.end - layout.codes);
  const OnDevice<std::byte> kept(static_cast<size_t>(bytes));
  Require(cudaMemcpy(kept.data(), codes, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice));
  for (const int64_t count : {3, 7, 20}) {  // a kernel each
    const Batch hidden(MakeStates(rows, count, random), DType::kF32);
    const auto expected = ScoredOnDevice(device, hidden);
    const auto actual = ScoredOnDevice(device, hidden, [&] {
      Require(cudaMemset(codes, 0, static_cast<size_t>(bytes)));
      WriteLateKernel<<<1, 256>>>(codes, kept.data(), bytes);
    });
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_TRUE(SameSequence(actual[r].scores, expected[r].scores)) << count << " row " << r;
    }
  }
}

// And the first of these would see it if the planes were not those of the weights.
TEST_P(CertifiedCuda, AFlippedNibbleMakesAnIntervalWrong) {
  Random random(12);
  const Rows rows = MakeHead(HeadKind::kNormal, 200, 256, random);
  const Batch weight(rows, GetParam());
  const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = 5});
  const Batch hidden(MakeStates(rows, 12, random), DType::kF32);
  DeviceHead device(weight, {}, planes);
  auto worst = [&] {
    const auto scored = ScoredOnDevice(device, hidden);
    double most = 0.0;
    for (int64_t r = 0; r < 12; ++r) {
      const semantics::Row state{Matrix(hidden).Row(r), DType::kF32, 256};
      most = std::max(most, WorstError(scored[static_cast<size_t>(r)], Matrix(weight), {}, state));
    }
    return most;
  };
  EXPECT_LT(worst(), 0.9);
  const cuda::DevicePlaneLayout layout(CertificateKind::kDither4, 200, 256);
  std::vector<std::byte> codes(layout.end - layout.codes);
  Require(cudaMemcpy(codes.data(), device.planes() + layout.codes, codes.size(),
                     cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < codes.size(); i += 31) codes[i] ^= std::byte{0x08};
  Require(cudaMemcpy(device.planes() + layout.codes, codes.data(), codes.size(),
                     cudaMemcpyHostToDevice));
  EXPECT_GT(worst(), 1.0);
}

// k: that are asked for. Of one, so many more rows are computed that a fault may do no harm.
int32_t FirstTokenOnDevice(const PlantedHead& planted, const HeadPlanes& planes, int32_t k) {
  const Batch weight(planted.rows, DType::kF32);
  DeviceHead device(weight, {}, planes);
  device.Ask(Batch({planted.hidden}, DType::kF32), {});
  const int32_t id = device.TopK(k).ids[0];
  EXPECT_EQ(device.rows()[0].path, CertifiedPath::kPlanes);
  return id;
}

TEST_F(PlantedFaultCuda, OneFlippedNibbleOrABoundATenthSmallerGivesAnotherToken) {
  Random random(41);
  for (const CertificateKind kind : kCertificateKinds) {
    const bool is_dither = kind == CertificateKind::kDither4;
    const int32_t k = is_dither ? 2 : 1;
    const PlantedHead planted =
        is_dither ? DecidedByANibble(random) : DecidedByATenthOfABound(random);
    const Batch weight(planted.rows, DType::kF32);
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 3});
    EXPECT_EQ(FirstTokenOnDevice(planted, planes, k), planted.first) << Name(kind);
    const auto changed = std::make_shared<ChangedPlanes>(planes);
    if (is_dither) {
      changed->FlipNibble(planted.first, kDecidingElement);
    } else {
      changed->ShrinkBounds(0.9f);
    }
    EXPECT_NE(FirstTokenOnDevice(planted, PlaneAccess::Make(changed), k), planted.first)
        << Name(kind);
  }
}

TEST_P(CertifiedCuda, TopIsTheDenseHeadsForEveryKindOfHeadAndState) {
  Random random(13);
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const CertificateKind kind : kCertificateKinds) {
      const int64_t vocab = random.Between(1, 1400);
      const int64_t dim = random.Between(1, 400);
      const Rows rows = Representable(MakeHead(head_kind, vocab, dim, random), GetParam());
      const Batch weight(rows, GetParam(), random.Below(4));
      const std::vector<float> bias = MakeBias(vocab, random);
      DeviceHead device(weight, bias, HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}),
                        random.Coin() ? RowStartAt::kAligned : RowStartAt::kOneElementOn);
      Rows states = MakeStates(rows, random.Between(1, 20), random);
      if (random.Coin()) states.back()[0] = NAN;
      if (random.Coin()) states.front()[static_cast<size_t>(dim) - 1] = INFINITY;
      const Batch hidden(states, kAllDTypes[random.Below(3)], random.Below(3));
      for (const int64_t k : {int64_t{1}, int64_t{10}, int64_t{50}, vocab}) {
        ExpectTopOfDense(device, {Matrix(weight), bias}, hidden, {},
                         static_cast<int32_t>(std::min<int64_t>(k, vocab)),
                         std::to_string(static_cast<int>(head_kind)) + " " +
                             std::string(Name(kind)) + " " + std::to_string(vocab) + " x " +
                             std::to_string(dim) + " k " + std::to_string(k));
      }
    }
  }
}

TEST_P(CertifiedCuda, TopReadsOnlyAllowedTokens) {
  Random random(14);
  const Rows rows = MakeHead(HeadKind::kTrained, 1000, 200, random);
  const Batch weight(rows, GetParam());
  Rows states;
  for (int r = 0; r < 6; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  const Batch hidden(states, DType::kF32);
  std::vector<int32_t> bitmask(6 * 32, 0);  // the first row: none
  for (size_t r = 1; r < 6; ++r) {
    for (size_t v = 0; v < 1000; ++v) {
      if (!random.Coin(r == 1 ? 0.01 : 0.2 * static_cast<double>(r))) continue;
      bitmask[r * 32 + v / 32] |= static_cast<int32_t>(1u << v % 32);
    }
  }
  bitmask[5 * 32 + 31] = -1;  // bits behind the vocabulary
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  for (const int32_t k : {1, 40, 7}) {
    ExpectTopOfDense(device, {Matrix(weight)}, hidden, bitmask, k, std::to_string(k));
  }
  const std::vector<cuda::HeadRow> how = device.rows();
  EXPECT_EQ(how[0].survivors, 0);
  EXPECT_EQ(how[1].path, CertifiedPath::kAllowed);
  EXPECT_LE(how[1].survivors, 30);
  EXPECT_EQ(how[5].path, CertifiedPath::kPlanes);
}

// Of weights without any structure a half width is as long as logits are spread, so k may be a
// thousandth of the vocabulary, not more; the rest is the dense head's.
TEST_P(CertifiedCuda, TopOfUsualStatesNeedsFewRows) {
  Random random(15);
  struct Case {
    int64_t vocab;
    int64_t dim;
    std::vector<int32_t> ks;
  };
  for (const Case& of : {Case{20011, 96, {1, 10}}, Case{300001, 16, {50, 200}}}) {
    const Rows rows = MakeHead(HeadKind::kNormal, of.vocab, of.dim, random);
    const Batch weight(rows, GetParam());
    Rows states;
    for (int r = 0; r < 3; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
    const Batch hidden(states, GetParam());
    DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
    for (const int32_t k : of.ks) {
      ExpectTopOfDense(device, {Matrix(weight)}, hidden, {}, k, std::to_string(k));
      for (const cuda::HeadRow& row : device.rows()) {
        EXPECT_EQ(row.path, CertifiedPath::kPlanes) << k;
        EXPECT_GE(row.survivors, k);
      }
    }
    for (const int32_t k : {1000, 2048}) {
      ExpectTopOfDense(device, {Matrix(weight)}, hidden, {}, k, std::to_string(k));
    }
  }
}

// All logits are equal: every row survives, which is more than are worth reading one by one.
TEST_P(CertifiedCuda, ARowThatOverflowsTakesTheDenseHeadAndItsNeighboursDoNot) {
  Random random(16);
  const Rows rows = MakeHead(HeadKind::kNormal, 5000, 130, random);
  const Batch weight(rows, GetParam());
  Rows states;
  for (int r = 0; r < 5; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  states[2].assign(130, 0.0f);
  const Batch hidden(states, DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  for (const int32_t k : {1, 5}) {
    ExpectTopOfDense(device, {Matrix(weight)}, hidden, {}, k, std::to_string(k));
    const std::vector<cuda::HeadRow> how = device.rows();
    EXPECT_EQ(how[2].path, CertifiedPath::kDense);
    EXPECT_EQ(how[2].reason, DenseReason::kSurvivors);
    EXPECT_EQ(how[1].path, CertifiedPath::kPlanes);
    EXPECT_EQ(how[3].path, CertifiedPath::kPlanes);
  }
  const std::vector<SelectParams> params(5, SelectParams{});
  const std::vector<NoiseKey> keys(5, NoiseKey{3, 4});
  ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, params, keys, DrawMethod::kGumbel, "");
  EXPECT_EQ(device.rows()[2].path, CertifiedPath::kDense);
}

// A batch of one, in which nobody else asks for the dense head.
TEST_P(CertifiedCuda, OneStateTakesTheDenseHeadForEachReason) {
  Random random(23);
  for (const int64_t dim : {128, 130}) {  // one is aligned
    const Rows rows = MakeHead(HeadKind::kNormal, 5003, dim, random);
    const Batch weight(rows, GetParam());
    DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
    const std::vector<float> usual = MakeHidden(HiddenKind::kPeaked, rows, random);
    std::vector<float> infinite = usual;
    infinite[7] = INFINITY;
    const std::vector<float> zero(static_cast<size_t>(dim), 0.0f);
    std::vector<int32_t> bitmask(157, -1);
    bitmask[3] = 0x5a5a;
    auto expect = [&](const std::vector<float>& state, const SelectParams& params,
                      DenseReason reason) {
      for (const std::vector<int32_t>& allowed : {std::vector<int32_t>{}, bitmask}) {
        ExpectDrawOfDense(device, {Matrix(weight)}, Batch({state}, DType::kF32), allowed, {params},
                          {{3, 4}}, DrawMethod::kGumbel, Name(reason).data());
        EXPECT_EQ(device.rows()[0].reason, reason) << dim;
      }
    };
    expect(usual, {.temperature = 0.0f}, DenseReason::kNone);
    expect(infinite, {.temperature = 0.0f}, DenseReason::kHidden);
    expect(zero, {}, DenseReason::kSurvivors);
    expect(usual, {.typical_p = 0.9f}, DenseReason::kParameters);
    ExpectTopOfDense(device, {Matrix(weight)}, Batch({zero}, DType::kF32), bitmask, 5, "zero");
    EXPECT_EQ(device.rows()[0].reason, DenseReason::kSurvivors);
  }
}

TEST_P(CertifiedCuda, DrawIsTheDenseHeadsForEveryKindOfHeadAndParameters) {
  Random random(17);
  for (int n = 0; n < 42; ++n) {
    const HeadKind head_kind = kAllHeadKinds[static_cast<size_t>(n) % std::size(kAllHeadKinds)];
    const CertificateKind kind = kCertificateKinds[random.Below(2)];
    const int64_t vocab = random.Between(1, n % 3 == 0 ? 5000 : 900);
    const int64_t dim = random.Between(1, 300);
    const Rows rows = Representable(MakeHead(head_kind, vocab, dim, random), GetParam());
    const Batch weight(rows, GetParam());
    const std::vector<float> bias = MakeBias(vocab, random);
    DeviceHead device(weight, bias, HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
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
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      ExpectDrawOfDense(device, {Matrix(weight), bias}, hidden, bitmask, params, keys, method,
                        std::to_string(n) + " " + std::string(Name(kind)) + " " +
                            std::to_string(vocab) + " x " + std::to_string(dim));
    }
  }
}

// Ordinary parameters on heads as they are: that the certificate answers, not the dense head.
TEST_P(CertifiedCuda, DrawsOfUsualParametersNeedNoDenseHead) {
  Random random(18);
  const Rows rows = MakeHead(HeadKind::kNormal, 20000, 256, random);
  const Batch weight(rows, GetParam());
  Rows states;
  for (int r = 0; r < 4; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  const Batch hidden(states, GetParam());
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  const std::vector<SelectParams> usual = {
      {.temperature = 0.0f}, {.temperature = 0.8f, .top_k = 3, .top_p = 0.9f},
      {.temperature = 1.0f}, {.temperature = 0.7f},
      {.min_p = 0.5f},       {.top_k = 3, .min_p = 0.05f, .xtc_probability = 1.0f},
  };
  for (const SelectParams& of_all : usual) {
    const std::vector<SelectParams> params(4, of_all);
    for (uint32_t position = 0; position < 4; ++position) {
      std::vector<NoiseKey> keys;
      for (uint32_t r = 0; r < 4; ++r) keys.push_back({7 + r, position});
      ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, params, keys, DrawMethod::kGumbel,
                        std::to_string(of_all.top_k));
      for (const cuda::HeadRow& row : device.rows()) {
        EXPECT_EQ(row.path, CertifiedPath::kPlanes)
            << of_all.temperature << " " << of_all.top_k << " " << of_all.min_p;
      }
    }
  }
}

// Whether bounds of the others' mass decide or leave the row to the dense head.
TEST_P(CertifiedCuda, DrawsFromNucleiAreTheDenseHeads) {
  Random random(20);
  const Rows rows = MakeHead(HeadKind::kNormal, 20000, 256, random);
  const Batch weight(rows, GetParam());
  Rows states;
  for (int r = 0; r < 4; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  const Batch hidden(states, GetParam());
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  Profile joint;
  joint.top_k_top_p = TopKTopP::kJoint;
  Profile with_ties;
  with_ties.ties = Ties::kAll;
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    for (const float temperature : {0.1f, 0.2f, 0.5f, 1.0f, 2.0f}) {
      for (const SelectParams& of_all : std::vector<SelectParams>{
               {.temperature = temperature, .top_p = 0.9f},
               {.temperature = temperature, .top_p = 0.5f, .profile = with_ties},
               {.temperature = temperature, .top_k = 5, .top_p = 0.8f, .profile = joint},
               {.temperature = temperature, .top_p = 0.95f, .xtc_probability = 1.0f}}) {
        const std::vector<SelectParams> params(4, of_all);
        std::vector<NoiseKey> keys;
        for (uint32_t r = 0; r < 4; ++r) keys.push_back({9 + r, r});
        const std::string what = std::to_string(temperature) + " p " + std::to_string(of_all.top_p);
        ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, params, keys, method, what);
      }
    }
  }
}

// Noise chooses among the tokens at the first place where ties are all kept.
TEST_P(CertifiedCuda, TiesAtTheFirstPlaceAreDrawnWhereAllAreKept) {
  Random random(22);
  Rows rows = MakeHead(HeadKind::kNormal, 400, 64, random);
  rows[9] = rows[4];
  const Batch weight(rows, GetParam());
  std::vector<float> state;
  for (const float w : rows[4]) state.push_back(200.0f * w);
  constexpr size_t kKeys = 64;
  const Batch hidden(Rows(kKeys, state), DType::kF32);
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < kKeys; ++r) keys.push_back({31, r});
  SelectParams params = {.temperature = 1.0f, .top_k = 1};
  auto drawn = [&](DrawMethod method) {
    ExpectDrawOfDense(device, {Matrix(weight)}, hidden, {}, {kKeys, params}, keys, method, "ties");
    for (const cuda::HeadRow& row : device.rows()) EXPECT_EQ(row.path, CertifiedPath::kPlanes);
    const std::vector<int32_t> ids = device.Sample({kKeys, params}, keys, method);
    return std::count(ids.begin(), ids.begin() + kKeys, 9);
  };
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    params.profile.ties = Ties::kAll;
    const auto count = drawn(method);  // four standard deviations are 16
    EXPECT_GE(count, 16);
    EXPECT_LE(count, 48);
    params.profile.ties = Ties::kLowestId;
    EXPECT_EQ(drawn(method), 0);
  }
}

// A call that was captured answers for what the memory holds when it is replayed.
TEST_P(CertifiedCuda, IsCapturedInAGraph) {
  Random random(19);
  const Rows rows = MakeHead(HeadKind::kNormal, 3000, 200, random);
  const Batch weight(rows, GetParam());
  DeviceHead device(weight, {}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  Rows states;
  for (int r = 0; r < 3; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  device.Ask(Batch(states, DType::kF32), {});
  const OnDevice<int32_t> ids(30);
  const OnDevice<float> logits(30);
  const OnDevice<RowStatus> status(3);
  cudaStream_t stream;
  Require(cudaStreamCreate(&stream));
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::TopK(device.call(), {10, ids, logits, status}, stream);
  cudaGraph_t graph;
  Require(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  Require(cudaGraphInstantiate(&executable, graph, 0));
  for (int n = 0; n < 5; ++n) {
    for (auto& state : states) state = MakeHidden(HiddenKind::kPeaked, rows, random);
    if (n == 2) states[1].assign(200, 0.0f);
    const Batch hidden(states, DType::kF32);
    const std::span<const std::byte> bytes = hidden.row_bytes();
    Require(cudaMemcpy(const_cast<void*>(device.call().hidden.data), bytes.data(), bytes.size(),
                       cudaMemcpyHostToDevice));
    Require(cudaGraphLaunch(executable, stream));
    Require(cudaStreamSynchronize(stream));
    const TopResult expected = DenseTopK({Matrix(weight)}, {Matrix(hidden), {}}, 10);
    EXPECT_TRUE(SameSequence(ids.Get(), expected.ids)) << n;
    EXPECT_TRUE(SameSequence(logits.Get(), expected.logits)) << n;
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(All, CertifiedCuda, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
