// Arguments of a Sampler about single requests: handles, processors, and the results of a step.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "python/values/arrays.h"
#include "python/values/rows.h"
#include "sluice/sampler.hpp"

namespace sluice::python {

namespace nb = nanobind;

// A callable that changes a request's logits.
class Processor {
 public:
  Processor(nb::object function, bool argmax_invariant)
      : function_(std::move(function)), argmax_invariant_(argmax_invariant) {}

  LogitsProcessor View() { return {this, Apply, argmax_invariant_}; }
  PyObject* function() const { return function_.ptr(); }
  void Forget() { function_ = nb::none(); }

 private:
  static void Apply(void* self, std::span<const int32_t> tokens, size_t prompt_length,
                    std::span<float> logits);

  nb::object function_;
  bool argmax_invariant_;
};

std::vector<std::unique_ptr<Processor>> ProcessorsFrom(nb::handle processors);

// One request of a step with the memory that its StepRequest shows.
class StepArguments {
 public:
  explicit StepArguments(nb::handle object);  // a RequestHandle or a sluice.StepRequest
  StepArguments(const StepArguments&) = delete;
  StepArguments& operator=(const StepArguments&) = delete;

  const StepRequest& View() const { return view_; }

 private:
  void Read(const struct StepRequestObject& object);

  StepRequest view_;
  std::vector<int32_t> drafts_;
  std::vector<int32_t> parents_;
  std::optional<Array> bitmask_;
  std::optional<MatrixArgument> probabilities_;
  std::optional<MatrixArgument> model_logits_;
  std::optional<RowParams> model_params_;
  nb::object cuts_;
};

// The signature of Sampler.add, expanded from params.def.
const char* AddSignature();

void BindRequests(nb::module_& module);

}  // namespace sluice::python
