// The ways to select on a GPU, by name: Qrita and most of the variants that its paper compares it
// with. The paper's runs G and H, one pivot where truncation misses or is off, are not among them.
// All give the same Cut, bit for bit. kAuto is what to use; the others exist to compare with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

enum class SelectAlgorithm : uint8_t {
  kAuto,           // Select of cuda/rows.hpp
  kQuaternary,     // Qrita: truncate by sigma, search the outliers with three pivots a pass
  kBinary,         // with one pivot a pass
  kSortFinish,     // sort the outliers instead of searching them
  kSort,           // sort the whole row
  kNoTruncation,   // search the whole row
  kForceFallback,  // truncate, then search the whole row all the same
  kNoDup,          // do not look at ties while searching: narrow down to one value
  kOneTile,        // search the outliers with all threads that read the row
};

struct AlgorithmInfo {
  SelectAlgorithm algorithm;
  std::string_view name;
  std::string_view when_to_use;
  std::string_view limits;  // what makes it slow
  std::string_view source;  // the author of the paper
};

std::span<const AlgorithmInfo> SelectAlgorithms();

// Throws Error naming the known ones.
SelectAlgorithm SelectAlgorithmByName(std::string_view name);

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

struct SelectOptions {
  SelectAlgorithm algorithm = SelectAlgorithm::kAuto;
  // At least SelectWorkspaceBytes, aligned to 16.
  DeviceArray<std::byte> workspace = {};
  DeviceArray<TruncationTable> table = {};  // empty, or one
};

// At most 1 % of the logits or 256 KiB, whichever is more; but for kSort, which takes eight bytes
// an element and more.
size_t SelectWorkspaceBytes(const LogitsView& logits, SelectAlgorithm algorithm);

// Select of cuda/rows.hpp by an algorithm of the caller's choice.
void Select(const LogitsView& logits, const RowParams& params, const SelectOptions& options,
            DeviceArray<Cut> cuts, void* stream);

}  // namespace sluice::cuda
