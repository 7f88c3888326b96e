// What sluice/device_sampler.py wraps: cuda::DeviceSampler with tensors as addresses, as cuda.cc
// has them.
#include "sluice/device_sampler.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "python/calls.h"
#include "python/device_rows.h"
#include "python/errors.h"
#include "python/numbers.h"
#include "python/params.h"
#include "python/request.h"
#include "python/results.h"

namespace sluice::python {
namespace {

class BoundDeviceSampler {
 public:
  BoundDeviceSampler(int device, nb::dict options) : device_(device) {
    const OnDevice guard(device_);
    sampler_ = std::make_unique<cuda::DeviceSampler>(OptionsFrom(options));
  }
  ~BoundDeviceSampler() {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device_);
    sampler_.reset();
    cudaSetDevice(before);
  }

  // Runs body(sampler) with the device current.
  template <typename Body>
  auto Call(Body&& body) {
    const OnDevice guard(device_);
    return body(*sampler_);
  }

 private:
  static cuda::DeviceSamplerOptions OptionsFrom(nb::dict given) {
    cuda::DeviceSamplerOptions options;
    auto take = [&](const char* name, auto& option) {
      if (!given.contains(name)) return;
      option = GetNumber<std::remove_reference_t<decltype(option)>>(name, given[name]);
    };
    take("vocab", options.vocab);
    take("max_requests", options.max_requests);
    take("max_drafts", options.max_drafts);
    take("max_rows", options.max_rows);
    take("max_tokens", options.max_tokens);
    take("max_listed_ids", options.max_listed_ids);
    take("max_logprobs", options.max_logprobs);
    take("max_graphs", options.max_graphs);
    take("max_temperature", options.limits.max_temperature);
    return options;
  }

  int device_;
  std::unique_ptr<cuda::DeviceSampler> sampler_;
};

RequestHandle Add(BoundDeviceSampler& self, const SamplingParams& params, nb::handle prompt,
                  nb::handle choice) {
  const std::vector<int32_t> tokens = GetInts("prompt", prompt);
  Request request;
  request.params = params;
  request.prompt = tokens;
  request.choice = GetNumber<uint32_t>("choice", choice);
  return self.Call([&](cuda::DeviceSampler& sampler) { return sampler.Add(request); });
}

// ids: where those of the rows go, behind the step, on its stream.
cuda::StepHandle Step(BoundDeviceSampler& self, nb::tuple rows, nb::handle requests,
                      uintptr_t ids) {
  const DeviceLogits logits(rows);
  std::deque<StepArguments> steps;  // they stay in place: the requests show their memory
  std::vector<StepRequest> step_requests;
  for (const nb::handle object : requests) {
    step_requests.push_back(steps.emplace_back(object).View());
  }
  return self.Call([&](cuda::DeviceSampler& sampler) {
    const cuda::StepHandle step = sampler.Step({logits.view, step_requests}, logits.stream);
    const cudaError_t result =
        cudaMemcpyAsync(reinterpret_cast<void*>(ids), step.ids().data,
                        static_cast<size_t>(step.ids().size) * sizeof(int32_t),
                        cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(logits.stream));
    if (result != cudaSuccess) {
      throw Error(ErrorCode::kUnavailable, "ids", cudaGetErrorString(result),
                  "a device that works");
    }
    return step;
  });
}

TokenResults Get(BoundDeviceSampler& self, const cuda::StepHandle& step) {
  {  // other threads may step meanwhile, but not while the sampler's own books are written
    const nb::gil_scoped_release release;
    step.Await();
  }
  const cuda::DeviceStepResult answer = self.Call([&](cuda::DeviceSampler&) { return step.Get(); });
  TokenResults tokens;
  tokens.rows.resize(answer.ids.size());
  for (size_t r = 0; r < answer.ids.size(); ++r) {
    tokens.rows[r].id = answer.ids[r];
    tokens.rows[r].status = answer.statuses[r];
    if (answer.logprobs.empty()) continue;
    tokens.rows[r].logprob = answer.logprobs[r];
    tokens.rows[r].rank = answer.ranks[r];
  }
  tokens.emitted.assign(answer.emitted.begin(), answer.emitted.end());
  tokens.path.assign(answer.path.begin(), answer.path.end());
  tokens.top.Resize(answer.ids.size(), answer.width);
  if (answer.width > 0) {
    const LogprobLists lists = tokens.top.View();
    std::ranges::copy(answer.list_ids, lists.ids.begin());
    std::ranges::copy(answer.list_values, lists.values.begin());
  }
  return tokens;
}

}  // namespace

void BindDeviceSampler(nb::module_& module) {
  nb::class_<cuda::StepHandle>(module, "CudaStep");
  nb::class_<BoundDeviceSampler>(module, "CudaSampler")
      .def(nb::init<int, nb::dict>(), nb::arg("device"), nb::arg("options"))
      .def("add", Add, nb::arg("params"), nb::arg("prompt"), nb::arg("choice"))
      .def("remove",
           [](BoundDeviceSampler& self, RequestHandle request) {
             self.Call([&](cuda::DeviceSampler& sampler) { sampler.Remove(request); });
           })
      .def("update",
           [](BoundDeviceSampler& self, RequestHandle request, const SamplingParams& params) {
             self.Call([&](cuda::DeviceSampler& sampler) { sampler.Update(request, params); });
           })
      .def("accept",
           [](BoundDeviceSampler& self, RequestHandle request, nb::handle tokens) {
             const std::vector<int32_t> ids = GetInts("tokens", tokens);
             self.Call([&](cuda::DeviceSampler& sampler) { sampler.Accept(request, ids); });
           })
      .def("rollback",
           [](BoundDeviceSampler& self, RequestHandle request, nb::handle count) {
             const auto back = GetNumber<int64_t>("count", count);
             self.Call([&](cuda::DeviceSampler& sampler) { sampler.Rollback(request, back); });
           })
      .def("seed",
           [](BoundDeviceSampler& self, RequestHandle request) {
             return self.Call([&](cuda::DeviceSampler& sampler) { return sampler.Seed(request); });
           })
      .def("step", Step, nb::arg("rows"), nb::arg("requests"), nb::arg("ids"))
      .def("get", Get, nb::arg("step"))
      .def_prop_ro(
          "free_slots",
          [](BoundDeviceSampler& self) {
            return self.Call([](cuda::DeviceSampler& sampler) { return sampler.FreeSlots(); });
          })
      .def_prop_ro("waits", [](BoundDeviceSampler& self) {
        return self.Call([](cuda::DeviceSampler& sampler) { return sampler.Waits(); });
      });
}

}  // namespace sluice::python
