// The head in clusters on a GPU: the rules of cluster_bound.h and cluster_certificate.h. A block
// has a hidden state's clusters and open rows to look at, a warp a centroid, or a row of weights.
//
// Rounding: products of centroids are sums in fp64, in an order of their own, as cluster_bound.h
// allows; a bound is then rounded up to fp32. Masses are sums in fp64, too, in an order that
// depends on the number of threads alone, and of what rounding makes of them the certificate knows.
#include <algorithm>

#include "backend/find.cuh"
#include "backend/sort_keys.cuh"
#include "backend/token_list.cuh"
#include "head/cluster_step.cuh"
#include "head/device_call.h"
#include "head/dot_lanes.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kClusterThreads;
constexpr int kWarpThreads = 128;      // of blocks whose warps work by themselves
constexpr int kBlocksOfProcessor = 8;  // of those
constexpr int kSortedNear = 4096;  // tokens; of more the memory of the device is the place to sort

// The next kernel may start when all before this one are over: it reads what they wrote by loads
// for memory that nobody writes.
__device__ void Begin() {
  AwaitKernelBefore();
  LetNextKernelStart();
}

__device__ ClusterPace PaceOf(const ClusterArgument& call, int row) {
  const ClusterPace pace = call.paces == nullptr ? ClusterPace{} : call.paces[row];
  return pace.rows > 0.0 ? pace : StartOf(call.budget, call.head.vocab);
}

__global__ void __launch_bounds__(kWarpThreads)
    PrepareKernel(const __grid_constant__ ClusterArgument call) {
  __shared__ TeamMemory shared;
  Begin();
  const Team team(shared);
  const int row = static_cast<int>(blockIdx.x);
  float* const state = call.memory.states + row * call.memory.state_stride;
  double squares = 0.0;
  bool is_finite = true;
  for (int j = team.thread(); j < call.head.dim; j += team.threads()) {
    const float h = semantics::Load(call.hidden, call.hidden_dtype, row * call.hidden_stride + j);
    state[j] = h;
    squares += static_cast<double>(h) * static_cast<double>(h);
    is_finite = is_finite && fabsf(h) < INFINITY;
  }
  squares = team.ReduceBlock(squares, Plus{});
  const int all_finite = __syncthreads_and(is_finite ? 1 : 0);
  if (team.thread() != 0) return;
  ClusterCourse course = {};
  course.norm = HiddenNormOf(squares);
  course.budget = RowsOfNext(PaceOf(call, row), call.budget, call.head.vocab);
  course.open_from = ~uint64_t{0};
  if (all_finite == 0) {
    course.is_done = true;
    course.answer.path = ClusterPath::kDense;
    course.answer.reason = ClusterReason::kHidden;
  }
  call.memory.courses[row] = course;
}

// A warp has the clusters of one centroid.
__global__ void __launch_bounds__(kWarpThreads)
    BoundKernel(const __grid_constant__ ClusterArgument call) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  const HiddenNorm norm = call.memory.courses[row].norm;
  const float* const state = call.memory.states + row * call.memory.state_stride;
  float* const bounds = call.memory.bounds + int64_t{row} * call.clusters;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(gridDim.x) * (kWarpThreads / kWarpSize);
  int c = static_cast<int>(blockIdx.x * kWarpThreads + threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (; c < call.clusters; c += warps) {
    const int centroid = call.shapes[c].centroid;
    if (c > 0 && call.shapes[c - 1].centroid == centroid) continue;  // another warp has them
    const float* const mean = call.centroids + int64_t{centroid} * call.head.dim;
    double product = 0.0;
#pragma unroll 8
    for (int j = lane; j < call.head.dim; j += kWarpSize) {
      product = __fma_rn(static_cast<double>(mean[j]), static_cast<double>(state[j]), product);
    }
    product = Team::ReduceWarp(product, Plus{});
    for (int i = c + lane; i < call.clusters && call.shapes[i].centroid == centroid;
         i += kWarpSize) {
      bounds[i] = __double2float_ru(
          ClusterBound(call.shapes[i], product, norm, call.gamma, call.is_cone, call.folds_bias));
    }
  }
}

struct StepArgument {
  ClusterArgument call;
  int round;  // those that are over
};

