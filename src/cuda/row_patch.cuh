// What the adjustments make of a row (RowPatch of cuda/rows.hpp), for its readers: a mask, which
// goes along with the logits, and patches, which are sorted. A reader that goes up a stretch of ids
// meets them in their order; one that streams the row adds them afterwards, because that takes a
// thread for each of them and not a warp.
#pragma once

#include <type_traits>

#include "cuda/rows_argument.cuh"

namespace sluice::cuda {

inline constexpr int32_t kNoPatch = INT32_MAX;

// The next patch of a warp's stretch.
struct PatchCursor {
  int32_t at;
  int32_t id;  // kNoPatch after the last one of the stretch
  float value;
};

// Whatever the arrays hold, nothing outside of them is read, and no token outside of the vocabulary
// is patched. What is seldom needed stays in memory: registers are what the readers have least of.
class PatchOfRow {
 public:
  __device__ PatchOfRow(const RowsArgument& rows, int row) : rows_(rows), row_(row) {
    mask_ = Patch().others_masked        ? Mask::kNone
            : Patch().allowed != nullptr ? Mask::kSome
                                         : Mask::kAll;
  }

  __device__ bool HasMask() const { return mask_ != Mask::kAll; }
  __device__ bool IsEmpty() const { return !HasMask() && Patch().count <= 0; }

  // A bit for each of 32 tokens: whether the logit counts.
  __device__ uint32_t MaskWord(int word) const {
    if (mask_ == Mask::kAll) return ~0u;
    return mask_ == Mask::kSome && word < (rows_.vocab + 31) / 32
               ? static_cast<uint32_t>(__ldg(Patch().allowed + word))
               : 0;
  }

  // The first patch from an id on, of those before another one. By all lanes of a warp: each round
  // leaves one part of 32.
  __device__ PatchCursor Seek(int first_id, int end_id) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int32_t* ids = Patch().ids;
    int low = 0, size = Patch().count;
#pragma unroll 1
    while (size > 0) {
      const int step = (size + kWarpSize - 1) / kWarpSize;
      const int probe = (lane + 1) * step - 1;
      const bool is_before = probe < size && __ldg(ids + low + probe) < first_id;
      const int before = __popc(__ballot_sync(~0u, is_before)) * step;
      low += before;
      size = min(step - 1, size - before);
    }
    return At(low, end_id);
  }
  __device__ PatchCursor Next(const PatchCursor& cursor, int end_id) const {
    return At(cursor.at + 1, end_id);
  }

  __device__ int Count() const { return max(Patch().count, 0); }
  __device__ int32_t IdAt(int patch) const { return __ldg(Patch().ids + patch); }
  // A plain load: the kernel before may fill in the values while this one runs.
  __device__ float ValueAt(int patch) const { return Patch().values[patch]; }

  // The patch of a token; negative: it has none. By one thread.
  __device__ int PatchOf(int id) const {
    const int32_t* ids = Patch().ids;
    const int count = Patch().count;
    int low = 0, size = count;
#pragma unroll 1
    while (size > 0) {
      const int half = size / 2;
      if (__ldg(ids + low + half) < id) {
        low += half + 1;
        size -= half + 1;
      } else {
        size = half;
      }
    }
    return low < count && __ldg(ids + low) == id ? low : -1;
  }
  // A token's logit after the mask.
  __device__ float Masked(int id, float logit) const {
    return MaskWord(id / 32) >> (id % 32) & 1u ? logit : -INFINITY;
  }
  // A token's logit after mask and patches.
  __device__ float ValueOf(int id, float logit) const {
    const int patch = PatchOf(id);
    return patch < 0 ? Masked(id, logit) : ValueAt(patch);
  }

  // The values of 32 neighbours, a lane each. word: of the mask.
  __device__ float Apply(float logit, int first_id, int end_id, uint32_t word,
                         PatchCursor& cursor) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    float x = word >> lane & 1u ? logit : -INFINITY;
#pragma unroll 1
    while (cursor.id < first_id + kWarpSize) {
      if (cursor.id == first_id + lane) x = cursor.value;
      cursor = Next(cursor, end_id);
    }
    return x;
  }

 private:
  enum class Mask : uint8_t { kAll, kSome, kNone };  // of the logits that count

  __device__ const RowPatch& Patch() const { return rows_.patches[row_]; }

  __device__ PatchCursor At(int at, int end_id) const {
    if (at >= Patch().count) return {at, kNoPatch, 0.0f};
    const int id = __ldg(Patch().ids + at);
    return {at, id < end_id ? id : kNoPatch, ValueAt(at)};
  }

  const RowsArgument& rows_;
  int row_;
  Mask mask_;
};

// A row as its logits are.
struct NoPatch {
  NoPatch() = default;
  __device__ NoPatch(const RowsArgument&, int) {}
};
template <bool kPatched>
using PatchIf = std::conditional_t<kPatched, PatchOfRow, NoPatch>;

}  // namespace sluice::cuda
