// What the handle of a Sampler names: the C++ one, with the memory that turning C arguments into
// C++ ones takes.
#pragma once

#include <vector>

#include "sluice/sluice.h"
#include "sluice/sluice.hpp"

struct sluice_sampler {
  explicit sluice_sampler(const sluice::SamplerOptions& options)
      : sampler(options),
        max_requests(options.max_requests),
        processors(static_cast<size_t>(options.max_requests)) {
    step_requests.reserve(static_cast<size_t>(options.max_requests));
  }

  sluice::Sampler sampler;
  int32_t max_requests;
  std::vector<sluice::StepRequest> step_requests;  // of the step at hand
  // The processors of each slot's request. The Sampler's own processors point to these.
  std::vector<std::vector<sluice_logits_processor>> processors;
};
