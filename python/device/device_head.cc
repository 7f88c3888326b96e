// What sluice/device_head.py wraps: heads in device memory, with tensors as addresses, as cuda.cc
// has them.
#include "python/device/device_rows.h"
#include "python/errors.h"
#include "python/head/certified_head.h"
#include "python/values/calls.h"
#include "sluice/cuda/certified_sample.hpp"

namespace sluice::python {
namespace {

static_assert(sizeof(cuda::HeadRow) == 2 * sizeof(int32_t));  // as tensors have it

MatrixView MatrixFrom(const DeviceLogits& rows) {
  return {rows.view.data,   rows.view.rows,  rows.view.vocab,
          rows.view.stride, rows.view.dtype, rows.view.device};
}

// Weights, bias and planes are memory of the caller, which keeps it for as long as this lives.
class BoundDeviceHead {
 public:
  // Copies the planes of `host`, made from the same weights, into `memory`, and waits for that.
  BoundDeviceHead(nb::handle host, nb::tuple weight, nb::tuple bias, nb::tuple memory) {
    const DeviceLogits rows(weight);
    device_ = rows.view.device.index;
    call_.head = {MatrixFrom(rows), ArrayFrom<const float>(bias)};
    const OnDevice guard(device_);
    call_.planes = cuda::UploadPlanes(CertifiedHeadOf(host).planes(), ArrayFrom<std::byte>(memory),
                                      rows.stream);
  }

  static size_t PlaneBytes(nb::handle host) {
    return cuda::DevicePlaneBytes(CertifiedHeadOf(host).planes());
  }
  size_t WorkspaceBytes(int64_t rows) const {
    return cuda::CertifiedWorkspaceBytes(call_.planes, rows);
  }

  // (hidden, bitmask, workspace, reports): hidden as rows, the others as arrays.
  void TopK(nb::tuple arguments, int32_t k, nb::tuple ids, nb::tuple logits, nb::tuple statuses) {
    const DeviceLogits hidden(nb::cast<nb::tuple>(arguments[0]));
    const OnDevice guard(device_);
    cuda::TopK(
        CallFrom(hidden, arguments),
        {k, ArrayFrom<int32_t>(ids), ArrayFrom<float>(logits), ArrayFrom<RowStatus>(statuses)},
        hidden.stream);
  }
  void Sample(nb::tuple arguments, nb::tuple params, std::string_view method, nb::tuple ids,
              nb::tuple statuses) {
    const DeviceLogits hidden(nb::cast<nb::tuple>(arguments[0]));
    const OnDevice guard(device_);
    cuda::SampleIdsFromHead(CallFrom(hidden, arguments), RowParamsFrom(params),
                            DrawMethodByName(method), ArrayFrom<int32_t>(ids),
                            ArrayFrom<RowStatus>(statuses), hidden.stream);
  }

 private:
  cuda::CertifiedCall CallFrom(const DeviceLogits& hidden, nb::tuple arguments) const {
    cuda::CertifiedCall call = call_;
    call.hidden = MatrixFrom(hidden);
    call.bitmask = ArrayFrom<const int32_t>(arguments[1]);
    call.workspace = ArrayFrom<std::byte>(arguments[2]);
    call.rows = ArrayFrom<cuda::HeadRow>(arguments[3]);
    return call;
  }

  int device_ = 0;
  cuda::CertifiedCall call_ = {};  // what no call changes
};

void Project(nb::tuple weight, nb::tuple bias, nb::tuple hidden, nb::tuple logits) {
  const DeviceLogits states(hidden);
  const OnDevice guard(states.view.device.index);
  cuda::Project({MatrixFrom(DeviceLogits(weight)), ArrayFrom<const float>(bias)},
                MatrixFrom(states), DeviceLogits(logits).view, states.stream);
}

}  // namespace

void BindDeviceHead(nb::module_& module) {
  nb::class_<BoundDeviceHead>(module, "CudaHead")
      .def(nb::init<nb::handle, nb::tuple, nb::tuple, nb::tuple>(), nb::arg("host"),
           nb::arg("weight"), nb::arg("bias"), nb::arg("memory"))
      .def_static("plane_bytes", &BoundDeviceHead::PlaneBytes, nb::arg("host"))
      .def("workspace_bytes", &BoundDeviceHead::WorkspaceBytes, nb::arg("rows"))
      .def("topk", &BoundDeviceHead::TopK, nb::arg("arguments"), nb::arg("k"), nb::arg("ids"),
           nb::arg("logits"), nb::arg("statuses"))
      .def("sample", &BoundDeviceHead::Sample, nb::arg("arguments"), nb::arg("params"),
           nb::arg("method"), nb::arg("ids"), nb::arg("statuses"));
  module.def("cuda_project", Project, nb::arg("weight"), nb::arg("bias"), nb::arg("hidden"),
             nb::arg("logits"));
}

}  // namespace sluice::python
