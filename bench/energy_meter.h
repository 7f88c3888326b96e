// The energy that a GPU has taken, by the driver's management library, found at run time.
#pragma once

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
    int (*device_of)(unsigned, void**) = nullptr;
    is_there_ = find("nvmlInit_v2", start) && find("nvmlDeviceGetHandleByIndex_v2", device_of) &&
                find("nvmlDeviceGetTotalEnergyConsumption", energy_of_) && start() == 0 &&
                device_of(0, &device_) == 0;
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
