// Selection and draws on rows in device memory: the answers of select.hpp and draw.hpp, bit for
// bit. Link Sluice::cuda.
//
// A call checks its arguments, enqueues its kernels on the stream and returns: it takes no memory,
// waits for nothing, and can be captured in a CUDA graph. Parameters and results lie in device
// memory, so a captured graph sees what they hold when it is replayed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "sluice/cut.hpp"
#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice::cuda {

// An array in device memory that the caller owns.
template <typename T>
struct DeviceArray {
  T* data = nullptr;
  int64_t size = 0;

  constexpr DeviceArray() = default;
  constexpr DeviceArray(T* first, int64_t count) : data(first), size(count) {}
  // One to write to serves to read from.
  template <typename U>
    requires std::is_same_v<T, const U>
  constexpr DeviceArray(const DeviceArray<U>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), size(other.size) {}
};

// The adjustments of a row while it is read: the tokens of `ids` have the values of `values`, all
// others those of the logits where `allowed` has their bit, or -inf where it has not, or everywhere
// when `others_masked`. Nothing is written back. All arrays lie in device memory.
//
// Values are fp32 whatever the logits are, and may be anything: NaN and +inf give the row's status.
// The logit of a token that is patched or not allowed is never looked at.
struct RowPatch {
  const int32_t* ids = nullptr;  // ascending, none twice, all of the vocabulary
  const float* values = nullptr;
  int32_t count = 0;
  bool others_masked = false;
  const int32_t* allowed = nullptr;  // ceil(vocab / 32) words, a bit a token; null allows all
};

struct RowParams {
  DeviceArray<const SelectParams> params = {};  // one for all rows or one a row
  DeviceArray<const NoiseKey> keys = {};        // likewise; XTC and draws need it
  Limits limits = {};
  DeviceArray<const RowPatch> patches = {};  // empty, or one a row
};

// cuts: one a row. masses: empty, or one a row. Without keys, XTC's coins are those of a
// NoiseKey{}.
void Select(const LogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
            DeviceArray<CutMass> masses, void* stream);

// Writes -inf to the tokens that the row's Cut drops and leaves every other bit alone. Rows with a
// status are left alone.
void Mask(const MutableLogitsView& logits, DeviceArray<const Cut> cuts, void* stream);

// Select and Mask in one call. cuts: one a row.
void SelectAndMask(const MutableLogitsView& logits, const RowParams& params, DeviceArray<Cut> cuts,
                   void* stream);

// Sets id, status and cut of each result from the given Cuts, the rest to what it is by default.
void Draw(const LogitsView& logits, const RowParams& params, DrawMethod method,
          DeviceArray<const Cut> cuts, DeviceArray<TokenResult> results, void* stream);

// Select and Draw in one call.
void Sample(const LogitsView& logits, const RowParams& params, DrawMethod method,
            DeviceArray<TokenResult> results, void* stream);

// How a row was decided: what was guessed of it was certified, or the definition was followed,
// which takes many times as long.
enum class RowPath : uint8_t { kCertified, kDefinition };

// The ids and statuses of Sample alone: the fastest way to a token, because no Cut has to be
// computed. statuses: empty, or one a row. paths: empty, or one a row, for measurements.
void SampleIds(const LogitsView& logits, const RowParams& params, DrawMethod method,
               DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream,
               DeviceArray<RowPath> paths = {});

}  // namespace sluice::cuda
