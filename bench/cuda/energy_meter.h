// The energy that the current GPU has taken, by the driver's management library, found at run time.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <type_traits>

namespace sluice::bench {

class EnergyMeter {
 public:
  EnergyMeter() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    int (*start)() = nullptr;
    int (*device_of)(const char*, void**) = nullptr;
    // The library's numbers of devices are not the runtime's.
    int current = 0;
    char bus_id[32] = {};
    is_there_ = find("nvmlInit_v2", start) && find("nvmlDeviceGetHandleByPciBusId_v2", device_of) &&
                find("nvmlDeviceGetTotalEnergyConsumption", energy_of_) &&
                cudaGetDevice(&current) == cudaSuccess &&
                cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, current) == cudaSuccess &&
                start() == 0 && device_of(bus_id, &device_) == 0;
  }

  // Since the driver was loaded. Negative: not known.
  double Joules() const {
    unsigned long long millijoules = 0;
    if (!is_there_ || energy_of_(device_, &millijoules) != 0) return -1.0;
    return static_cast<double>(millijoules) * 1e-3;
  }

 private:
  bool is_there_ = false;
  void* device_ = nullptr;
  int (*energy_of_)(void*, unsigned long long*) = nullptr;
};

}  // namespace sluice::bench
