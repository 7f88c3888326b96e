// The definition compiled for the device gives the bits that it gives on the host: rows from status
// to draw and log-probability, topk, the dot product, and the functions below them.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "semantics/dot.h"
#include "semantics/draw/draft.h"
#include "semantics/draw/logprob.h"
#include "semantics/select_row.h"
#include "semantics/topk_scores.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"

namespace sluice::semantics {
namespace {

constexpr int32_t kTopk = 9;

// One row's work and everything that comes of it.
struct Job {
  const float* values;
  int64_t size;
  SelectParams params;
  NoiseKey key;
  Token* workspace;
};

struct Outcome {
  Cut cut;
  CutMass mass;
  int32_t gumbel_id;
  float gumbel_score;
  int32_t cdf_id;
  float raw_logprob;
  float processed_logprob;
  uint64_t draft_probability;
  int32_t topk[kTopk];
  RowStatus topk_status;
  float dot;
};

SLUICE_HD void RunRow(const Job& job, Outcome& out) {
  const Row row{job.values, DType::kF32, job.size};
  const SelectedRow selected = SelectRow(row, job.params, job.key, {}, job.workspace);
  out.cut = selected.ToCut();
  if (selected.status == RowStatus::kOk) {
    out.mass = MassesOf(selected.sorted, job.params, selected.trace);
    const float max = selected.sorted.Max();
    const float scale = ScalesOf(job.params).draw;
    const Winner winner = DrawGumbel(row, out.cut, max, scale, job.key);
    out.gumbel_id = winner.token.id;
    out.gumbel_score = winner.score;
    out.cdf_id = DrawCdf(row, out.cut, max, scale, job.key);
    const float drawn = row[out.gumbel_id];
    out.raw_logprob = RawNormalizer(row).Logprob(drawn);
    out.processed_logprob = ProcessedNormalizer(row, out.cut, max, job.params).Logprob(drawn);
    out.draft_probability =
        Probability40(Weight(drawn, max, scale), KeptMass(row, out.cut, max, scale));
    out.dot = Dot(row, row);
  }
  out.topk_status = TopkScores(row, kTopk, false, job.workspace, out.topk, nullptr);
}

__global__ void RunRowKernel(const Job* jobs, Outcome* outcomes, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) RunRow(jobs[i], outcomes[i]);
}

// Weight, noise and logarithm at scattered arguments.
struct FunctionValues {
  uint64_t weight;
  float gumbel;
  double log2;
  float widened[2];
};

SLUICE_HD void RunFunctions(uint32_t i, FunctionValues& out) {
  const Block block = Philox(3, i, 0, 0, 0);
  const uint64_t n = (static_cast<uint64_t>(block.word[1]) << 32 | block.word[0]) >> 16;
  out.weight = WeightOf(-41.0f * (static_cast<float>(block.word[2]) * 0x1p-32f));
  out.gumbel = Gumbel(n >> (i % 40));
  out.log2 = Log2(static_cast<double>(n + 1) * 0x1p-40);
  out.widened[0] = WidenF16(static_cast<uint16_t>(i));
  out.widened[1] = WidenBf16(static_cast<uint16_t>(i));
}

__global__ void RunFunctionsKernel(FunctionValues* out, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) RunFunctions(i, out[i]);
}

template <typename T>
T* OnDevice(const std::vector<T>& host) {
  T* device = nullptr;
  EXPECT_EQ(cudaMalloc(&device, host.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return device;
}

class OnDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

// Padding between fields takes part in the comparison, so outcomes start as zeros.
template <typename T>
void ExpectSameBytes(const std::vector<T>& device, const std::vector<T>& host) {
  for (size_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(std::memcmp(&device[i], &host[i], sizeof(T)), 0) << "element " << i;
  }
}

TEST_F(OnDeviceTest, RowsGiveTheBitsOfTheHost) {
  test::Random random(2026);
  std::vector<std::vector<float>> rows;
  std::vector<SelectParams> params;
  for (const test::HostileRow& hostile : test::HostileRows()) {
    for (const SelectParams& extreme : test::ExtremeSelectParams()) {
      rows.push_back(hostile.values);
      params.push_back(extreme);
    }
  }
  for (int i = 0; i < 4000; ++i) {
    const int64_t vocab = random.Between(1, 300);
    rows.push_back(test::MakeRow(test::kAllRowKinds[i % 8], vocab, random));
    params.push_back(test::RandomSelectParams(vocab, random));
  }

  const size_t count = rows.size();
  size_t total = 0;
  for (const auto& row : rows) total += row.size();
  std::vector<float> values;
  for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  std::vector<Token> workspace(total);
  float* device_values = OnDevice(values);
  Token* device_workspace = OnDevice(workspace);

  std::vector<Job> host_jobs(count);
  std::vector<Job> device_jobs(count);
  size_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    const NoiseKey key{.seed = random.Bits(), .position = static_cast<uint32_t>(i), .choice = 3};
    const int64_t size = static_cast<int64_t>(rows[i].size());
    host_jobs[i] = {values.data() + offset, size, params[i], key, workspace.data() + offset};
    device_jobs[i] = {device_values + offset, size, params[i], key, device_workspace + offset};
    offset += rows[i].size();
  }

  std::vector<Outcome> host(count);
  std::vector<Outcome> device(count);
  std::memset(static_cast<void*>(host.data()), 0, count * sizeof(Outcome));
  Job* jobs = OnDevice(device_jobs);
  Outcome* outcomes = OnDevice(host);
  for (size_t i = 0; i < count; ++i) RunRow(host_jobs[i], host[i]);
  const unsigned blocks = static_cast<unsigned>((count + 127) / 128);
  RunRowKernel<<<blocks, 128>>>(jobs, outcomes, static_cast<int>(count));
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device.data(), outcomes, count * sizeof(Outcome), cudaMemcpyDeviceToHost),
            cudaSuccess);
  ExpectSameBytes(device, host);
  cudaFree(device_values);
  cudaFree(device_workspace);
  cudaFree(jobs);
  cudaFree(outcomes);
}

TEST_F(OnDeviceTest, FunctionsGiveTheBitsOfTheHost) {
  constexpr uint32_t kCount = 1 << 20;
  std::vector<FunctionValues> host(kCount);
  std::vector<FunctionValues> device(kCount);
  std::memset(static_cast<void*>(host.data()), 0, kCount * sizeof(FunctionValues));
  FunctionValues* samples = OnDevice(host);
  for (uint32_t i = 0; i < kCount; ++i) RunFunctions(i, host[i]);
  RunFunctionsKernel<<<kCount / 256, 256>>>(samples, kCount);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(
      cudaMemcpy(device.data(), samples, kCount * sizeof(FunctionValues), cudaMemcpyDeviceToHost),
      cudaSuccess);
  ExpectSameBytes(device, host);
  cudaFree(samples);
}

}  // namespace
}  // namespace sluice::semantics
