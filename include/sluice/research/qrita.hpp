// Qrita on a GPU and most of the variants that its paper compares it with, by name. The paper's
// runs G and H, one pivot where truncation misses or is off, are not among them. All give the Cut
// of cuda::Select, bit for bit, and exist to compare with it. docs/research/qrita.md says what each
// is worth. Link Sluice::research_cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/cuda/rows.hpp"

namespace sluice::research {

enum class QritaVariant : uint8_t {
  kAuto,           // cuda::Select, to compare with
  kQuaternary,     // Qrita: truncate by sigma, search the outliers with three pivots a pass
  kBinary,         // with one pivot a pass
  kSortFinish,     // sort the outliers instead of searching them
  kSort,           // sort the whole row
  kNoTruncation,   // search the whole row
  kForceFallback,  // truncate, then search the whole row all the same
  kNoDup,          // do not look at ties while searching: narrow down to one value
  kOneTile,        // search the outliers with all threads that read the row
};

struct QritaEntry {
  QritaVariant variant;
  std::string_view name;
  std::string_view when_to_use;
  std::string_view limits;  // what makes it slow
  std::string_view source;  // the author of the paper
};

std::span<const QritaEntry> QritaVariants();

// Throws Error naming the known ones.
QritaVariant QritaVariantByName(std::string_view name);

// What truncation has learned of a model's rows: where the nucleus ends, in standard deviations
// above the mean of the row, by p and by temperature. It lies in device memory, begins as zeros,
// and is written by every call that it is passed to. It changes the time, never the answer,
// whatever it holds.
struct TruncationTable {
  static constexpr int kShares = 16;  // by the logarithm of 1 - p
  static constexpr int kTemperatures = 4;

  float sigma[kTemperatures][kShares] = {};  // 0: nothing is known
  uint64_t hits = 0;                         // rows of any parameters that truncation decided
  uint64_t fallbacks = 0;                    // rows that it was tried on and did not decide
};

struct QritaOptions {
  QritaVariant variant = QritaVariant::kAuto;
  // At least QritaWorkspaceBytes, aligned to 16.
  cuda::DeviceArray<std::byte> workspace = {};
  cuda::DeviceArray<TruncationTable> table = {};  // empty, or one
};

// At most 1 % of the logits or 256 KiB, whichever is more; but for kSort, which takes eight bytes
// an element and more.
size_t QritaWorkspaceBytes(const LogitsView& logits, QritaVariant variant);

// Select of cuda/rows.hpp by a variant.
void SelectByQrita(const LogitsView& logits, const cuda::RowParams& params,
                   const QritaOptions& options, cuda::DeviceArray<Cut> cuts, void* stream);

}  // namespace sluice::research
