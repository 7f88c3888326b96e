// sluice.Sampler, for its steps from logits and from a head.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "python/errors.h"
#include "python/values/request.h"
#include "sluice/sampler.hpp"

namespace sluice::python {

namespace nb = nanobind;

// The C++ Sampler with what its requests need from Python. One call at a time: a call holds the
// sampler, and another one meanwhile (from a thread or from a processor) is an Error.
class PythonSampler {
 public:
  explicit PythonSampler(nb::kwargs kwargs) : PythonSampler(OptionsFrom(kwargs)) {}

  RequestHandle Add(nb::handle params, nb::kwargs kwargs);
  void Remove(RequestHandle handle);
  nb::object Step(nb::handle logits, nb::handle requests, nb::kwargs kwargs);
  nb::object StepFromHead(nb::handle head, nb::handle hidden, nb::handle requests,
                          nb::kwargs kwargs);

  // Runs body(sampler) as the one call.
  template <typename Body>
  auto Call(Body&& body) {
    const Hold hold(*this);
    return body(sampler_);
  }

  int64_t vocab() const { return options_.vocab; }
  // How many log-probabilities a request lists; none of a handle that names nothing.
  std::optional<int32_t> LogprobsOf(RequestHandle handle) const;

  // For Python's collector: a processor may well refer to the sampler that calls it.
  static int Traverse(PyObject* self, visitproc visit, void* arg);
  static int Clear(PyObject* self);

 private:
  struct Options : SamplerOptions {
    nb::object threads;  // kept alive
  };
  struct Running {
    std::vector<std::unique_ptr<Processor>> processors;
    std::optional<int32_t> logprobs;
    uint32_t generation = 0;
  };
  class Hold {
   public:
    explicit Hold(PythonSampler& sampler) : sampler_(sampler) {
      if (sampler.is_held_) ThrowValue("sampler", "in another call", "one call at a time");
      sampler.is_held_ = true;
    }
    ~Hold() { sampler_.is_held_ = false; }
    Hold(const Hold&) = delete;

   private:
    PythonSampler& sampler_;
  };

  static Options OptionsFrom(nb::kwargs kwargs);
  explicit PythonSampler(const Options& options) : options_(options), sampler_(options_) {}

  Options options_;
  Sampler sampler_;
  std::unordered_map<int32_t, Running> running_;  // by slot
  bool is_held_ = false;                          // changed and read under the GIL
};

}  // namespace sluice::python
