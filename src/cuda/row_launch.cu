#include <optional>
#include <string>

#include "cuda/cuda_check.h"
#include "cuda/row_launch.h"

namespace sluice::cuda {
namespace {

int CurrentDevice() {
  int device = 0;
  RequireCuda(cudaGetDevice(&device), "device");
  return device;
}

int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  RequireCuda(cudaDeviceGetAttribute(&value, attribute, device), "device");
  return value;
}

constexpr int64_t kRowsOfEightBlocks = 30;  // for the definition

// A shape is taken where the blocks of all rows fit the processors at one a processor. Clusters do
// not cross the groups of processors (of 16 or 18 on an H200), hence those that stay idle: 15 of 8
// blocks fit there, 32 of 4, 66 of 2. `sluice_cuda_bench --teams all` prints the time of every
// shape.
struct Policy {
  TeamShape shape;
  int64_t idle;
};
constexpr Policy kPolicies[] = {{{8, 512}, 12}, {{4, 512}, 4}, {{2, 512}, 0}, {{1, 1024}, 0}};

thread_local std::optional<TeamShape> fixed_shape;

}  // namespace

RowsArgument ArgumentOf(const LogitsView& logits, const RowParams& params) {
  return {.data = const_cast<void*>(logits.data),
          .stride_bytes = logits.stride * static_cast<int64_t>(SizeOf(logits.dtype)),
          .rows = static_cast<int32_t>(logits.rows),
          .vocab = static_cast<int32_t>(logits.vocab),
          .params = params.params.data,
          .keys = params.keys.size == 0 ? nullptr : params.keys.data,
          .has_params_per_row = params.params.size > 1,
          .has_keys_per_row = params.keys.size > 1,
          .limits = params.limits,
          .patches = params.patches.size == 0 ? nullptr : params.patches.data};
}

void CheckRows(const LogitsView& logits, std::string_view name) {
  CheckLogits(name, logits, DeviceKind::kCuda);
  // A grid has that many blocks, and WideShapeForRows two for a row.
  CheckInRange(MemberName(name, "rows"), logits.rows, 0, INT32_MAX / 2);
  const int device = CurrentDevice();
  if (logits.device.index != device) {
    throw Error(ErrorCode::kInvalidType, std::string(MemberName(name, "device.index")),
                ToText(int64_t{logits.device.index}),
                "the current device, " + ToText(int64_t{device}));
  }
}

void CheckRowParams(const RowParams& params, int64_t rows, bool needs_keys) {
  auto check = [rows](std::string_view name, int64_t size, const void* data) {
    CheckPerRow(name, static_cast<size_t>(size), rows);
    if (rows > 0 && data == nullptr) {
      ThrowInvalid(MemberName(name, "data"), "null", "a pointer to device memory");
    }
  };
  check("params", params.params.size, params.params.data);
  if (needs_keys || params.keys.size != 0) check("keys", params.keys.size, params.keys.data);
  CheckOneARow("patches", params.patches, rows, true);
}

void CheckHasNoPatches(const RowParams& params) { CheckSize("patches", params.patches.size, 0); }

void LaunchOverRows(const RowKernel& kernel, int64_t rows, void* argument, void* stream) {
  if (rows == 0) return;
  if (kernel.shared_bytes > 48 * 1024) {
    RequireCuda(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(kernel.shared_bytes)),
                "kernel");
  }
  // Code that was compiled for a device before Hopper, and translated for this one, has no
  // clusters and no early start.
  cudaFuncAttributes attributes;
  RequireCuda(cudaFuncGetAttributes(&attributes, kernel.function), "kernel");
  const bool is_for_clusters = attributes.ptxVersion >= 90;
  const int blocks = is_for_clusters ? kernel.shape.blocks : 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(rows * blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.shape.threads));
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attrs[2];
  config.attrs = attrs;
  if (blocks > 1) {
    cudaLaunchAttribute& cluster = attrs[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(blocks), 1, 1};
  }
  if (kernel.starts_early && is_for_clusters) {  // older code does not wait
    cudaLaunchAttribute& early = attrs[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  RequireCuda(cudaLaunchKernelExC(&config, kernel.function, &argument), "kernel");
}

DeviceShape CurrentDeviceShape() {
  const int device = CurrentDevice();
  return {Attribute(cudaDevAttrMultiProcessorCount, device),
          Attribute(cudaDevAttrComputeCapabilityMajor, device) >= 9,
          static_cast<size_t>(Attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device))};
}

TeamShape ShapeForRows(int64_t rows) {
  if (fixed_shape) return *fixed_shape;
  const auto [processors, has_clusters, shared_bytes] = CurrentDeviceShape();
  for (const Policy& policy : kPolicies) {
    const bool has_blocks = has_clusters || policy.shape.blocks == 1;
    if (has_blocks && rows * policy.shape.blocks <= processors - policy.idle) return policy.shape;
  }
  return {1, 512};
}

FixedShape::FixedShape(TeamShape shape) { fixed_shape = shape; }
FixedShape::~FixedShape() { fixed_shape.reset(); }

TeamShape WideShapeForRows(int64_t rows) {
  if (!CurrentDeviceShape().has_clusters) return {1, 512};
  return {rows <= kRowsOfEightBlocks ? 8 : 2, 512};
}

}  // namespace sluice::cuda
