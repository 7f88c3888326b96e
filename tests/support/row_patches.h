// Patches of rows, here and in device memory, and the rows that they make.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/device.h"
#include "tests/support/random.h"

namespace sluice::test {

struct HostPatch {
  std::vector<int32_t> ids;
  std::vector<float> values;
  bool others_masked = false;
  std::vector<int32_t> allowed;  // empty: all

  bool Allows(int64_t id) const {
    if (others_masked) return false;
    return allowed.empty() ||
           (static_cast<uint32_t>(allowed[static_cast<size_t>(id / 32)]) >> (id % 32) & 1u) != 0;
  }
};

// The definition.
inline std::vector<float> Patched(std::vector<float> row, const HostPatch& patch) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (!patch.Allows(static_cast<int64_t>(i))) row[i] = -std::numeric_limits<float>::infinity();
  }
  for (size_t i = 0; i < patch.ids.size(); ++i) {
    row[static_cast<size_t>(patch.ids[i])] = patch.values[i];
  }
  return row;
}

// What a kind of patch does to a row.
struct PatchKind {
  int64_t count = 0;      // ids; the vocabulary has no more
  double allowed = -1.0;  // the share that is allowed; negative: no mask
  bool others_masked = false;
  bool is_at_the_ends = false;  // the first and the last id
  bool takes_the_top = false;   // the ids are those of the largest values
};

inline constexpr PatchKind kPatchKinds[] = {
    {},
    {.count = 1},
    {.count = 5},
    {.count = 33},
    {.count = 1000},
    {.count = 20000},
    {.count = INT32_MAX},
    {.count = 2, .is_at_the_ends = true},
    {.count = 1, .takes_the_top = true},
    {.count = 300, .takes_the_top = true},
    {.allowed = 0.0},
    {.allowed = 0.01},
    {.allowed = 0.5},
    {.allowed = 1.0},
    {.count = 100, .allowed = 0.0},
    {.count = 1000, .allowed = 0.5},
    {.count = 40, .allowed = 0.01, .takes_the_top = true},
    {.count = 0, .others_masked = true},
    {.count = 1, .others_masked = true},
    {.count = 5, .allowed = 0.5, .others_masked = true},
    {.count = 1000, .others_masked = true},
};

// Ids of a kind, and values near those that they replace; one of `odd` now and then.
inline HostPatch MakePatch(const PatchKind& kind, const std::vector<float>& row,
                           const std::vector<float>& odd, Random& random) {
  const int64_t vocab = static_cast<int64_t>(row.size());
  HostPatch patch;
  patch.others_masked = kind.others_masked;
  if (kind.allowed >= 0.0) {
    patch.allowed.resize(static_cast<size_t>((vocab + 31) / 32));
    for (int32_t& word : patch.allowed) {
      uint32_t bits = 0;
      for (int b = 0; b < 32; ++b) bits |= random.Coin(kind.allowed) ? 1u << b : 0u;
      word = static_cast<int32_t>(bits);
    }
  }
  const auto count = static_cast<size_t>(std::min(kind.count, vocab));
  std::vector<int32_t> ids(static_cast<size_t>(vocab));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  if (kind.is_at_the_ends) {
    ids = {0, static_cast<int32_t>(vocab - 1)};
  } else if (kind.takes_the_top) {
    std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
                      [&](int32_t a, int32_t b) {
                        const float x = row[static_cast<size_t>(a)];
                        const float y = row[static_cast<size_t>(b)];
                        return x == x && (y != y || x > y);
                      });
  } else {
    for (size_t i = 0; i < count; ++i) {
      std::swap(ids[i],
                ids[i + static_cast<size_t>(random.Below(vocab - static_cast<int64_t>(i)))]);
    }
  }
  ids.resize(std::min(count, ids.size()));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  patch.ids = ids;
  for (const int32_t id : ids) {
    const float x = row[static_cast<size_t>(id)];
    const float value = x > 0 ? x / 1.3f : x * 1.3f - 0.25f;
    patch.values.push_back(!odd.empty() && random.Coin(0.02) ? random.Pick(odd)
                           : random.Coin(0.1)                ? value + 3.7f
                                                             : value);
  }
  return patch;
}

class PatchesOnDevice {
 public:
  explicit PatchesOnDevice(const std::vector<HostPatch>& patches) {
    std::vector<cuda::RowPatch> there;
    for (const HostPatch& patch : patches) {
      ids_.push_back(std::make_unique<OnDevice<int32_t>>(patch.ids));
      values_.push_back(std::make_unique<OnDevice<float>>(patch.values));
      allowed_.push_back(std::make_unique<OnDevice<int32_t>>(patch.allowed));
      there.push_back({ids_.back()->data(), values_.back()->data(),
                       static_cast<int32_t>(patch.ids.size()), patch.others_masked,
                       patch.allowed.empty() ? nullptr : allowed_.back()->data()});
    }
    patches_ = std::make_unique<OnDevice<cuda::RowPatch>>(there);
  }

  cuda::DeviceArray<const cuda::RowPatch> array() const { return *patches_; }

 private:
  std::vector<std::unique_ptr<OnDevice<int32_t>>> ids_;
  std::vector<std::unique_ptr<OnDevice<float>>> values_;
  std::vector<std::unique_ptr<OnDevice<int32_t>>> allowed_;
  std::unique_ptr<OnDevice<cuda::RowPatch>> patches_;
};

}  // namespace sluice::test
