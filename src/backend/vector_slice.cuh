// A row in vectors of 16 bytes, for kernels that stream it. Every warp of a team has a stretch of
// the row to itself, so the first vectors of all warps are a sample of the whole row: vocabularies
// are not shuffled.
#pragma once

#include "backend/ptx.cuh"
#include "backend/row_slice.cuh"
#include "backend/rows_argument.cuh"

namespace sluice::cuda {

// The elements of a vector, widened.
template <DType kDType>
struct Vector {
  using Element = typename ElementOf<kDType>::Type;
  static constexpr int kElements = 16 / sizeof(Element);

  static __device__ uint4 OfMasked() {
    const uint32_t word = kDType == DType::kF32    ? 0xff800000u
                          : kDType == DType::kBf16 ? 0xff80ff80u
                                                   : 0xfc00fc00u;
    return {word, word, word, word};
  }

  __device__ explicit Vector(const uint4& raw) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kDType == DType::kF32) {
        x[w] = __uint_as_float(words[w]);
      } else if constexpr (kDType == DType::kBf16) {
        x[2 * w] = __uint_as_float(words[w] << 16);
        x[2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
      } else {
        x[2 * w] = Widen<kDType>(static_cast<uint16_t>(words[w]));
        x[2 * w + 1] = Widen<kDType>(static_cast<uint16_t>(words[w] >> 16));
      }
    }
  }

  float x[kElements];
};

// What a thread has in flight, and what a row is sampled by.
template <DType kDType>
inline constexpr int kVectorsAtOnce = kDType == DType::kF32 ? 4 : 2;
template <DType kDType>
using FirstVectors = uint4[kVectorsAtOnce<kDType>];

template <DType kDType>
class VectorSlice {
 public:
  using Element = typename ElementOf<kDType>::Type;
  using Unpacked = Vector<kDType>;
  static constexpr int kElements = Unpacked::kElements;

  __device__ VectorSlice(const Team& team, const RowsArgument& rows)
      : row_(static_cast<const Element*>(RowOf(team, rows))) {
    const int vocab = rows.vocab;
    const void* row = row_;
    const uint32_t misaligned = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row)) % 16;
    head_ = min(vocab, static_cast<int>((16 - misaligned) % 16 / sizeof(Element)));
    vectors_ = (vocab - head_) / kElements;
    tail_ = vocab - head_ - vectors_ * kElements;
    const int pieces = (vectors_ + kWarpSize - 1) / kWarpSize;  // what a warp loads at once
    const int warps = team.threads() / kWarpSize;
    const int all_warps = warps * team.blocks();
    const int warp = team.rank() * warps + team.thread() / kWarpSize;
    first_ = static_cast<int>(int64_t{pieces} * warp / all_warps);
    end_ = static_cast<int>(int64_t{pieces} * (warp + 1) / all_warps);
    lane_ = team.thread() % kWarpSize;
    has_edges_ = warp == 0;
    pieces_a_block_ = pieces / team.blocks();
  }

  __device__ int pieces_a_block() const { return pieces_a_block_; }

  // This thread's vector of a piece; masked where there is none.
  __device__ uint4 Load(int piece) const {
    const int vector = piece * kWarpSize + lane_;
    return piece < end_ && vector < vectors_ ? LoadOnce(body() + vector) : Unpacked::OfMasked();
  }
  __device__ int FirstId(int piece) const {
    return head_ + (piece * kWarpSize + lane_) * kElements;
  }

  // The first vectors: a sample of the row, and what Stream begins with.
  template <int kAtOnce>
  __device__ void LoadFirst(uint4 (&loaded)[kAtOnce]) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) loaded[i] = Load(first_ + i);
  }

  // visit(vector, id of its first element) for the vectors of this thread, the lanes of a warp
  // together; masked vectors behind the end are among them.
  template <int kAtOnce, typename Visit>
  __device__ void Stream(uint4 (&loaded)[kAtOnce], Visit visit) const {
#pragma unroll 1
    for (int piece = first_; piece < end_; piece += kAtOnce) {
      uint4 next[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) next[i] = Load(piece + kAtOnce + i);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) visit(Unpacked(loaded[i]), FirstId(piece + i));
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) loaded[i] = next[i];
    }
  }

  // visit(x, id) for what lies before the first and behind the last vector.
  template <typename Visit>
  __device__ void ForEachAtEdges(Visit visit) const {
    if (!has_edges_) return;
    if (lane_ < head_) visit(Widen<kDType>(row_[lane_]), lane_);
    const int id = head_ + vectors_ * kElements + lane_;
    if (lane_ < tail_) visit(Widen<kDType>(row_[id]), id);
  }

  // Writes -inf to what `keeps(x, id)` is false for. row: the one that it was made from.
  template <typename Keeps>
  __device__ void MaskUnless(void* row, Keeps keeps) const {
    constexpr int kBits = 8 * sizeof(Element);
    const uint32_t ones = kBits == 32 ? ~0u : 0xffffu;
    Element* elements = static_cast<Element*>(row);
    uint4* vectors = reinterpret_cast<uint4*>(elements + head_);
    const uint4 masked = Unpacked::OfMasked();
    uint4 loaded[kVectorsAtOnce<kDType>];
    LoadFirst(loaded);
#pragma unroll 1
    for (int first = first_; first < end_; first += kVectorsAtOnce<kDType>) {
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce<kDType>; ++i) {
        const int piece = first + i;
        const int vector = piece * kWarpSize + lane_;
        uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
        const Unpacked unpacked(loaded[i]);
        loaded[i] = Load(piece + kVectorsAtOnce<kDType>);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          if (keeps(unpacked.x[e], FirstId(piece) + e)) continue;
          const uint32_t here = ones << (kBits * e % 32);
          words[kBits * e / 32] = (words[kBits * e / 32] & ~here) | (masked.x & here);
        }
        if (piece < end_ && vector < vectors_) {
          vectors[vector] = {words[0], words[1], words[2], words[3]};
        }
      }
    }
    ForEachAtEdges([&](float x, int id) {
      if (!keeps(x, id)) elements[id] = MaskedElement<kDType>();
    });
  }

  // Writes -inf to everything that is this thread's. row: the one that it was made from.
  __device__ void MaskAll(void* row) const {
    Element* elements = static_cast<Element*>(row);
    uint4* vectors = reinterpret_cast<uint4*>(elements + head_);
    for (int piece = first_; piece < end_; ++piece) {
      const int vector = piece * kWarpSize + lane_;
      if (vector < vectors_) vectors[vector] = Unpacked::OfMasked();
    }
    ForEachAtEdges([&](float, int id) { elements[id] = MaskedElement<kDType>(); });
  }

 private:
  __device__ const uint4* body() const { return reinterpret_cast<const uint4*>(row_ + head_); }

  const Element* row_;
  int head_;
  int vectors_;
  int tail_;
  int first_;  // pieces of this warp
  int end_;
  int lane_;
  int pieces_a_block_;
  bool has_edges_;
};

}  // namespace sluice::cuda
