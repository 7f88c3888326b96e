// The dense head: a warp has four rows of weights at a time and one hidden state, or eight, so that
// products share the rows that it has loaded.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "head/certified/cuda/row_progress.cuh"
#include "head/cuda/dot_lanes.cuh"
#include "head/cuda/project_launch.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int kRowsOfWarp = 4;
constexpr int kStatesAtOnce = 8;
constexpr int kThreads = 128;

struct ProjectArgument {
  WeightsArgument head;
  const void* hidden;
  int64_t hidden_stride;
  const int32_t* rows;   // null: all, in their order
  const int32_t* count;  // null: most_rows
  int32_t most_rows;
  float* logits;
  int64_t stride;
  const int32_t* bitmask;  // null: none
  bool is_aligned;
};

// The rows of a warp, and some hidden states from the list. A place that is not there repeats the
// last that is, and its logit is not kept.
template <DType kWeight, DType kHidden, int kStates, int kAtOnce>
__device__ void ProjectRows(const ProjectArgument& argument, int first_row, int first_state,
                            int states) {
  using Weight = typename ElementOf<kWeight>::Type;
  using Hidden = typename ElementOf<kHidden>::Type;
  const WeightsArgument& head = argument.head;
  const Weight* weights[kRowsOfWarp];
  const Hidden* hidden[kStates];
  int32_t row[kStates];
#pragma unroll
  for (int w = 0; w < kRowsOfWarp; ++w) {
    weights[w] =
        static_cast<const Weight*>(head.weight) + min(first_row + w, head.vocab - 1) * head.stride;
  }
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    const int place = min(first_state + s, states - 1);
    row[s] = argument.rows == nullptr ? place : argument.rows[place];
    hidden[s] = static_cast<const Hidden*>(argument.hidden) + row[s] * argument.hidden_stride;
  }
  float sum[kStates][kRowsOfWarp][kLanesOfThread] = {};
  if (argument.is_aligned) {
    AddLanes<kWeight, kHidden, true, kAtOnce>(weights, hidden, head.dim, sum);
  } else {
    AddLanes<kWeight, kHidden, false, 1>(weights, hidden, head.dim, sum);
  }
  const int v = first_row + RowOfFour();
  const float bias = head.bias != nullptr && v < head.vocab ? head.bias[v] : 0.0f;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    float logit = SumOfFourRows(sum[s]);
    if ((threadIdx.x & 25) != 0 || v >= head.vocab || first_state + s >= states) continue;
    if (head.bias != nullptr) logit += bias;
    if (argument.bitmask != nullptr) {
      const int32_t* const allowed = argument.bitmask + int64_t{row[s]} * ((head.vocab + 31) / 32);
      if (!semantics::BitmaskAllows(allowed, v)) logit = -INFINITY;
    }
    argument.logits[row[s] * argument.stride + v] = logit;
  }
}

// kIsOne: there is one hidden state, and memory alone to wait for.
template <DType kWeight, DType kHidden, bool kIsOne>
__global__ void __launch_bounds__(kThreads, kIsOne ? 6 : 2)
    ProjectKernel(const __grid_constant__ ProjectArgument argument) {
  LetNextKernelStart();
  AwaitKernelBefore();
  const int states = argument.count == nullptr ? argument.most_rows : *argument.count;
  if (states == 0) return;
  const int warps = static_cast<int>(gridDim.x) * (kThreads / kWarpSize);
  const int warp = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / kWarpSize;
  const int vocab = argument.head.vocab;
#pragma unroll 1
  for (int64_t row = int64_t{warp} * kRowsOfWarp; row < vocab; row += warps * kRowsOfWarp) {
    const int first_row = static_cast<int>(row);
    int first = 0;
    if (kIsOne || states == 1) {
      ProjectRows<kWeight, kHidden, 1, kWeight == DType::kF32 ? 2 : 4>(argument, first_row, 0, 1);
      first = 1;
    }
    if constexpr (!kIsOne) {
#pragma unroll 1
      for (; first < states; first += kStatesAtOnce) {
        ProjectRows<kWeight, kHidden, kStatesAtOnce, 1>(argument, first_row, first, states);
      }
    }
  }
}

