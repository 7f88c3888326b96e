// topk on device memory, for sluice/tensor_ops.py.
#include "python/device/device_rows.h"
#include "python/values/calls.h"
#include "sluice/cuda/topk.hpp"

namespace sluice::python {
namespace {

static_assert(sizeof(cuda::TopkWork) == 2 * sizeof(int32_t));  // as tensors have it

int32_t NumberFrom(std::string_view name, nb::handle number) {
  const auto value = nb::cast<int64_t>(number);
  if (value != static_cast<int32_t>(value)) {
    ThrowValue(name, std::to_string(value), "a number of 32 bits");
  }
  return static_cast<int32_t>(value);
}

// (guess, blocks, threads, capacity)
cuda::TopkPlan PlanFrom(nb::handle plan) {
  const auto parts = nb::cast<nb::tuple>(plan);
  return {static_cast<cuda::TopkGuess>(NumberFrom("plan.guess", parts[0])),
          NumberFrom("plan.blocks", parts[1]), NumberFrom("plan.threads", parts[2]),
          NumberFrom("plan.capacity", parts[3])};
}

nb::tuple PlanTopk(nb::tuple rows, nb::handle k) {  // without what calls carry
  const DeviceLogits scores(rows);
  const OnDevice guard(scores.view.device.index);
  const cuda::TopkPlan plan = cuda::PlanTopk({.scores = scores.view, .k = NumberFrom("k", k)});
  return nb::make_tuple(static_cast<int>(plan.guess), plan.blocks, plan.threads, plan.capacity);
}

// hint: (address, elements, columns, shift); outputs: indices, values, statuses and work as arrays,
// with no elements if they are not requested.
void Topk(nb::tuple rows, nb::handle k, nb::tuple lengths, nb::handle next_n, nb::tuple hint,
          bool sorted, nb::tuple thresholds, nb::tuple outputs, nb::object plan) {
  const DeviceLogits scores(rows);
  const OnDevice guard(scores.view.device.index);
  const cuda::TopkInput input{.scores = scores.view,
                              .k = NumberFrom("k", k),
                              .lengths = ArrayFrom<const int32_t>(lengths),
                              .next_n = NumberFrom("next_n", next_n),
                              .hint = ArrayFrom<const int32_t>(hint),
                              .hint_columns = NumberFrom("hint_columns", hint[2]),
                              .hint_shift = NumberFrom("hint_shift", hint[3]),
                              .sorted = sorted,
                              .thresholds = ArrayFrom<float>(thresholds)};
  const cuda::TopkOutput output{ArrayFrom<int32_t>(outputs[0]), ArrayFrom<float>(outputs[1]),
                                ArrayFrom<RowStatus>(outputs[2]),
                                ArrayFrom<cuda::TopkWork>(outputs[3])};
  if (plan.is_none()) {
    cuda::Topk(input, output, scores.stream);
  } else {
    const cuda::TopkPlan given = PlanFrom(plan);
    cuda::Topk(input, output, scores.stream, &given);
  }
}

}  // namespace

void BindCudaTopk(nb::module_& module) {
  module.def("cuda_plan_topk", PlanTopk, nb::arg("rows"), nb::arg("k"));
  module.def("cuda_topk", Topk, nb::arg("rows"), nb::arg("k"), nb::arg("lengths"),
             nb::arg("next_n"), nb::arg("hint"), nb::arg("sorted"), nb::arg("thresholds"),
             nb::arg("outputs"), nb::arg("plan").none());
}

}  // namespace sluice::python
