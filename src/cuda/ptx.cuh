// The instructions that CUDA C++ has no word for.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// 16 bytes without a second reader soon, past L1. A thread that writes them in the same kernel does
// so after the last such load of them.
__device__ __forceinline__ uint4 LoadOnce(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// As LoadOnce, for kernels that start before the one that writes the row has ended: .nc is for
// memory without a writer during the kernel.
__device__ __forceinline__ uint4 LoadFresh(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// 2^x within 2^-22 of it; never falls below 0, and NaN of NaN.
__device__ __forceinline__ float Exp2Approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Within a millionth of the root. Not negative.
__device__ __forceinline__ float SqrtApprox(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// NaN if one of them is.
__device__ __forceinline__ float LargerOrNan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// x, as a value opaque to the compiler: what a branch that is seldom taken computes from it is
// computed there, and not kept for it on the way.
__device__ __forceinline__ float Again(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
__device__ __forceinline__ uint32_t Again(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// For a kernel that starts early (row_launch.h): waits until the kernel before it in the stream has
// ended and its writes are known. Every thread calls it: a kernel that ends without would let the
// next one past that kernel.
__device__ __forceinline__ void AwaitKernelBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start, up to where it waits.
__device__ __forceinline__ void LetNextKernelStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A barrier of so many threads of a block, whole warps. Number 0 is __syncthreads, 1 CountThreads.
inline constexpr int kSortingBarrier = 1;
inline constexpr int kRankingBarrier = 2;
template <int kNumber = kSortingBarrier>
__device__ __forceinline__ void SyncThreads(int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(kNumber), "r"(threads) : "memory");
}

// A barrier too; returns for how many of the threads the predicate holds.
__device__ __forceinline__ int CountThreads(int threads, bool predicate) {
  int count;
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; barrier.cta.red.popc.u32 %0, 1, %1, p; }"
               : "=r"(count)
               : "r"(threads), "r"(static_cast<int>(predicate))
               : "memory");
  return count;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// At the barrier of the cluster, without the fence of all memory that cooperative groups put there
// (300 cycles).
__device__ __forceinline__ void ArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// A barrier in shared memory, visible to other blocks of the cluster after the next cluster
// barrier. A phase of it is over when `bytes` have come after the ExpectBytes of one thread; phases
// are 0 and 1 by turns.
__device__ __forceinline__ void StartBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
}
__device__ __forceinline__ void ExpectBytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void AwaitBarrier(uint64_t* barrier, int phase) {
  asm volatile(
      "{\n\t"
      ".reg .pred is_over;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n\t"
      "@!is_over bra again;\n\t"
      "}"
      :
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(phase)
      : "memory");
}

// 4 bytes to the shared memory of another block of the cluster, at the place where `mine` is in
// this one's; they count at its barrier on arrival. No fence is needed, and none of the 1000 cycles
// that one takes.
__device__ __forceinline__ void SendWord(int rank, uint32_t* mine, uint32_t value,
                                         uint64_t* barrier) {
  asm volatile(
      "{\n\t"
      ".reg .b32 place, there;\n\t"
      "mapa.shared::cluster.u32 place, %0, %1;\n\t"
      "mapa.shared::cluster.u32 there, %3, %1;\n\t"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [place], %2, [there];\n\t"
      "}"
      :
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(mine))), "r"(rank), "r"(value),
        "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
      : "memory");
}
// The place of a variable in the shared memory of another block of the cluster, or of this one.
__device__ __forceinline__ uint32_t PlaceIn(int rank, const void* mine) {
  uint32_t place;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(mine))), "r"(rank));
  return place;
}
// Sends 16 bytes there, which count at a barrier there.
__device__ __forceinline__ void SendThere(uint32_t place, int4 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
      :
      : "r"(place), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(barrier)
      : "memory");
}

// As above for 8 bytes, to elements of an array.
class LongsOf {
 public:
  __device__ __forceinline__ LongsOf(int rank, uint64_t* mine, uint64_t* barrier)
      : place_(PlaceIn(rank, mine)), barrier_(PlaceIn(rank, barrier)) {}
  __device__ __forceinline__ void Send(int at, uint64_t value) const {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                 :
                 : "r"(place_ + 8 * static_cast<uint32_t>(at)), "l"(value), "r"(barrier_)
                 : "memory");
  }

 private:
  uint32_t place_;
  uint32_t barrier_;
};
#endif

}  // namespace sluice::cuda