struct TokensArgument {
  WeightsArgument head;
  const void* hidden;
  int64_t hidden_stride;
  const int32_t* ids;
  int64_t count;  // of all rows
  int64_t of_row;
  float* logits;
  bool is_aligned;
};

template <DType kWeight, DType kHidden>
__global__ void __launch_bounds__(kThreads)
    ProjectTokensKernel(const __grid_constant__ TokensArgument argument) {
  using Weight = typename ElementOf<kWeight>::Type;
  using Hidden = typename ElementOf<kHidden>::Type;
  const WeightsArgument& head = argument.head;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
  int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (; i < argument.count; i += warps) {
    const int32_t id = argument.ids[i];
    float logit = semantics::QuietNan();
    if (id >= 0 && id < head.vocab) {
      const Weight* weight[1] = {static_cast<const Weight*>(head.weight) + id * head.stride};
      const Hidden* hidden[1] = {static_cast<const Hidden*>(argument.hidden) +
                                 i / argument.of_row * argument.hidden_stride};
      float sum[1][1][kLanesOfThread] = {};
      if (argument.is_aligned) {
        AddLanes<kWeight, kHidden, true, 8>(weight, hidden, head.dim, sum);
      } else {
        AddLanes<kWeight, kHidden, false, 1>(weight, hidden, head.dim, sum);
      }
      logit = SumOfLanes(sum[0][0]);
      if (head.bias != nullptr) logit += head.bias[id];
    }
    if (threadIdx.x % kWarpSize == 0) argument.logits[i] = logit;
  }
}

bool IsAligned(const void* data, int64_t stride, DType dtype) {
  return stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % (4 * SizeOf(dtype)) == 0;
}

template <template <DType, DType> class Kernel>
const void* ForDTypes(DType weight, DType hidden) {
  auto with_hidden = [&](auto of_weight) -> const void* {
    constexpr DType kWeight = decltype(of_weight)::value;
    switch (hidden) {
      case DType::kF32:
        return Kernel<kWeight, DType::kF32>::Function();
      case DType::kBf16:
        return Kernel<kWeight, DType::kBf16>::Function();
      default:
        return Kernel<kWeight, DType::kF16>::Function();
    }
  };
  switch (weight) {
    case DType::kF32:
      return with_hidden(std::integral_constant<DType, DType::kF32>{});
    case DType::kBf16:
      return with_hidden(std::integral_constant<DType, DType::kBf16>{});
    default:
      return with_hidden(std::integral_constant<DType, DType::kF16>{});
  }
}

template <DType kWeight, DType kHidden>
struct OneState {
  static const void* Function() {
    return reinterpret_cast<const void*>(ProjectKernel<kWeight, kHidden, true>);
  }
};
template <DType kWeight, DType kHidden>
struct ManyStates {
  static const void* Function() {
    return reinterpret_cast<const void*>(ProjectKernel<kWeight, kHidden, false>);
  }
};
template <DType kWeight, DType kHidden>
struct SomeTokens {
  static const void* Function() {
    return reinterpret_cast<const void*>(ProjectTokensKernel<kWeight, kHidden>);
  }
};

// Blocks for as many warps, and no more than the device has room for at once.
unsigned Blocks(int64_t warps, int of_processor) {
  const int64_t blocks = (warps + kThreads / kWarpSize - 1) / (kThreads / kWarpSize);
  return static_cast<unsigned>(
      std::clamp<int64_t>(blocks, 1, CurrentDeviceShape().processors * of_processor));
}

void Launch(const void* function, unsigned blocks, void* argument, void* stream) {
  void* arguments[] = {argument};
  cudaLaunchKernel(function, dim3(blocks), dim3(kThreads), arguments, 0,
                   static_cast<cudaStream_t>(stream));
  RequireLaunched("project");
}

}  // namespace

void RequireLaunched(const char* what) {
  const cudaError_t result = cudaGetLastError();
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::kUnavailable, what, cudaGetErrorString(result),
              "a device of compute capability 8.0 or higher that works");
}

