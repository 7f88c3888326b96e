// The head in clusters on a GPU, by the rules of cluster_bound.h and cluster_certificate.h. A warp
// has a centroid, or a row of weights; a block the order of clusters, or what is open, of a state.
//
// Rounding: products of centroids are sums in fp64, in an order of their own, as cluster_bound.h
// allows; a bound is then rounded up to fp32. Masses are sums in fp64, too, in an order that
// depends on the number of threads alone, and the certificate covers what rounding makes of them.
#include <algorithm>
#include <cub/block/block_radix_sort.cuh>

#include "cuda/radix_select.cuh"
#include "cuda/sort_keys.cuh"
#include "cuda/token_list.cuh"
#include "head/certified/cuda/certified_kernels.h"
#include "head/cuda/dot_lanes.cuh"
#include "research/clusters/cluster_certify.cuh"

namespace sluice::research {

using namespace cuda;

namespace {

constexpr int kThreads = kClusterThreads;
constexpr int kWarpThreads = 128;      // of blocks with warps that work by themselves
constexpr int kBlocksOfProcessor = 8;  // of those
constexpr int kSortedNear = 8192;      // in shared memory; more are sorted where they lie
constexpr int kSortedAtOnce = 1024;    // tokens; of more the first ones are looked for

// The next kernel may start when all before this one are over: it reads what they wrote by loads
// for memory that no kernel writes.
__device__ void Begin() {
  AwaitKernelBefore();
  LetNextKernelStart();
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
  ClusterProgress progress = {};
  progress.norm = HiddenNormOf(squares);
  progress.budget = RowsOfNext(PaceOf(call, row), call.budget, call.head.vocab);
  if (all_finite == 0) {
    progress.is_done = true;
    progress.answer.path = ClusterPath::kDense;
    progress.answer.reason = ClusterReason::kHidden;
  }
  call.memory.progress[row] = progress;
}

// A warp has the clusters of one centroid.
__global__ void __launch_bounds__(kWarpThreads)
    BoundKernel(const __grid_constant__ ClusterArgument call) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  const HiddenNorm norm = call.memory.progress[row].norm;
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

// Rows that are open after a round, or more.
__device__ int64_t TargetOf(int round, double budget, int64_t vocab) {
  if (round == kRounds) return vocab;
  const double share = round == kExpandedRound ? 2.0 : 1.0 / (1 << (kBudgetRounds - round));
  const double rows = ceil(share * budget);
  if (rows >= static_cast<double>(vocab)) return vocab;
  return rows >= 1.0 ? static_cast<int64_t>(rows) : 1;
}

// keys[0, clusters): those of the clusters of a row, descending.
__device__ void SortClusters(const Team& team, const float* bounds, int clusters, uint64_t* keys) {
  constexpr int kOfThread = kSortedNear / kThreads;
  using Sort = cub::BlockRadixSort<uint32_t, kThreads, kOfThread, int32_t>;
  __shared__ typename Sort::TempStorage memory;
  if (clusters > kSortedNear) {
    for (int c = team.thread(); c < clusters; c += kThreads) keys[c] = KeyOfToken(bounds[c], c);
    return SortDescending(team, keys, clusters);
  }
  uint32_t of_bound[kOfThread];
  int32_t cluster[kOfThread];
#pragma unroll
  for (int n = 0; n < kOfThread; ++n) {
    cluster[n] = team.thread() * kOfThread + n;
    of_bound[n] = cluster[n] < clusters ? semantics::OrderKey(bounds[cluster[n]]) : 0;
  }
  Sort(memory).SortDescending(of_bound, cluster);  // equal ones stay in the order of their numbers
#pragma unroll
  for (int n = 0; n < kOfThread; ++n) {
    const int rank = team.thread() * kOfThread + n;
    if (rank >= clusters) break;
    keys[rank] = uint64_t{of_bound[n]} << 32 | ~static_cast<uint32_t>(cluster[n]);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    OrderKernel(const __grid_constant__ ClusterArgument call) {
  __shared__ TeamMemory shared;
  Begin();
  const Team team(shared);
  const int row = static_cast<int>(blockIdx.x);
  ClusterProgress& progress = call.memory.progress[row];
  if (progress.is_done) return;
  const int64_t at = int64_t{row} * call.clusters;
  uint64_t* const keys = call.memory.room + row * call.memory.room_stride;
  SortClusters(team, call.memory.bounds + at, call.clusters, keys);
  __syncthreads();
  int64_t target[kRounds + 1];
  for (int round = 1; round <= kRounds; ++round) {
    target[round] = TargetOf(round, progress.budget, call.head.vocab);
  }
  int32_t* const starts = call.memory.starts + row * (int64_t{call.clusters} + 1);
  // A thread has neighbouring ones.
  const int share = (call.clusters + kThreads - 1) / kThreads;
  const int begin = min(team.thread() * share, call.clusters);
  const int end = min(begin + share, call.clusters);
  auto size_of = [&](int i) { return call.shapes[IdOf(keys[i])].size; };
  int rows = 0;
#pragma unroll 8
  for (int i = begin; i < end; ++i) rows += size_of(i);
  int start = static_cast<int>(team.SumBefore(static_cast<uint64_t>(rows)));
  if (team.thread() == 0) starts[0] = 0;
#pragma unroll 8
  for (int i = begin; i < end; ++i) {
    const int behind = start + size_of(i);
    call.memory.list[at + i] = IdOf(keys[i]);
    call.memory.sorted[at + i] = ValueOf(keys[i]);
    starts[i + 1] = behind;
#pragma unroll
    for (int round = 1; round <= kRounds; ++round) {
      if (start < target[round] && target[round] <= behind) progress.open[round] = {i + 1, behind};
    }
    start = behind;
  }
}

struct RoundArgument {
  ClusterArgument call;
  int round;  // from 1 on
};

// A warp has a stretch of the rows that a round opens.
template <DType kWeight, bool kIsAligned>
__device__ void ComputeRows(const ClusterArgument& call, int row, int round) {
  using Weight = typename ElementOf<kWeight>::Type;
  const ClusterProgress& progress = call.memory.progress[row];
  const int64_t warps = int64_t{gridDim.x} * (kWarpThreads / kWarpSize);
  const int64_t warp = (int64_t{blockIdx.x} * kWarpThreads + threadIdx.x) / kWarpSize;
  const int before = progress.open[round - 1].rows;
  const int64_t rows = progress.open[round].rows - before;
  const int begin = before + static_cast<int>(warp * rows / warps);
  const int end = before + static_cast<int>((warp + 1) * rows / warps);
  if (begin == end) return;
  const int32_t* const list = call.memory.list + int64_t{row} * call.clusters;
  const int32_t* const starts = call.memory.starts + row * (int64_t{call.clusters} + 1);
  int first = 0;  // the last open cluster that starts at the first row or before
  for (int last = progress.open[round].clusters - 1; first < last;) {
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
  atomicMax(&call.memory.progress[row].most, most);
  if (has_broken != 0) atomicOr(&call.memory.progress[row].has_broken, 1u);
}

template <DType kWeight>
__global__ void __launch_bounds__(kWarpThreads)
    ComputeKernel(const __grid_constant__ RoundArgument argument) {
  Begin();
  const ClusterArgument& call = argument.call;
  const int row = static_cast<int>(blockIdx.y);
  if (call.memory.progress[row].is_done) return;
  if (call.is_aligned) {
    ComputeRows<kWeight, true>(call, row, argument.round);
  } else {
    ComputeRows<kWeight, false>(call, row, argument.round);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    CertifyKernel(const __grid_constant__ RoundArgument argument) {
  __shared__ TeamMemory memory;
  Begin();
  ClusterCertification certification(argument.call, argument.round, memory,
                                     static_cast<int>(blockIdx.x));
  __syncthreads();  // the first thread writes what all have read
  if (!certification.IsDone()) certification.Certify();
}

struct AnswerMemory {
  TeamMemory team;
  uint32_t count;
  FindMemory find;
};

// The first of the open rows in the total order, all of which are above what is closed.
__device__ void WriteFirst(const ClusterArgument& call, AnswerMemory& memory, uint64_t* near,
                           int row) {
  const Team team(memory.team);
  const ClusterProgress& progress = call.memory.progress[row];
  const int rows = progress.answer.rows_opened;
  const int count = progress.answer.count;
  const int64_t at = int64_t{row} * call.head.vocab;
  const int32_t* const ids = call.memory.ids + at;
  const float* const logits = call.memory.logits + at;
  // Tokens to sort, those of this key and above.
  int size = progress.above;
  uint64_t from = (uint64_t{semantics::OrderKey(progress.most_closed)} + 1) << 32;
  if (size > kSortedAtOnce && count < size) {
    size = count;
    const Found found =
        Find<Amount::kCount>(team, memory.find, static_cast<uint64_t>(count), [&](auto add) {
          for (int i = team.thread(); i < rows; i += kThreads) {
            if (logits[i] > progress.most_closed) add(semantics::OrderKey(logits[i]), 1u, 0);
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
      size <= kSortedNear ? near : call.memory.room + row * call.memory.room_stride;
  if (team.thread() == 0) memory.count = 0;
  __syncthreads();
#pragma unroll 4
  for (int i = team.thread(); i < rows; i += kThreads) {
    const uint64_t key = KeyOfToken(logits[i], ids[i]);
    if (key >= from) tokens[atomicAdd(&memory.count, 1u)] = key;
  }
  __syncthreads();
  SortDescending(team, tokens, size);
  for (int i = team.thread(); i < count; i += kThreads) {
    const int32_t id = IdOf(tokens[i]);
    call.ids[row * call.width + i] = id;
    // As it was computed: an order key has no sign of a zero.
    call.logits[row * call.width + i] = call.memory.logit_of[at + id];
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    AnswerKernel(const __grid_constant__ ClusterArgument call) {
  extern __shared__ __align__(16) unsigned char near[];
  __shared__ AnswerMemory memory;
  Begin();
  const int row = static_cast<int>(blockIdx.x);
  const ClusterRow answer = call.memory.progress[row].answer;
  if (call.question.certificate == ClusterCertificate::kSoftmax) {
    const int64_t at = int64_t{row} * call.head.vocab;
    for (int i = static_cast<int>(threadIdx.x); i < answer.count; i += kThreads) {
      call.ids[row * call.width + i] = call.memory.ids[at + i];
      call.logits[row * call.width + i] = call.memory.logits[at + i];
    }
  } else if (answer.count > 0) {
    WriteFirst(call, memory, reinterpret_cast<uint64_t*>(near), row);
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
  auto launch = [&](const void* kernel, LaunchShape shape, void* of_kernel) {
    LaunchDependent(kernel, shape, of_kernel, stream);
  };
  const LaunchShape of_rows = {.blocks = rows, .threads = kThreads};
  LaunchShape of_sorted = of_rows;
  of_sorted.shared_bytes = kSortedNear * sizeof(uint64_t);
  auto of_warps = [&](int64_t warps) {
    return LaunchShape{
        .blocks = BlocksOfRow(warps, argument.rows), .blocks_y = rows, .threads = kWarpThreads};
  };
  const void* const compute =
      ForDType<const RoundArgument>(argument.dtype, ComputeKernel<DType::kF32>,
                                    ComputeKernel<DType::kBf16>, ComputeKernel<DType::kF16>);
  launch(reinterpret_cast<const void*>(PrepareKernel), {.blocks = rows, .threads = kWarpThreads},
         &argument);
  launch(reinterpret_cast<const void*>(BoundKernel), of_warps(argument.clusters), &argument);
  launch(reinterpret_cast<const void*>(OrderKernel), of_rows, &argument);
  RoundArgument round = {argument, 1};
  for (; round.round <= kRounds; ++round.round) {
    launch(compute, of_warps(argument.head.vocab), &round);
    launch(reinterpret_cast<const void*>(CertifyKernel), of_rows, &round);
  }
  launch(reinterpret_cast<const void*>(AnswerKernel), of_sorted, &argument);
}

}  // namespace sluice::research
