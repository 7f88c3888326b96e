// What sluice/device_sampler.py wraps: cuda::DeviceSampler with tensors as addresses, as cuda.cc
// has them. Only what processors are given comes as tensors of torch, through DLPack.
#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "python/device/device_rows.h"
#include "python/device/token_table.h"
#include "python/errors.h"
#include "python/values/arrays.h"
#include "python/values/calls.h"
#include "python/values/numbers.h"
#include "python/values/params.h"
#include "python/values/request.h"
#include "python/values/results.h"
#include "sluice/cuda/sampler.hpp"

namespace sluice::python {
namespace {

class BoundDeviceSampler {
 public:
  BoundDeviceSampler(int device, nb::dict options) : device_(device) {
    const OnDevice guard(device_);
    options_ = OptionsFrom(options);
    sampler_ = std::make_unique<cuda::DeviceSampler>(options_);
  }
  ~BoundDeviceSampler() {
    int before = 0;
    cudaGetDevice(&before);
    cudaSetDevice(device_);
    sampler_.reset();
    if (handed_on_ != nullptr) cudaEventDestroy(handed_on_);
    cudaSetDevice(before);
  }

  // Runs body(sampler) with the device current. While a processor lets other threads run, their
  // calls wait; that it calls the sampler by itself is an Error.
  template <typename Body>
  auto Call(Body&& body) {
    const Hold hold(*this);
    const OnDevice guard(device_);
    return body(*sampler_);
  }

  RequestHandle Add(const Request& request, nb::handle processors);
  void Remove(RequestHandle request) {
    Call([&](cuda::DeviceSampler& sampler) { sampler.Remove(request); });
    const auto gone = processors_.extract(request.slot);  // what goes with it may be Python code
  }

  // Copies of what a step gave go to the caller's stream, after it; the next step, which may be on
  // another one, writes where they read.
  void AwaitHandedOn(void* stream) {
    if (handed_on_ == nullptr) {
      Require(cudaEventCreateWithFlags(&handed_on_, cudaEventDisableTiming));
    }
    Require(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), handed_on_, 0));
  }
  void HandedOn(void* stream) {
    Require(cudaEventRecord(handed_on_, static_cast<cudaStream_t>(stream)));
  }

  // For Python's collector: a processor may well refer to the sampler that calls it.
  static int Traverse(PyObject* self, visitproc visit, void* arg);
  static int Clear(PyObject* self);

 private:
  class Hold {
   public:
    explicit Hold(BoundDeviceSampler& sampler) : sampler_(sampler) {
      if (sampler.owner_ == std::this_thread::get_id()) {
        ThrowValue("sampler", "in another call", "one call at a time");
      }
      if (!sampler.mutex_.try_lock()) {
        const nb::gil_scoped_release release;
        sampler.mutex_.lock();
      }
      sampler.owner_ = std::this_thread::get_id();
    }
    ~Hold() {
      sampler_.owner_ = std::thread::id();
      sampler_.mutex_.unlock();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    BoundDeviceSampler& sampler_;
  };
  struct BoundProcessor {
    BoundDeviceSampler* sampler;
    std::unique_ptr<Processor> processor;
  };

  static void Apply(void* self, const cuda::ProcessorRows& rows, void* stream);

  static void Require(cudaError_t result) {
    if (result == cudaSuccess) return;
    cudaGetLastError();  // the error belongs to this call, not to the next one
    throw Error(ErrorCode::kUnavailable, "event", cudaGetErrorString(result),
                "a device that works");
  }

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
    take("max_processed_rows", options.max_processed_rows);
    take("max_temperature", options.limits.max_temperature);
    auto take_flag = [&](const char* name, bool& option) {
      if (!given.contains(name)) return;
      if (!PyBool_Check(nb::object(given[name]).ptr())) {
        ThrowType(name, Describe(given[name]), "True or False");
      }
      option = nb::cast<bool>(given[name]);
    };
    take_flag("bitmasks", options.bitmasks);
    take_flag("goes_on_with_zero", options.goes_on_with_zero);
    take_flag("kept", options.kept);
    take_flag("masses", options.masses);
    options.cuts = options.masses;
    return options;
  }

  int device_;
  cuda::DeviceSamplerOptions options_;
  cudaEvent_t handed_on_ = nullptr;
  std::unique_ptr<cuda::DeviceSampler> sampler_;
  std::unordered_map<int32_t, std::vector<BoundProcessor>> processors_;  // by slot
  std::mutex mutex_;
  std::thread::id owner_;  // of the mutex; changed and read under the GIL
};

RequestHandle BoundDeviceSampler::Add(const Request& request, nb::handle processors) {
  std::vector<BoundProcessor> bound;
  for (std::unique_ptr<Processor>& processor : ProcessorsFrom(processors)) {
    bound.push_back({this, std::move(processor)});
  }
  std::vector<cuda::DeviceLogitsProcessor> views;  // bound does not move its elements again
  for (BoundProcessor& each : bound) {
    views.push_back({&each, Apply, each.processor->View().argmax_invariant});
  }
  processors_.reserve(processors_.size() + 1);
  std::unordered_map<int32_t, std::vector<BoundProcessor>> node;  // so that nothing fails after Add
  node.emplace(0, std::move(bound));
  const RequestHandle handle =
      Call([&](cuda::DeviceSampler& sampler) { return sampler.Add(request, views); });
  auto entry = node.extract(0);
  entry.key() = handle.slot;
  processors_.insert(std::move(entry));
  return handle;
}