WeightsArgument ArgumentOf(const HeadWeights& head) {
  return {head.weight.data, head.weight.stride, head.bias.size == 0 ? nullptr : head.bias.data,
          static_cast<int32_t>(head.weight.rows), static_cast<int32_t>(head.weight.columns)};
}

void CheckHead(const HeadWeights& head, const MatrixView& hidden) {
  CheckMatrix("head.weight", "dim", head.weight, kMaxDim, DeviceKind::kCuda);
  CheckInRange("head.weight.rows", head.weight.rows, 1, kMaxVocab);
  if (head.bias.size != 0) CheckOneARow("head.bias", head.bias, head.weight.rows);
  CheckMatrix("hidden", "dim", hidden, kMaxDim, DeviceKind::kCuda);
  CheckInRange("hidden.dim", hidden.columns, head.weight.columns, head.weight.columns);
}

void Project(const HeadWeights& head, const MatrixView& hidden, const MutableLogitsView& logits,
             void* stream) {
  CheckHead(head, hidden);
  CheckRows(logits);
  CheckDType("logits", logits.dtype, DType::kF32);
  CheckInRange("logits.vocab", logits.vocab, head.weight.rows, head.weight.rows);
  CheckInRange("logits.rows", logits.rows, hidden.rows, hidden.rows);
  if (hidden.rows == 0) return;
  ProjectArgument argument = {ArgumentOf(head),
                              hidden.data,
                              hidden.stride,
                              nullptr,
                              nullptr,
                              static_cast<int32_t>(hidden.rows),
                              static_cast<float*>(logits.data),
                              logits.stride,
                              nullptr,
                              IsAligned(head.weight.data, head.weight.stride, head.weight.dtype) &&
                                  IsAligned(hidden.data, hidden.stride, hidden.dtype)};
  const bool is_one = hidden.rows == 1;
  const void* function = is_one ? ForDTypes<OneState>(head.weight.dtype, hidden.dtype)
                                : ForDTypes<ManyStates>(head.weight.dtype, hidden.dtype);
  const int64_t warps = (head.weight.rows + kRowsOfWarp - 1) / kRowsOfWarp;
  Launch(function, Blocks(warps, is_one ? 6 : 2), &argument, stream);
}

void ProjectTokens(const HeadWeights& head, const MatrixView& hidden,
                   DeviceArray<const int32_t> ids, DeviceArray<float> logits, void* stream) {
  CheckHead(head, hidden);
  if (hidden.rows == 0) return;
  const int64_t of_row = ids.size / hidden.rows;
  CheckSize("ids", static_cast<size_t>(ids.size), of_row * hidden.rows);
  CheckSize("logits", static_cast<size_t>(logits.size), ids.size);
  if (ids.size == 0) return;
  TokensArgument argument = {ArgumentOf(head),
                             hidden.data,
                             hidden.stride,
                             ids.data,
                             ids.size,
                             of_row,
                             logits.data,
                             IsAligned(head.weight.data, head.weight.stride, head.weight.dtype) &&
                                 IsAligned(hidden.data, hidden.stride, hidden.dtype)};
  Launch(ForDTypes<SomeTokens>(head.weight.dtype, hidden.dtype), Blocks(ids.size, 8), &argument,
         stream);
}

void ProjectListed(const WeightsArgument& head, DType dtype, const ListedRows& rows, void* stream) {
  ProjectArgument argument = {
      head,
      rows.hidden,
      head.dim,
      rows.rows,
      rows.count,
      0,
      rows.logits,
      rows.stride,
      rows.bitmask,
      IsAligned(head.weight, head.stride, dtype) && IsAligned(rows.hidden, head.dim, DType::kF32)};
  const int64_t warps = (int64_t{head.vocab} + kRowsOfWarp - 1) / kRowsOfWarp;
  LaunchDependent(ForDTypes<ManyStates>(dtype, DType::kF32),
                  {.blocks = Blocks(warps, 2), .threads = kThreads}, &argument, stream);
}

}  // namespace sluice::cuda
