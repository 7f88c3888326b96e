#include "tests/sampler/device/fake_runtime.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace sluice::test {

FakeRuntime& FakeCuda() {
  static FakeRuntime runtime;
  return runtime;
}

namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t Answer() {
  FakeRuntime& fake = FakeCuda();
  if (++fake.calls != fake.failing) return cudaSuccess;
  last_error = cudaErrorUnknown;
  return last_error;
}

cudaError_t Launch() {
  const cudaError_t answer = Answer();
  if (answer == cudaSuccess) ++FakeCuda().launches;
  return answer;
}

// A handle, or memory.
template <typename Handle>
cudaError_t Give(Handle* handle, size_t bytes = 1) {
  const cudaError_t answer = Answer();
  if (answer != cudaSuccess) return answer;
  *handle = reinterpret_cast<Handle>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(reinterpret_cast<void*>(*handle), 0, bytes);
  ++FakeCuda().held;
  return cudaSuccess;
}
template <typename Handle>
cudaError_t TakeBack(Handle handle) {
  if (handle == nullptr) return cudaSuccess;
  std::free(reinterpret_cast<void*>(handle));
  --FakeCuda().held;
  return cudaSuccess;
}

}  // namespace
}  // namespace sluice::test

using sluice::test::Answer;
using sluice::test::FakeCuda;
using sluice::test::Give;
using sluice::test::last_error;
using sluice::test::Launch;
using sluice::test::TakeBack;

// What the linker calls in place of each function (--wrap).
extern "C" {

cudaError_t __wrap_cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t __wrap_cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return cudaSuccess;
}
cudaError_t __wrap_cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t __wrap_cudaDeviceSynchronize() {
  ++FakeCuda().device_waits;
  return Answer();
}

cudaError_t __wrap_cudaMalloc(void** data, size_t bytes) { return Give(data, bytes); }
cudaError_t __wrap_cudaFree(void* data) { return TakeBack(data); }
cudaError_t __wrap_cudaMallocHost(void** data, size_t bytes) { return Give(data, bytes); }
cudaError_t __wrap_cudaFreeHost(void* data) { return TakeBack(data); }
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t) {
  const cudaError_t answer = Answer();
  if (answer != cudaSuccess) return answer;
  std::memcpy(to, from, bytes);
  FakeCuda().copies.push_back({to, bytes});
  return cudaSuccess;
}

cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return Give(stream);
}
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream) { return TakeBack(stream); }
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return Answer(); }

cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return Give(event); }
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event) { return TakeBack(event); }
cudaError_t __wrap_cudaEventRecord(cudaEvent_t, cudaStream_t) { return Answer(); }
cudaError_t __wrap_cudaEventQuery(cudaEvent_t) {
  return FakeCuda().are_events_over ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t) {
  ++FakeCuda().event_waits;
  return cudaSuccess;
}

cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return Answer(); }
cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) { return Give(graph); }
cudaError_t __wrap_cudaGraphDestroy(cudaGraph_t graph) { return TakeBack(graph); }
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t,
                                        unsigned long long) {  // NOLINT(runtime/int)
  ++FakeCuda().graphs;
  return Give(executable);
}
cudaError_t __wrap_cudaGraphExecDestroy(cudaGraphExec_t executable) { return TakeBack(executable); }
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return Answer(); }

cudaError_t __wrap_cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return Answer(); }
cudaError_t __wrap_cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->ptxVersion = 90;
  return Answer();
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return Launch();
}
// What <<< >>> becomes, in CUDA 13 and before.
cudaError_t __wrap___cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch();
}
cudaError_t __wrap_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return Launch();
}

}  // extern "C"
