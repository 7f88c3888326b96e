#include "support/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <memory>

namespace sluice {
namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

// The oldest driver for each toolkit, of NVIDIA's release notes.
struct OldestDriver {
  int toolkit;
  const char* driver;
};
constexpr OldestDriver kOldestDrivers[] = {{12, "525"}, {13, "580"}};

struct Library {
  void operator()(void* library) const { dlclose(library); }
};

template <typename... Arguments>
int Call(void* library, const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function == nullptr ? -1 : function(arguments...);
}

int MajorOf(std::string_view version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

CudaDevice DeviceAt(void* library, int index) {
  constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  constexpr int kMinor = 76;
  CudaDevice device;
  int handle = 0;
  size_t bytes = 0;
  std::array<char, 256> name = {};
  if (Call(library, "cuDeviceGet", &handle, index) != 0) return device;
  if (Call(library, "cuDeviceGetName", name.data(), int{name.size() - 1}, handle) == 0) {
    device.name = name.data();
  }
  Call(library, "cuDeviceGetAttribute", &device.major, kMajor, handle);
  Call(library, "cuDeviceGetAttribute", &device.minor, kMinor, handle);
  if (Call(library, "cuDeviceTotalMem_v2", &bytes, handle) == 0) {
    device.bytes = static_cast<int64_t>(bytes);
  }
  return device;
}

}  // namespace

std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaDriver ReadCudaDriver() {
  CudaDriver driver;
  const std::unique_ptr<void, Library> library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return driver;
  driver.is_found = true;
  Call(library.get(), "cuDriverGetVersion", &driver.version);
  driver.error = Call(library.get(), "cuInit", 0u);
  int count = 0;
  if (driver.error == 0) driver.error = Call(library.get(), "cuDeviceGetCount", &count);
  for (int i = 0; i < count; ++i) driver.devices.push_back(DeviceAt(library.get(), i));
  return driver;
}

std::string CudaProblem(std::string_view toolkit, const CudaDriver& driver) {
  if (toolkit.empty()) return {};
  if (!driver.is_found) {
    return "no NVIDIA driver was found: install one, or set LD_LIBRARY_PATH to the folder of its "
           "libcuda.so.1";
  }
  const int major = MajorOf(toolkit);
  if (driver.version / 1000 < major) {
    std::string problem = "this build is for CUDA " + std::string(toolkit) +
                          " and the NVIDIA driver for CUDA " + CudaVersionText(driver.version) +
                          " at most: install ";
    for (const OldestDriver& oldest : kOldestDrivers) {
      if (oldest.toolkit == major) {
        problem += std::string("driver ") + oldest.driver + " or newer, or ";
      }
    }
    return problem + "a build for CUDA " + std::to_string(driver.version / 1000);
  }
  if (driver.error == kNoDevice || (driver.error == 0 && driver.devices.empty())) {
    return "the NVIDIA driver has no GPU for this process: look at nvidia-smi and at "
           "CUDA_VISIBLE_DEVICES";
  }
  if (driver.error != 0) {
    return "the NVIDIA driver does not start, with error " + std::to_string(driver.error) +
           " of cuInit: look at nvidia-smi";
  }
  return {};
}

}  // namespace sluice
