// A row in vectors of 16 bytes, for kernels that stream it. Every warp of a team has a stretch of
// the row to itself, so the first vectors of all warps are a sample of the whole row: vocabularies
// are not shuffled. Elements after the end of the row are masked.
//
// A patched row (cuda/row_patch.cuh) streams with its mask only; the caller applies its patches
// afterwards with ForEachPatch.
#pragma once

#include "cuda/ptx.cuh"
#include "cuda/row_patch.cuh"
#include "cuda/row_slice.cuh"

namespace sluice::cuda {

// What a thread has in flight, and what a row is sampled by. (Eight, half of them loaded while the
// threshold of a list is guessed, took 5 % longer up to 128 rows and gained 1 % beyond.)
inline constexpr int kVectorsAtOnce = 4;
using FirstVectors = uint4[kVectorsAtOnce];

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

  __device__ float Largest() const {
    float largest = x[0];
#pragma unroll
    for (int e = 1; e < kElements; ++e) largest = fmaxf(largest, x[e]);
    return largest;
  }

  float x[kElements];
};

// Eight tokens of a thread, as many as share a block of noise: two vectors of four, or one.
template <DType kDType>
struct Eight {
  static constexpr int kTokens = 8;
  static constexpr int kInARow = Vector<kDType>::kElements;
  static constexpr int kVectors = kTokens / kInARow;

  __device__ float Largest() const {
    float largest = x[0];
#pragma unroll
    for (int e = 1; e < kTokens; ++e) largest = fmaxf(largest, x[e]);
    return largest;
  }

  // The ids of eight tokens by that of their first, which is a multiple of kInARow.
  static __device__ int IdOfFirst(int first, int vector) {
    return first + vector * kWarpSize * kInARow;
  }
  static __device__ int Id(int first, int e) { return IdOfFirst(first, e / kInARow) + e % kInARow; }

  float x[kTokens];
  int first;
};

// The mask of a warp's stretch, as it goes up.
template <DType kDType>
class MaskWalk {
 public:
  static constexpr int kInARow = Eight<kDType>::kInARow;
  static constexpr int kTokensOfVector = kInARow * kWarpSize;  // of a warp
  static constexpr int kWordsOfVector = kInARow;

  __device__ MaskWalk(const PatchOfRow& patch, int first_id)
      : patch_(patch), next_words_(patch.HasMask() ? WordOfLane(first_id) : 0) {}

  // The next kVectorsAtOnce vectors; their loads are in flight. first_id: of the warp.
  __device__ void BeginStep(int first_id) {
    if (!patch_.HasMask()) return;
    words_ = next_words_;
    next_words_ = WordOfLane(first_id + kVectorsAtOnce * kTokensOfVector);
  }

  // By all lanes. vector: of the step.
  __device__ void Apply(Eight<kDType>& eight, int vector) const {
    if (!patch_.HasMask()) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int j = 0; j < Eight<kDType>::kVectors; ++j) {
      const int word = (vector + j) * kWordsOfVector + lane * kInARow / 32;
      const uint32_t allowed = __shfl_sync(~0u, words_, word) >> (lane * kInARow % 32);
#pragma unroll
      for (int e = 0; e < kInARow; ++e) {
        float& x = eight.x[j * kInARow + e];
        x = allowed >> e & 1u ? x : -INFINITY;
      }
    }
  }

 private:
  __device__ uint32_t WordOfLane(int first_id) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    return lane < kVectorsAtOnce * kWordsOfVector ? patch_.MaskWord(first_id / 32 + lane) : 0;
  }

  const PatchOfRow& patch_;
  uint32_t words_ = 0;   // one a lane, for a step
  uint32_t next_words_;  // for the next one
};

// No mask.
struct NoWalk {
  __device__ NoWalk(const NoPatch&, int) {}
};

template <DType kDType, bool kPatched = false>
class VectorSlice {
 public:
  using Element = typename ElementOf<kDType>::Type;
  using Unpacked = Vector<kDType>;
  static constexpr int kElements = Unpacked::kElements;
  static constexpr int kTogether = Eight<kDType>::kVectors;
  static constexpr int kTokensOfEights = Eight<kDType>::kTokens * kWarpSize;  // of a warp