void BoundDeviceSampler::Apply(void* self, const cuda::ProcessorRows& rows, void*) {
  const nb::gil_scoped_acquire acquire;
  const auto& bound = *static_cast<BoundProcessor*>(self);
  const int device = bound.sampler->device_;
  auto tensor = [device]<typename T>(T* data, std::initializer_list<size_t> shape,
                                     std::initializer_list<int64_t> strides) {
    using Tensor = nb::ndarray<nb::pytorch, T>;
    const Tensor array(data, shape, {}, strides, nb::dtype<T>(), nb::device::cuda::value, device);
    return nb::cast(array, nb::rv_policy::reference);
  };
  const nb::object tokens = tensor(const_cast<int32_t*>(rows.tokens),
                                   {static_cast<size_t>(bound.sampler->options_.max_tokens)}, {1});
  const nb::object count = tensor(const_cast<int32_t*>(rows.token_count), {1}, {1});
  const nb::object logits =
      tensor(static_cast<float*>(rows.logits.data),
             {static_cast<size_t>(rows.logits.rows), static_cast<size_t>(rows.logits.vocab)},
             {rows.logits.stride, 1});
  const size_t draft_count = static_cast<size_t>(rows.logits.rows) - 1;
  const nb::object drafts = tensor(const_cast<int32_t*>(rows.drafts), {draft_count}, {1});
  nb::list parents;
  for (const int32_t parent : rows.parents) parents.append(parent);
  const nb::object given =
      nb::module_::import_("sluice.device_sampler")
          .attr("ProcessorRows")(logits, tokens, count, drafts, rows.prompt_length, parents);
  nb::handle(bound.processor->function())(given);
}

int BoundDeviceSampler::Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const auto& [slot, processors] : nb::inst_ptr<BoundDeviceSampler>(self)->processors_) {
    for (const auto& each : processors) Py_VISIT(each.processor->function());
  }
  return 0;
}

int BoundDeviceSampler::Clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  // What goes with it may be Python code: the processors stay, and no longer name anything.
  std::vector<Processor*> all;
  for (const auto& [slot, processors] : nb::inst_ptr<BoundDeviceSampler>(self)->processors_) {
    for (const auto& each : processors) all.push_back(each.processor.get());
  }
  for (Processor* processor : all) processor->Forget();
  return 0;
}

RequestHandle Add(BoundDeviceSampler& self, const SamplingParams& params, nb::handle prompt,
                  nb::handle choice, nb::handle processors) {
  const std::vector<int32_t> tokens = GetInts("prompt", prompt);
  Request request;
  request.params = params;
  request.prompt = tokens;
  request.choice = GetNumber<uint32_t>("choice", choice);
  return self.Add(request, processors);
}

// (tokens, columns, ids, logprobs, ranks), or None.
TokenTable TableFrom(nb::handle table) {
  if (table.is_none()) return {};
  const auto parts = nb::cast<nb::tuple>(table);
  return {AddressFrom<int64_t>(parts[0]), nb::cast<int32_t>(parts[1]),
          AddressFrom<int64_t>(parts[2]), AddressFrom<float>(parts[3]),
          AddressFrom<int64_t>(parts[4])};
}

// ids, kept, table: where those of the rows go, after the step, on its stream. 0 and None where
// none are requested.
cuda::StepHandle Step(BoundDeviceSampler& self, nb::tuple rows, nb::handle requests, uintptr_t ids,
                      uintptr_t kept, nb::handle table) {
  const TokenTable tokens = TableFrom(table);
  const DeviceLogits logits(rows);
  std::deque<StepArguments> steps;  // they stay in place: the requests show their memory
  std::vector<StepRequest> step_requests;
  for (const nb::handle object : requests) {
    step_requests.push_back(steps.emplace_back(object).View());
  }
  return self.Call([&](cuda::DeviceSampler& sampler) {
    self.AwaitHandedOn(logits.stream);
    const cuda::StepHandle step = sampler.Step({logits.view, step_requests}, logits.stream);
    auto copy = [&](const char* name, uintptr_t to, cuda::DeviceArray<const int32_t> from) {
      const cudaError_t result = cudaMemcpyAsync(
          reinterpret_cast<void*>(to), from.data, static_cast<size_t>(from.size) * sizeof(int32_t),
          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(logits.stream));
      if (result == cudaSuccess) return;
      throw Error(ErrorCode::kUnavailable, name, cudaGetErrorString(result), "a device that works");
    };
    if (ids != 0) copy("ids", ids, step.ids());
    if (tokens.tokens != nullptr) LaunchTokenTable(step, tokens, logits.stream);
    if (kept != 0) copy("kept", kept, step.kept());
    self.HandedOn(logits.stream);
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
    if (!answer.cuts.empty()) tokens.rows[r].cut = answer.cuts[r];
    if (answer.logprobs.empty()) continue;
    tokens.rows[r].logprob = answer.logprobs[r];
    tokens.rows[r].rank = answer.ranks[r];
  }
  tokens.emitted.assign(answer.emitted.begin(), answer.emitted.end());
  tokens.masses.assign(answer.masses.begin(), answer.masses.end());
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
  static PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(BoundDeviceSampler::Traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(BoundDeviceSampler::Clear)},
      {0, nullptr}};
  nb::class_<BoundDeviceSampler>(module, "CudaSampler", nb::type_slots(slots))
      .def(nb::init<int, nb::dict>(), nb::arg("device"), nb::arg("options"))
      .def("add", Add, nb::arg("params"), nb::arg("prompt"), nb::arg("choice"),
           nb::arg("processors"))
      .def("remove", &BoundDeviceSampler::Remove)
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
      .def("step", Step, nb::arg("rows"), nb::arg("requests"), nb::arg("ids"), nb::arg("kept"),
           nb::arg("table").none())
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
