// Every row sorted as a whole, by the radix sort of CUB: what the others are compared with.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/device/device_segmented_radix_sort.cuh>

#include "cuda/row_by_definition.cuh"
#include "research/qrita/qrita.h"
#include "select/cuda/sorted_values.cuh"
#include "semantics/cut.h"

namespace sluice::research {

using namespace cuda;

namespace {

struct StartOfRow {
  int64_t vocab;
  __host__ __device__ int64_t operator()(int64_t row) const { return row * vocab; }
};

auto StartsOfRows(int64_t first, int64_t vocab) {
  return thrust::make_transform_iterator(thrust::make_counting_iterator(first), StartOfRow{vocab});
}

// Returns in `bytes` what it needs when there is no memory, else sorts.
cudaError_t SortRows(void* memory, size_t& bytes, cub::DoubleBuffer<uint32_t>& keys, int64_t rows,
                     int64_t vocab, cudaStream_t stream) {
  return cub::DeviceSegmentedRadixSort::SortKeysDescending(memory, bytes, keys, rows * vocab, rows,
                                                           StartsOfRows(0, vocab),
                                                           StartsOfRows(1, vocab), 0, 32, stream);
}

void Require(cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();
  throw Error(ErrorCode::kUnavailable, "sort", cudaGetErrorString(result), "a device that sorts");
}

size_t Padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t KeyBytes(int64_t rows, int64_t vocab) {
  return Padded(static_cast<size_t>(rows * vocab) * sizeof(uint32_t));
}

struct SortArgument {
  QritaArgument select;
  uint32_t* keys;
};

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    KeysKernel(const __grid_constant__ SortArgument argument) {
  __shared__ TeamMemory memory;
  const Team team(memory);
  const TeamRow<kDType> row(team, argument.select.rows, TeamIndex(team));
  uint32_t* keys = argument.keys + int64_t{row.index} * argument.select.rows.vocab;
  row.slice.ForEach([&](float x, int id) { keys[id] = semantics::OrderKey(x); });
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SortedKernel(const __grid_constant__ SortArgument argument) {
  __shared__ TeamMemory memory;
  const Team team(memory);
  const TeamRow<kDType> row(team, argument.select.rows, TeamIndex(team));
  const semantics::RowScan scan = row.Scan(team, argument.select.rows.limits);
  Cut cut = semantics::CutOfStatus(scan.status);
  if (scan.status == RowStatus::kOk) {
    cut.count = kUndecided;
    if (IsWithin(semantics::RulesOf(row.params), kRulesOfSortedValues)) {
      const uint32_t* keys = argument.keys + int64_t{row.index} * argument.select.rows.vocab;
      const SortedValues sorted(team, keys, static_cast<int>(scan.support));
      cut = sorted.Select(row.params, 0);
    }
  }
  if (team.IsFirstThread()) argument.select.cuts[row.index] = cut;
}

}  // namespace

size_t SortWorkspaceBytes(const LogitsView& logits) {
  if (logits.rows == 0) return 0;
  cub::DoubleBuffer<uint32_t> keys;
  size_t bytes = 0;
  Require(SortRows(nullptr, bytes, keys, logits.rows, logits.vocab, nullptr));
  return 2 * KeyBytes(logits.rows, logits.vocab) + Padded(bytes);
}

void LaunchSort(DType dtype, const QritaArgument& argument, void* workspace, void* stream) {
  const int64_t rows = argument.rows.rows, vocab = argument.rows.vocab;
  if (rows == 0) return;
  auto* memory = static_cast<std::byte*>(workspace);
  const size_t key_bytes = KeyBytes(rows, vocab);
  cub::DoubleBuffer<uint32_t> keys(reinterpret_cast<uint32_t*>(memory),
                                   reinterpret_cast<uint32_t*>(memory + key_bytes));
  SortArgument sort{argument, keys.Current()};
  LaunchOverRows(
      {ForDType(dtype, KeysKernel<DType::kF32>, KeysKernel<DType::kBf16>, KeysKernel<DType::kF16>),
       WideShapeForRows(rows), 0},
      rows, &sort, stream);
  size_t bytes = 0;
  Require(SortRows(nullptr, bytes, keys, rows, vocab, nullptr));
  Require(SortRows(memory + 2 * key_bytes, bytes, keys, rows, vocab,
                   static_cast<cudaStream_t>(stream)));
  sort.keys = keys.Current();
  LaunchOverRows({ForDType(dtype, SortedKernel<DType::kF32>, SortedKernel<DType::kBf16>,
                           SortedKernel<DType::kF16>),
                  WideShapeForRows(rows), 0},
                 rows, &sort, stream);
}

}  // namespace sluice::research
