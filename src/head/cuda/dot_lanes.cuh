// The dot products of semantics/dot.h by warps: a thread has four neighbouring ones of the 128
// lanes, so a warp reads 128 neighbouring elements at once, and the halving tree is three
// exchanges of halves, two of which hand a sum on for another.
#pragma once

#include "cuda/row_slice.cuh"
#include "semantics/dot.h"

namespace sluice::cuda {

inline constexpr int kLanesOfThread = semantics::kDotLanes / kWarpSize;
static_assert(kLanesOfThread == 4);

// Four elements as they lie in memory.
template <DType kDType>
struct FourRaw {
  using Type = uint2;
};
template <>
struct FourRaw<DType::kF32> {
  using Type = float4;
};

// kIsAligned: rows start at multiples of four elements.
template <DType kDType, bool kIsAligned>
__device__ typename FourRaw<kDType>::Type LoadFour(const typename ElementOf<kDType>::Type* at) {
  using Raw = typename FourRaw<kDType>::Type;
  if constexpr (kIsAligned) {
    return __ldg(reinterpret_cast<const Raw*>(at));
  } else if constexpr (kDType == DType::kF32) {
    return {__ldg(at), __ldg(at + 1), __ldg(at + 2), __ldg(at + 3)};
  } else {
    return {__ldg(at) | static_cast<uint32_t>(__ldg(at + 1)) << 16,
            __ldg(at + 2) | static_cast<uint32_t>(__ldg(at + 3)) << 16};
  }
}

template <DType kDType>
__device__ float ElementOfFour(const typename FourRaw<kDType>::Type& raw, int e) {
  if constexpr (kDType == DType::kF32) {
    return e == 0 ? raw.x : e == 1 ? raw.y : e == 2 ? raw.z : raw.w;
  } else {
    const uint32_t two = e < 2 ? raw.x : raw.y;
    return Widen<kDType>(static_cast<uint16_t>(e % 2 == 0 ? two & 0xffffu : two >> 16));
  }
}

// The lanes' sums of kWeights rows of weights times kStates hidden states, which all threads of a
// warp hold; a warp calls it together. kAtOnce: loads of a row in flight.
template <DType kWeight, DType kHidden, bool kIsAligned, int kAtOnce, int kWeights, int kStates>
__device__ void AddLanes(const typename ElementOf<kWeight>::Type* const (&weights)[kWeights],
                         const typename ElementOf<kHidden>::Type* const (&states)[kStates], int dim,
                         float (&sum)[kStates][kWeights][kLanesOfThread]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize * kLanesOfThread;
  constexpr int kStep = kAtOnce * semantics::kDotLanes;
  const int whole = dim / semantics::kDotLanes * semantics::kDotLanes;
  auto add = [&](int w, int s, int e, float weight, float state) {
    sum[s][w][e] = __fmaf_rn(weight, state, sum[s][w][e]);
  };
  auto add_block = [&](int first, auto count_of) {
    constexpr int kCount = decltype(count_of)::value;
    typename FourRaw<kWeight>::Type weight[kCount][kWeights];
    typename FourRaw<kHidden>::Type state[kCount][kStates];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int i = first + n * semantics::kDotLanes + lane;
#pragma unroll
      for (int w = 0; w < kWeights; ++w) {
        weight[n][w] = LoadFour<kWeight, kIsAligned>(weights[w] + i);
      }
#pragma unroll
      for (int s = 0; s < kStates; ++s) {
        state[n][s] = LoadFour<kHidden, kIsAligned>(states[s] + i);
      }
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int e = 0; e < kLanesOfThread; ++e) {
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
#pragma unroll
          for (int w = 0; w < kWeights; ++w) {
            add(w, s, e, ElementOfFour<kWeight>(weight[n][w], e),
                ElementOfFour<kHidden>(state[n][s], e));
          }
        }
      }
    }
  };
  int first = 0;
#pragma unroll 1
  for (; first + kStep <= whole; first += kStep) {
    add_block(first, std::integral_constant<int, kAtOnce>{});
  }
#pragma unroll 1
  for (; first < whole; first += semantics::kDotLanes) {
    add_block(first, std::integral_constant<int, 1>{});
  }
  if (whole == dim) return;
  // Lanes past the end of the rows are not touched: to add a zero would turn -0 into 0.
