// The mass of a second read is the sum of semantics/weight.h, to the unit: over every value of t,
// and of rows of any length, type and address in every team.
#include <algorithm>
#include <limits>

#include "cuda/mass_pass.cuh"
#include "tests/support/device.h"
#include "tests/support/rows.h"

namespace sluice::test {
namespace {

using Sum = unsigned long long;

// Eights of neighbouring t, whose bits ascend from `first`: how many have another sum. Bits are
// also taken far apart, so that what an eight adds up is of many sizes.
__global__ void CompareEightsKernel(uint32_t first, uint32_t values, Sum* different) {
  const uint32_t step = gridDim.x * blockDim.x * 8;
  for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) * 8; i < values; i += step) {
    for (const bool are_neighbours : {true, false}) {
      float t[8];
      uint64_t sum = 0;
#pragma unroll
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t at = are_neighbours ? i + e : (i + e * (values / 8)) % values;
        t[e] = semantics::FloatOf(first + at);
        sum += semantics::WeightOf(t[e]);
      }
      if (cuda::MassOfEight(t, 1.0f) != sum) atomicAdd(different, 1);
    }
  }
}

// In shared memory.
struct ReadMemory {
  cuda::TeamMemory team;
  uint32_t taken;
};

struct ReadArgument {
  cuda::RowsArgument rows;
  const float* max;
  Sum* masses;
};

template <DType kDType>
__global__ void MassPassKernel(const __grid_constant__ ReadArgument argument) {
  __shared__ ReadMemory memory;
  const cuda::Team team(memory.team);
  const int row = cuda::TeamIndex(team);
  if (team.thread() == 0) memory.taken = 0;
  team.SyncBlock();
  const cuda::MassPass<kDType> read(team, argument.rows, row);
  const uint64_t mass =
      read.Mass([&] { return argument.max[row]; }, semantics::TemperatureScale(1.0f), memory.taken);
  atomicAdd(argument.masses + row, mass);
}

class MassOfEight : public DeviceTest {};
class MassPass : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_F(MassOfEight, AddsUpTheWeightOfEveryT) {
  constexpr uint32_t kFirst = 0x80000000u, kEnd = 0xff800000u;  // from -0 to -inf bits ascend
  static_assert((kEnd - kFirst) % 8 == 0);
  const OnDevice<Sum> different(std::vector<Sum>{0});
  CompareEightsKernel<<<132 * 8, 256>>>(kFirst, kEnd - kFirst, different.data());
  Require(cudaGetLastError());
  EXPECT_EQ(different.Get()[0], 0u);
}

TEST_P(MassPass, IsTheMassOfTheRow) {
  Random random(91);
  for (const cuda::TeamShape shape :
       {cuda::TeamShape{1, 512}, {1, 1024}, {2, 512}, {2, 1024}, {4, 512}, {8, 512}}) {
    const cuda::FixedShape fixed(shape);
    for (const int64_t vocab : {int64_t{1}, int64_t{255}, int64_t{257}, random.Between(2, 5000),
                                random.Between(5000, 60000), int64_t{128256}}) {
      SCOPED_TRACE(testing::Message()
                   << shape.blocks << " x " << shape.threads << ", vocab " << vocab);
      std::vector<std::vector<float>> rows;
      for (int r = 0; r < 5; ++r) {
        rows.push_back(MakeRow(RowKind::kMid, vocab, random));
        random.Pick(rows.back()) = -std::numeric_limits<float>::infinity();
      }
      rows.back()[0] = 1.0f;
      const Batch batch(rows, GetParam(), 16 - vocab % 8);  // rows are as aligned as the first
      std::vector<float> max(rows.size(), -std::numeric_limits<float>::max());
      std::vector<Sum> expected(rows.size());
      for (size_t r = 0; r < rows.size(); ++r) {
        auto value = [&](int64_t i) { return batch.Get(static_cast<int64_t>(r), i); };
        for (int64_t i = 0; i < vocab; ++i) max[r] = std::max(max[r], value(i));
        for (int64_t i = 0; i < vocab; ++i) {
          expected[r] += semantics::Weight(value(i), max[r], semantics::TemperatureScale(1.0f));
        }
      }
      for (const RowStartAt start : {RowStartAt::kAligned, RowStartAt::kOneElementOn}) {
        const DeviceBatch on_device(batch, start);
        const OnDevice<float> max_there(max);
        const OnDevice<Sum> masses(std::vector<Sum>(rows.size()));
        ReadArgument argument{cuda::ArgumentOf(on_device.view(), {}), max_there.data(),
                              masses.data()};
        const void* kernel =
            cuda::ForDType(GetParam(), MassPassKernel<DType::kF32>, MassPassKernel<DType::kBf16>,
                           MassPassKernel<DType::kF16>);
        cuda::LaunchOverRows({kernel, shape, 0}, std::ssize(rows), &argument, nullptr);
        EXPECT_EQ(masses.Get(), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, MassPass, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(Name(param.param)); });

}  // namespace
}  // namespace sluice::test