__global__ void __launch_bounds__(kThreads, 1)
    StepKernel(const __grid_constant__ StepArgument argument) {
  __shared__ ClusterStepMemory memory;
  Begin();
  ClusterStep step(argument.call, argument.round, memory, static_cast<int>(blockIdx.x));
  __syncthreads();  // the first thread writes what all have read
  if (step.IsDone() || step.Answer() || argument.round == kRounds) return;
  step.Open();
}

// A warp has a stretch of the rows that a round opens.
template <DType kWeight, bool kIsAligned>
__device__ void ComputeRows(const ClusterArgument& call, int row) {
  using Weight = typename ElementOf<kWeight>::Type;
  const ClusterCourse& course = call.memory.courses[row];
  const int64_t warps = int64_t{gridDim.x} * (kWarpThreads / kWarpSize);
  const int64_t warp = (int64_t{blockIdx.x} * kWarpThreads + threadIdx.x) / kWarpSize;
  const int64_t rows = course.rows - course.rows_before;
  const int begin = course.rows_before + static_cast<int>(warp * rows / warps);
  const int end = course.rows_before + static_cast<int>((warp + 1) * rows / warps);
  if (begin == end) return;
  const int32_t* const list = call.memory.list + int64_t{row} * call.clusters;
  const int32_t* const starts = call.memory.starts + int64_t{row} * call.clusters;
  int first = 0;  // the last open cluster that starts at the first row or before
  for (int last = course.clusters - 1; first < last;) {
    const int middle = last - (last - first) / 2;
    if (starts[middle] <= begin) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  const int64_t at = int64_t{row} * call.head.vocab;
  const float* const states[1] = {call.memory.states + row * call.memory.state_stride};
  uint32_t most = 0, has_broken = 0;
  ClusterShape shape = call.shapes[list[first]];
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    while (i - starts[first] >= shape.size) shape = call.shapes[list[++first]];
    const int32_t id = call.tokens[shape.begin + (i - starts[first])];
    const Weight* const weights[1] = {static_cast<const Weight*>(call.head.weight) +
                                      id * call.head.stride};
    float sum[1][1][kLanesOfThread] = {};
    AddLanes<kWeight, DType::kF32, kIsAligned, kIsAligned ? 8 : 1>(weights, states, call.head.dim,
                                                                   sum);
    float logit = SumOfLanes(sum[0][0]);
    if (call.head.bias != nullptr) logit += call.head.bias[id];
    if (fabsf(logit) < INFINITY) {
      most = max(most, semantics::OrderKey(logit));
    } else {
      has_broken = 1;
    }
    if (threadIdx.x % kWarpSize != 0) continue;
    call.memory.ids[at + i] = id;
    call.memory.logits[at + i] = logit;
    call.memory.logit_of[at + id] = logit;
  }
  if (threadIdx.x % kWarpSize != 0) return;
  atomicMax(&call.memory.courses[row].most, most);
  if (has_broken != 0) atomicOr(&call.memory.courses[row].has_broken, 1u);
}

template <DType kWeight>
__global__ void __launch_bounds__(kWarpThreads)
    ComputeKernel(const __grid_constant__ ClusterArgument call) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  if (call.memory.courses[row].is_done) return;
  if (call.is_aligned) {
    ComputeRows<kWeight, true>(call, row);
  } else {
    ComputeRows<kWeight, false>(call, row);
  }
}

struct AnswerMemory {
  TeamMemory team;
  uint32_t count;
  union {
    FindMemory find;
    uint64_t tokens[kSortedNear];
  };
};