  __device__ VectorSlice(const Team& team, const RowsArgument& rows, int index)
      : row_(static_cast<const Element*>(RowOf(rows, index))),
        vocab_(rows.vocab),
        patch_(rows, index) {
    const void* row = row_;
    whole_ = reinterpret_cast<uintptr_t>(row) % 16 == 0 ? vocab_ / kElements : 0;
    const int eights = (vocab_ + kTokensOfEights - 1) / kTokensOfEights;
    const int warps = team.threads() / kWarpSize;
    warps_ = warps * team.blocks();
    const int warp = team.rank() * warps + team.thread() / kWarpSize;
    pieces_ = eights * kTogether;
    // Warps are a power of two; no row has so many pieces that 32 bits do not hold the product.
    const int shift = 31 - __clz(warps_);
    first_ = ((eights * warp) >> shift) * kTogether;
    end_ = ((eights * (warp + 1)) >> shift) * kTogether;
    lane_ = team.lane();
  }

  // About the share of the row that the first vectors are; 1 if they are all of it.
  __device__ float SampledShare() const {
    const int sampled = kVectorsAtOnce * warps_;
    return sampled < pieces_ ? __fdividef(static_cast<float>(sampled), static_cast<float>(pieces_))
                             : 1.0f;
  }

  __device__ void LoadFirst(FirstVectors& loaded) const {
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) loaded[i] = Load(first_ + i);
  }

  // Notes in shared memory, a bit a token, which tokens of this block have patches, if there is
  // room; else they are searched for, which takes a dozen loads one after the other.
  __device__ void MarkPatches(const Team& team, void* room, size_t bytes) {
    if constexpr (kPatched) {
      const int warps = team.threads() / kWarpSize;
      const int eights = pieces_ / kTogether;
      const int shift = 31 - __clz(warps_);
      marks_.first = ((eights * team.rank() * warps) >> shift) * kTokensOfEights;
      marks_.end = ((eights * (team.rank() + 1) * warps) >> shift) * kTokensOfEights;
      marks_.words = nullptr;
      const int words = (marks_.end - marks_.first) / 32;
      const int count = Patches();
      if (count == 0 || words * sizeof(uint32_t) > bytes) return;
      marks_.words = static_cast<uint32_t*>(room);
      for (int i = team.thread(); i < words; i += team.threads()) marks_.words[i] = 0;
      team.SyncBlock();
#pragma unroll 1
      for (int i = team.thread(); i < count; i += team.threads()) {
        const int at = patch_.IdAt(i) - marks_.first;
        if (at >= 0 && at < words * 32) atomicOr(marks_.words + at / 32, 1u << (at % 32));
      }
      team.SyncBlock();
    }
  }
  // The memory is needed for something else.
  __device__ void DropMarks() {
    if constexpr (kPatched) marks_.words = nullptr;
  }

  // Makes of the first vectors a sample of the row as it is masked, without the tokens that have
  // patches.
  __device__ void PatchFirst(FirstVectors& loaded) const {
    if constexpr (kPatched) {
      if (patch_.IsEmpty()) return;
      const int first_id = first_ * kTokensOfVector;
      const int end_id = min(end_ * kTokensOfVector, vocab_);
      MaskWalk<kDType> mask(patch_, first_id);
      mask.BeginStep(first_id);
      PatchCursor cursor{0, kNoPatch, 0.0f};
      if (marks_.words == nullptr && Patches() > 0) {
        AwaitKernelBefore();  // cursors have values
        cursor = patch_.Seek(first_id, end_id);
      }
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce; i += kTogether) {
        Eight<kDType> eight = Unpack(loaded + i, first_ + i);
        mask.Apply(eight, i);
        if (marks_.words != nullptr && first_ + i < end_) {
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            const int at = Eight<kDType>::IdOfFirst(eight.first, j) - marks_.first;
            const uint32_t marks = marks_.words[at / 32] >> (at % 32);
#pragma unroll
            for (int e = 0; e < kElements; ++e) {
              float& x = eight.x[j * kElements + e];
              x = marks >> e & 1u ? -INFINITY : x;
            }
          }
        }
#pragma unroll 1
        while (cursor.id < first_id + (i + kTogether) * kTokensOfVector) {
#pragma unroll
          for (int e = 0; e < Eight<kDType>::kTokens; ++e) {
            if (cursor.id == Eight<kDType>::Id(eight.first, e)) eight.x[e] = -INFINITY;
          }
          cursor = patch_.Next(cursor, end_id);
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) loaded[i + j] = Packed(eight.x + j * kElements);
      }
    }
  }

  // And back.
  __device__ void UnpatchFirst(FirstVectors& loaded) const {
    if constexpr (kPatched) {
      if (patch_.Count() > 0) LoadFirst(loaded);
    }
  }

  __device__ int vocab() const { return vocab_; }
  // Whether an eight is of this warp's stretch: Stream visits some after it, masked.
  __device__ bool Has(int first_id) const { return first_id < end_ * kWarpSize * kElements; }
  // As it is streamed.
  __device__ float ValueOf(int id) const {
    const float logit = Widen<kDType>(row_[id]);
    if constexpr (kPatched) {
      return patch_.Masked(id, logit);
    } else {
      return logit;
    }
  }

  // Whether a token's value is not the one that is streamed.
  __device__ bool IsPatched(int id) const {
    if constexpr (kPatched) {
      if (marks_.words != nullptr && id >= marks_.first && id < marks_.end) {
        const int at = id - marks_.first;
        return (marks_.words[at / 32] >> (at % 32) & 1u) != 0;
      }
      return patch_.Count() > 0 && patch_.PatchOf(id) >= 0;
    } else {
      return false;
    }
  }
  __device__ int Patches() const {
    if constexpr (kPatched) {
      return min(patch_.Count(), vocab_);
    } else {
      return 0;
    }
  }
  // visit(streamed value, value, id) for the patches that are this thread's: each is one thread's.
  // Waits for the kernel before, which may be the one that fills in the values.
  template <typename Visit>
  __device__ void ForEachPatch(const Team& team, Visit visit) const {
    if constexpr (kPatched) {
      AwaitKernelBefore();
      const int count = Patches();
      const int step = team.threads() * team.blocks();
#pragma unroll 1
      for (int i = team.rank() * team.threads() + team.thread(); i < count; i += step) {
        const int32_t id = patch_.IdAt(i);
        const float x = patch_.ValueAt(i);
        if (id >= 0 && id < vocab_) visit(ValueOf(id), x, id);
      }
    }
  }

  // visit(Eight) for the tokens of this thread, masked but not patched, the lanes of a warp
  // together.
  template <typename Visit>
  __device__ void Stream(FirstVectors& loaded, Visit visit) const {
    Walk walk(patch_, first_ * kTokensOfVector);
    int piece = first_;
    const int last_whole = min(end_, whole_ / kWarpSize) - 2 * kVectorsAtOnce;
    const uint4* next =
        reinterpret_cast<const uint4*>(row_) + (piece + kVectorsAtOnce) * kWarpSize + lane_;
#pragma unroll 1
    for (; piece <= last_whole; piece += kVectorsAtOnce) {
      Step(loaded, piece, walk, visit, [&](int i) { return LoadOnce(next + i * kWarpSize); });
      next += kVectorsAtOnce * kWarpSize;
    }
#pragma unroll 1
    for (; piece < end_; piece += kVectorsAtOnce) {
      Step(loaded, piece, walk, visit, [&](int i) { return Load(piece + kVectorsAtOnce + i); });
    }
  }

  // Writes -inf to what `keeps(x, id)` is false for. row: the one that it was made from.
  template <typename Keeps>
  __device__ void MaskUnless(void* row, Keeps keeps) const {
    constexpr int kBits = 8 * sizeof(Element);
    constexpr uint32_t kOnes = kBits == 32 ? ~0u : 0xffffu;
    const uint4 masked = Unpacked::OfMasked();
    FirstVectors loaded;
    LoadFirst(loaded);
#pragma unroll 1
    for (int first = first_; first < end_; first += kVectorsAtOnce) {
#pragma unroll
      for (int i = 0; i < kVectorsAtOnce; ++i) {
        const int piece = first + i;
        uint32_t words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
        const Unpacked vector(loaded[i]);
        loaded[i] = Load(piece + kVectorsAtOnce);
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          if (keeps(vector.x[e], FirstId(piece) + e)) continue;
          const uint32_t here = kOnes << (kBits * e % 32);
          words[kBits * e / 32] = (words[kBits * e / 32] & ~here) | (masked.x & here);
        }
        if (piece < end_) Store(row, piece, {words[0], words[1], words[2], words[3]});
      }
    }
  }

  // Writes -inf to everything that is this thread's. row: the one that it was made from.
  __device__ void MaskAll(void* row) const {
    for (int piece = first_; piece < end_; ++piece) Store(row, piece, Unpacked::OfMasked());
  }

 private:
  using Walk = std::conditional_t<kPatched, MaskWalk<kDType>, NoWalk>;
  static constexpr int kTokensOfVector = kElements * kWarpSize;  // of a warp

  // Two vectors of four, or one, of a piece and the next one.
  __device__ Eight<kDType> Unpack(const uint4* loaded, int piece) const {
    Eight<kDType> eight;
    eight.first = FirstId(piece);
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const Unpacked vector(loaded[j]);
#pragma unroll
      for (int e = 0; e < kElements; ++e) eight.x[j * kElements + e] = vector.x[e];
    }
    return eight;
  }
  static __device__ uint4 Packed(const float* x) {
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kDType == DType::kF32) {
        words[w] = __float_as_uint(x[w]);
      } else {
        words[w] = static_cast<uint32_t>(Narrow<kDType>(x[2 * w])) |
                   static_cast<uint32_t>(Narrow<kDType>(x[2 * w + 1])) << 16;
      }
    }
    return {words[0], words[1], words[2], words[3]};
  }

  // load(i): the vector that takes the place of loaded[i] when that has been visited. (Loaded
  // before the visit, it would be moved there, and a move waits for the load.)
  template <typename Visit, typename LoadNext>
  __device__ void Step(FirstVectors& loaded, int piece, Walk& walk, Visit& visit,
                       LoadNext load) const {
    if constexpr (kPatched) walk.BeginStep(piece * kTokensOfVector);
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; i += kTogether) {
      Eight<kDType> eight = Unpack(loaded + i, piece + i);
      if constexpr (kPatched) walk.Apply(eight, i);
      visit(eight);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) loaded[i + j] = load(i + j);
    }
  }

  __device__ int FirstId(int piece) const { return (piece * kWarpSize + lane_) * kElements; }

  // This thread's vector of a piece; masked where there is none.
  __device__ uint4 Load(int piece) const {
    if (piece >= end_) return Unpacked::OfMasked();
    const int vector = piece * kWarpSize + lane_;
    if (vector < whole_) return LoadOnce(reinterpret_cast<const uint4*>(row_) + vector);
    uint4 raw = Unpacked::OfMasked();
    Element* elements = reinterpret_cast<Element*>(&raw);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int id = vector * kElements + e;
      if (id < vocab_) elements[e] = row_[id];
    }
    return raw;
  }

  __device__ void Store(void* row, int piece, uint4 raw) const {
    const int vector = piece * kWarpSize + lane_;
    if (vector < whole_) {
      static_cast<uint4*>(row)[vector] = raw;
      return;
    }
    const Element* elements = reinterpret_cast<const Element*>(&raw);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int id = vector * kElements + e;
      if (id < vocab_) static_cast<Element*>(row)[id] = elements[e];
    }
  }

  const Element* row_;
  int vocab_;
  int whole_;   // vectors that are loaded at once: all full ones of an aligned row
  int pieces_;  // what a warp loads at once
  int warps_;   // of the team
  int first_;   // pieces of this warp
  int end_;
  int lane_;
  [[no_unique_address]] PatchIf<kPatched> patch_;

  struct Marks {
    uint32_t* words = nullptr;
    int first;
    int end;
  };
  struct NoMarks {};
  [[no_unique_address]] std::conditional_t<kPatched, Marks, NoMarks> marks_;
};

}  // namespace sluice::cuda
