// The calls of cuda.cc, cuda_topk.cc, device_head.cc and device_sampler.cc in a build without CUDA.
#include "python/errors.h"
#include "python/values/calls.h"

namespace sluice::python {

void BindCuda(nb::module_& module) {
  for (const char* name :
       {"cuda_write_fields", "cuda_select", "cuda_mask", "cuda_sample", "cuda_sample_ids"}) {
    module.def(name, [](nb::args, nb::kwargs) {
      throw Error(ErrorCode::kUnavailable, "logits.device", "cuda",
                  "cpu: this build of Sluice has no CUDA");
    });
  }
}

void BindCudaTopk(nb::module_& module) {
  for (const char* name : {"cuda_plan_topk", "cuda_topk"}) {
    module.def(name, [](nb::args, nb::kwargs) {
      throw Error(ErrorCode::kUnavailable, "scores.device", "cuda",
                  "cpu: this build of Sluice has no CUDA");
    });
  }
}

void BindDeviceSampler(nb::module_& module) {
  module.def("CudaSampler", [](nb::args, nb::kwargs) {
    throw Error(ErrorCode::kUnavailable, "device", "cuda",
                "sluice.Sampler: this build of Sluice has no CUDA");
  });
}

void BindDeviceHead(nb::module_& module) {
  module.def("cuda_project", [](nb::args, nb::kwargs) {
    throw Error(ErrorCode::kUnavailable, "hidden.device", "cuda",
                "cpu: this build of Sluice has no CUDA");
  });
  module.def("CudaHead", [](nb::args, nb::kwargs) {
    throw Error(ErrorCode::kUnavailable, "weight.device", "cuda",
                "cpu: this build of Sluice has no CUDA");
  });
}

}  // namespace sluice::python
