// What the adjustments make of a row (RowPatch of cuda.hpp), for those who read it. A warp that
// goes up a stretch of ids meets the patches in their order: a cursor is enough, of any number of
// patches in any vocabulary, and a part without a patch costs a comparison.
#pragma once

#include <type_traits>

#include "backend/rows_argument.cuh"

namespace sluice::cuda {

inline constexpr int32_t kNoPatch = INT32_MAX;

// The next patch of a warp's stretch.
struct PatchCursor {
  int32_t at;
  int32_t id;  // kNoPatch behind the last one of the stretch
  float value;
};

// Whatever the arrays hold, nothing outside of them is read, and no token outside of the vocabulary
// is patched.
class PatchOfRow {
 public:
  __device__ PatchOfRow(const RowsArgument& rows, int row) {
    const RowPatch& patch = rows.patches[row];
    ids_ = patch.ids;
    values_ = patch.values;
    count_ = patch.count;
    allowed_ = patch.others_masked ? nullptr : patch.allowed;
    words_ = (rows.vocab + 31) / 32;
    has_mask_ = patch.others_masked || patch.allowed != nullptr;
  }

  __device__ bool HasMask() const { return has_mask_; }
  __device__ bool IsEmpty() const { return count_ <= 0 && !has_mask_; }

  // A bit for each of 32 tokens: whether the logit counts.
  __device__ uint32_t MaskWord(int word) const {
    if (!has_mask_) return ~0u;
    return allowed_ != nullptr && word < words_ ? static_cast<uint32_t>(__ldg(allowed_ + word)) : 0;
  }

  // The first patch from an id on, of those before another one. By all lanes of a warp: each round
  // leaves one part of 32.
  __device__ PatchCursor Seek(int first_id, int end_id) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    int low = 0, size = count_;
#pragma unroll 1
    while (size > 0) {
      const int step = (size + kWarpSize - 1) / kWarpSize;
      const int probe = (lane + 1) * step - 1;
      const bool is_before = probe < size && __ldg(ids_ + low + probe) < first_id;
      const int before = __popc(__ballot_sync(~0u, is_before)) * step;
      low += before;
      size = min(step - 1, size - before);
    }
    return At(low, end_id);
  }
  __device__ PatchCursor Next(const PatchCursor& cursor, int end_id) const {
    return At(cursor.at + 1, end_id);
  }

  // What a token's logit becomes. By one thread.
  __device__ float ValueOf(int id, float logit) const {
    int low = 0, size = count_;
#pragma unroll 1
    while (size > 0) {
      const int half = size / 2;
      if (__ldg(ids_ + low + half) < id) {
        low += half + 1;
        size -= half + 1;
      } else {
        size = half;
      }
    }
    if (low < count_ && __ldg(ids_ + low) == id) return __ldg(values_ + low);
    return MaskWord(id / 32) >> (id % 32) & 1u ? logit : -INFINITY;
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
  __device__ PatchCursor At(int at, int end_id) const {
    if (at >= count_) return {at, kNoPatch, 0.0f};
    const int id = __ldg(ids_ + at);
    return {at, id < end_id ? id : kNoPatch, __ldg(values_ + at)};
  }

  const int32_t* ids_;
  const float* values_;
  const int32_t* allowed_;  // null: all or none
  int32_t count_;
  int32_t words_;
  bool has_mask_;
};

// A row as its logits are.
struct NoPatch {
  NoPatch() = default;
  __device__ NoPatch(const RowsArgument&, int) {}
};
template <bool kPatched>
using PatchIf = std::conditional_t<kPatched, PatchOfRow, NoPatch>;

}  // namespace sluice::cuda
