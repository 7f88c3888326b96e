// Kernels over rows, from the host's side: checks of what was passed, and the launch.
#pragma once

#include "sluice/cuda/rows.hpp"
#include "support/check.h"

namespace sluice::cuda {

// Rows and their parameters as a kernel takes them, by value.
struct RowsArgument {
  void* data;  // written by those that mask
  int64_t stride_bytes;
  int32_t rows;
  int32_t vocab;
  const SelectParams* params;  // null: those of a Mask, which has none
  const NoiseKey* keys;        // null: NoiseKey{} for all
  bool has_params_per_row;
  bool has_keys_per_row;
  Limits limits;
  const RowPatch* patches;  // null: rows are as their logits are; else one a row
  SelectParams no_params = {};
  NoiseKey no_key = {};
};

RowsArgument ArgumentOf(const LogitsView& logits, const RowParams& params);

// Each throws Error. Rows lie on the current device.
void CheckRows(const LogitsView& logits, std::string_view name = "logits");
void CheckRowParams(const RowParams& params, int64_t rows, bool needs_keys);
// For calls that have no way to patch a row.
void CheckHasNoPatches(const RowParams& params);

// One element a row, or none where it may be empty.
template <typename T>
void CheckOneARow(std::string_view name, const DeviceArray<T>& array, int64_t rows,
                  bool may_be_empty = false) {
  if (may_be_empty && array.size == 0) return;
  CheckSize(name, static_cast<size_t>(array.size), rows);
  if (rows > 0 && array.data == nullptr) {
    ThrowInvalid(MemberName(name, "data"), "null", "a pointer to device memory");
  }
}

// The team of a row: 1, 2, 4 or 8 blocks of 512 or 1024 threads.
struct TeamShape {
  int blocks;
  int threads;  // of a block

  friend bool operator==(const TeamShape&, const TeamShape&) = default;
};

// The resources of a block on every device of compute capability 8.0 or higher.
inline constexpr size_t kMostSharedBytes = 99 * 1024;

// A kernel with one argument, a struct, and a team for each row.
struct RowKernel {
  const void* function;
  TeamShape shape;
  size_t shared_bytes;  // dynamic
  // Whether it may start while the kernel before it runs: it waits for that one by itself
  // (AwaitKernelBefore).
  bool starts_early = false;
};

// Nothing is launched for no rows. Throws Error when the device does not take the kernel.
void LaunchOverRows(const RowKernel& kernel, int64_t rows, void* argument, void* stream);

// The inputs of the choice of a shape.
struct DeviceShape {
  int64_t processors;
  bool has_clusters;
  size_t most_shared_bytes;  // of a block
};
DeviceShape CurrentDeviceShape();

// So that few rows use the whole device, and many keep it busy: kernels take the teams of their
// rows from here.
TeamShape ShapeForRows(int64_t rows);
// Overrides ShapeForRows with `shape` on this thread during its lifetime, for benchmarks.
class FixedShape {
 public:
  explicit FixedShape(TeamShape shape);
  ~FixedShape();
  FixedShape(const FixedShape&) = delete;
  FixedShape& operator=(const FixedShape&) = delete;
};
// For kernels that go by the definition, which reads rows often.
TeamShape WideShapeForRows(int64_t rows);
inline constexpr int kMostThreads = 1024;

template <typename Argument>
const void* ForDType(DType dtype, void (*f32)(Argument), void (*bf16)(Argument),
                     void (*f16)(Argument)) {
  return reinterpret_cast<const void*>(dtype == DType::kF32    ? f32
                                       : dtype == DType::kBf16 ? bf16
                                                               : f16);
}

}  // namespace sluice::cuda
