// The NVIDIA driver of this machine, in any build: its library is opened at run time, so that a
// build without CUDA can report it, too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct CudaDevice {
  std::string name;
  int major = 0;  // of its compute capability
  int minor = 0;
  int64_t bytes = 0;
};

struct CudaDriver {
  bool is_found = false;
  int version = 0;  // 12080: up to CUDA 12.8
  int error = 0;    // of its first call; 0: none
  std::vector<CudaDevice> devices;
};
CudaDriver ReadCudaDriver();

// "12.8" of 12080.
std::string CudaVersionText(int version);

// What keeps a build with the toolkit of version `toolkit`, "13.0.48", from this machine's GPUs,
// and what to do, in a sentence. Empty: nothing does, or the build is without CUDA and `toolkit`
// empty.
std::string CudaProblem(std::string_view toolkit, const CudaDriver& driver);

}  // namespace sluice