#pragma unroll
  for (int e = 0; e < kLanesOfThread; ++e) {
    const int i = whole + lane + e;
    if (i >= dim) continue;
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
#pragma unroll
      for (int w = 0; w < kWeights; ++w) {
        add(w, s, e, Widen<kWeight>(__ldg(weights[w] + i)), Widen<kHidden>(__ldg(states[s] + i)));
      }
    }
  }
}

// The sums of one row and one hidden state in fp32, which lies in shared memory; short rows and the
// ends of rows are loaded at once as well.
template <DType kWeight, bool kIsAligned, int kAtOnce>
__device__ void AddLanesNear(const typename ElementOf<kWeight>::Type* weights, const float* state,
                             int dim, float (&sum)[kLanesOfThread]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize * kLanesOfThread;
  const int whole = dim / semantics::kDotLanes * semantics::kDotLanes;
  // The first `steps` of kCount steps.
  auto add_block = [&](int first, int steps, auto count_of) {
    constexpr int kCount = decltype(count_of)::value;
    typename FourRaw<kWeight>::Type weight[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (n >= steps) break;
      weight[n] = LoadFour<kWeight, kIsAligned>(weights + first + n * semantics::kDotLanes + lane);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      if (n >= steps) break;
      const float4 four =
          *reinterpret_cast<const float4*>(state + first + n * semantics::kDotLanes + lane);
      const float state_of[kLanesOfThread] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < kLanesOfThread; ++e) {
        sum[e] = __fmaf_rn(ElementOfFour<kWeight>(weight[n], e), state_of[e], sum[e]);
      }
    }
  };
  constexpr int kStep = kAtOnce * semantics::kDotLanes;
  constexpr int kAtOnceOfRest = kAtOnce < 8 ? kAtOnce : 8;
  int first = 0;
#pragma unroll 1
  for (; first + kStep <= whole; first += kStep) {
    add_block(first, kAtOnce, std::integral_constant<int, kAtOnce>{});
  }
#pragma unroll 1
  for (; first < whole; first += kAtOnceOfRest * semantics::kDotLanes) {
    add_block(first, (whole - first) / semantics::kDotLanes,
              std::integral_constant<int, kAtOnceOfRest>{});
  }
  // As above.
#pragma unroll
  for (int e = 0; e < kLanesOfThread; ++e) {
    const int i = whole + lane + e;
    if (i < dim) sum[e] = __fmaf_rn(Widen<kWeight>(__ldg(weights + i)), state[i], sum[e]);
  }
}

// A thread without the bit goes on with x, its partner with y, each with the sum of both threads.
template <int kBit>
__device__ float Halve(float x, float y) {
  const bool has_bit = (threadIdx.x & kBit) != 0;
  const float kept = has_bit ? y : x;
  return kept + __shfl_xor_sync(~0u, has_bit ? x : y, kBit);
}

// Steps 64 and 32 of the tree: the sums of the remaining four lanes become one sum a thread.
__device__ inline float HalveTwice(const float (&lanes)[kLanesOfThread]) {
  return Halve<8>(Halve<16>(lanes[0], lanes[2]), Halve<16>(lanes[1], lanes[3]));
}

// Steps 2 and 1, when the steps between have been made.
__device__ inline float LastHalves(float sum) {
  sum += __shfl_xor_sync(~0u, sum, 16);
  return sum + __shfl_xor_sync(~0u, sum, 8);
}

// The dot product of one row, in all threads.
__device__ inline float SumOfLanes(const float (&lanes)[kLanesOfThread]) {
  float sum = HalveTwice(lanes);
  for (const int step : {4, 2, 1}) sum += __shfl_xor_sync(~0u, sum, step);
  return LastHalves(sum);
}

// Those of four rows: a thread has that of row RowOfFour().
__device__ inline int RowOfFour() {
  const int lane = static_cast<int>(threadIdx.x);
  return (lane & 2) + (lane >> 2 & 1);
}
__device__ inline float SumOfFourRows(const float (&rows)[4][kLanesOfThread]) {
  const float first = Halve<4>(HalveTwice(rows[0]), HalveTwice(rows[1]));
  const float second = Halve<4>(HalveTwice(rows[2]), HalveTwice(rows[3]));
  const float sum = Halve<2>(first, second);
  return LastHalves(sum + __shfl_xor_sync(~0u, sum, 1));
}

}  // namespace sluice::cuda
