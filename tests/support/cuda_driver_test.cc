// What a driver of NVIDIA keeps a build from doing is said in one sentence, with what to do.
#include "support/cuda_driver.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

CudaDriver Driver(int version, int devices, int error = 0) {
  return {.is_found = true,
          .version = version,
          .error = error,
          .devices = std::vector<CudaDevice>(static_cast<size_t>(devices))};
}

TEST(CudaProblem, OfABuildWithoutCudaIsNone) {
  EXPECT_EQ(CudaProblem("", {}), "");
  EXPECT_EQ(CudaProblem("", Driver(11080, 0, 999)), "");
}

TEST(CudaProblem, OfADriverThatIsNewEnoughIsNone) {
  EXPECT_EQ(CudaProblem("13.0.48", Driver(13000, 1)), "");
  EXPECT_EQ(CudaProblem("12.9.86", Driver(12020, 8)), "");  // minor versions go together
  EXPECT_EQ(CudaProblem("12.9.86", Driver(13010, 1)), "");
}

TEST(CudaProblem, SaysWhatToDo) {
  EXPECT_EQ(CudaProblem("13.0.48", {}),
            "no NVIDIA driver was found: install one, or set LD_LIBRARY_PATH to the folder of its "
            "libcuda.so.1");
  EXPECT_EQ(CudaProblem("13.0.48", Driver(12080, 1)),
            "this build is for CUDA 13.0.48 and the NVIDIA driver for CUDA 12.8 at most: install "
            "driver 580 or newer, or a build for CUDA 12");
  EXPECT_EQ(CudaProblem("14.0", Driver(13010, 1)),
            "this build is for CUDA 14.0 and the NVIDIA driver for CUDA 13.1 at most: install "
            "a build for CUDA 13");
  const std::string no_device =
      "the NVIDIA driver has no GPU for this process: look at nvidia-smi and at "
      "CUDA_VISIBLE_DEVICES";
  EXPECT_EQ(CudaProblem("12.8", Driver(12080, 0)), no_device);
  EXPECT_EQ(CudaProblem("12.8", Driver(12080, 0, 100)), no_device);
  EXPECT_EQ(CudaProblem("12.8", Driver(12080, 0, 999)),
            "the NVIDIA driver does not start, with error 999 of cuInit: look at nvidia-smi");
}

}  // namespace
}  // namespace sluice