// The first `count` of the open rows in the total order.
__device__ void WriteFirst(const ClusterArgument& call, AnswerMemory& memory, int row, int rows,
                           int count) {
  const Team team(memory.team);
  const int64_t at = int64_t{row} * call.head.vocab;
  const int32_t* const ids = call.memory.ids + at;
  const float* const logits = call.memory.logits + at;
  uint64_t from = 0;
  if (count < rows) {
    const Found found =
        Find<Amount::kCount>(team, memory.find, static_cast<uint64_t>(count), [&](auto add) {
          for (int i = team.thread(); i < rows; i += kThreads) {
            add(semantics::OrderKey(logits[i]), 1u, 0);
          }
        });
    const uint64_t ties = static_cast<uint64_t>(count) - found.above;
    from = uint64_t{found.key} << 32;
    if (ties < found.count) {
      const Found tie = Find<Amount::kCount>(team, memory.find, ties, [&](auto add) {
        for (int i = team.thread(); i < rows; i += kThreads) {
          const uint32_t place = ~static_cast<uint32_t>(ids[i]);
          if (semantics::OrderKey(logits[i]) == found.key) add(place, 1u, 0);
        }
      });
      from |= tie.key;
    }
  }
  uint64_t* const tokens =
      count <= kSortedNear ? memory.tokens : call.memory.room + row * call.memory.room_stride;
  if (team.thread() == 0) memory.count = 0;
  __syncthreads();
  for (int i = team.thread(); i < rows; i += kThreads) {
    const uint64_t key = KeyOfToken(logits[i], ids[i]);
    if (key >= from) tokens[atomicAdd(&memory.count, 1u)] = key;
  }
  __syncthreads();
  SortDescending(team, tokens, count);
  for (int i = team.thread(); i < count; i += kThreads) {
    const int32_t id = IdOf(tokens[i]);
    call.ids[row * call.width + i] = id;
    // As it was computed: an order key has no sign of a zero.
    call.logits[row * call.width + i] = call.memory.logit_of[at + id];
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    AnswerKernel(const __grid_constant__ ClusterArgument call) {
  __shared__ AnswerMemory memory;
  Begin();
  const int row = static_cast<int>(blockIdx.x);
  const ClusterCourse& course = call.memory.courses[row];
  const ClusterRow answer = course.answer;
  if (call.question.certificate == ClusterCertificate::kSoftmax) {
    const int64_t at = int64_t{row} * call.head.vocab;
    for (int i = static_cast<int>(threadIdx.x); i < answer.count; i += kThreads) {
      call.ids[row * call.width + i] = call.memory.ids[at + i];
      call.logits[row * call.width + i] = call.memory.logits[at + i];
    }
  } else if (answer.count > 0) {
    WriteFirst(call, memory, row, course.rows, answer.count);
  }
  if (threadIdx.x != 0) return;
  call.answers[row] = answer;
  if (call.paces == nullptr || answer.reason == ClusterReason::kHidden) return;
  ClusterPace pace = PaceOf(call, row);
  Follow(pace, call.budget, call.head.vocab, answer.path == ClusterPath::kDense);
  call.paces[row] = pace;
}

// Blocks of a row for as many warps, when all rows have as many.
unsigned BlocksOfRow(int64_t warps, int rows) {
  constexpr int64_t kWarps = kWarpThreads / kWarpSize;
  const int64_t most = CurrentDeviceShape().processors * kBlocksOfProcessor;
  return static_cast<unsigned>(
      std::clamp<int64_t>((warps + kWarps - 1) / kWarps, 1, std::max<int64_t>(1, most / rows)));
}

}  // namespace

void SearchClusters(const ClusterCall& call, const ClusterQuestion& question,
                    const ClusterPlaces& places, void* stream) {
  ClusterArgument argument = ArgumentOf(call, question, places);
  if (argument.rows == 0) return;
  const auto rows = static_cast<unsigned>(argument.rows);
  auto launch = [&](const void* kernel, unsigned blocks, unsigned blocks_y, unsigned threads,
                    void* of_kernel) {
    LaunchBehind(kernel, {.blocks = blocks, .blocks_y = blocks_y, .threads = threads}, of_kernel,
                 stream);
  };
  const void* const compute =
      ForDType<const ClusterArgument>(argument.dtype, ComputeKernel<DType::kF32>,
                                      ComputeKernel<DType::kBf16>, ComputeKernel<DType::kF16>);
  launch(reinterpret_cast<const void*>(PrepareKernel), rows, 1, kWarpThreads, &argument);
  launch(reinterpret_cast<const void*>(BoundKernel), BlocksOfRow(argument.clusters, argument.rows),
         rows, kWarpThreads, &argument);
  StepArgument step = {argument, 0};
  for (;; ++step.round) {
    launch(reinterpret_cast<const void*>(StepKernel), rows, 1, kThreads, &step);
    if (step.round == kRounds) break;
    launch(compute, BlocksOfRow(argument.head.vocab, argument.rows), rows, kWarpThreads, &argument);
  }
  launch(reinterpret_cast<const void*>(AnswerKernel), rows, 1, kThreads, &argument);
}

}  // namespace sluice::cuda
